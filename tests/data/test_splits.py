"""Where the parts of a table end."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.stores import store_of
from tsformer.data.splits import split_ends
from tsformer.errors import ConfigError


def store_with(length: int, **grid):
    return store_of({"a": [0.0]}, length=length, **grid)


@given(st.integers(1, 10**5))
def test_fractions_follow_the_published_protocol(length):
    train, test = int(length * 0.7), int(length * 0.2)
    validation = length - train - test
    store = store_with(length)
    assert split_ends([0.7, 0.1, 0.2], store) == (train, train + validation, length)


def test_lengths_are_taken_from_the_start_and_the_rest_is_unused():
    assert split_ends([8640, 2880, 2880], store_with(17_420)) == (8640, 11_520, 14_400)


def test_lengths_beyond_the_data_end_with_them():
    assert split_ends([6, 2, 5], store_with(10)) == (6, 8, 10)


def test_thirds_that_do_not_quite_sum_to_1_are_fractions():
    assert split_ends([0.6, 0.3, 0.1], store_with(100))[2] == 100


def test_fractions_below_1_leave_the_end_unused():
    assert split_ends([0.5, 0.1, 0.2], store_with(100)) == (50, 60, 80)


# Times; the grid goes from 2024-01-01 00:00 on in hours.


@given(st.lists(st.integers(1, 99), min_size=2, max_size=2, unique=True), st.booleans())
def test_times_part_the_grid_before_their_step(places, ends):
    store = store_with(100)
    first, second = sorted(places)
    texts = [str(store.grid[place]) for place in (first, second)]
    if ends:
        texts.append("2024-01-05 04:00")  # one step behind the last
    assert split_ends(texts, store) == (first, second, 100)


def test_the_end_is_left_out():
    ends = split_ends(["2024-01-02", "2024-01-03", "2024-01-04 12:00"], store_with(100))
    assert ends == (24, 48, 84)


def test_a_time_between_two_steps_begins_with_the_later():
    assert split_ends(["2024-01-01 02:30", "2024-01-01 05:00"], store_with(9)) == (3, 5, 9)


@pytest.mark.parametrize(("zone", "hours"), [("Europe/Berlin", 23), ("UTC", 24)])
def test_times_are_those_of_the_tables_zone(zone, hours):
    # The clock goes forward in Berlin on the last day of March 2024.
    store = store_with(100, start="2024-03-31", time_zone=zone)
    assert split_ends(["2024-04-01", "2024-04-02"], store) == (hours, hours + 24, 100)


def test_days_of_a_zoned_table_are_local_ones():
    days = store_with(30, freq="D")  # such a grid follows the local clock and is naive
    store = replace(days, time_zone="Asia/Tokyo")
    assert split_ends(["2024-01-11", "2024-01-21"], store) == (10, 20, 30)


def test_a_grid_taken_as_it_came_may_hold_a_stamp_twice():
    store = store_with(5)
    store = replace(store, grid=store.grid[[0, 1, 1, 2, 3]])
    assert split_ends(["2024-01-01 02:00", "2024-01-01 03:00"], store) == (3, 4, 5)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (["2024-01-03", "2024-01-02"], "do not ascend"),
        (["2024-01-02", "2024-01-02"], "do not ascend"),
        (["2024-01-02", "2024-01-04", "2024-01-03"], "do not ascend"),
        (["2024-01-01", "2024-01-03"], "'2024-01-01' lies outside the table's times, 2024-01-01 "),
        (["1999-12-31", "2024-01-03"], "'1999-12-31' lies outside"),
        (["2024-01-02", "2024-01-06"], r"'2024-01-06' lies outside .* to 2024-01-05 03:00:00"),
        (["2024-01-02", "2024-01-05 04:00"], "'2024-01-05 04:00' lies outside"),
        (["2024-01-02", "2024-01-03", "2024-01-05 05:00"], "'2024-01-05 05:00' lies outside"),
        (["2024-01-02"], "two or three times"),
        (["2024-01-02", 0.1, 0.2], "two or three times"),
        (["2024-01-02"] * 4, "two or three times"),
        (["tomorrow", "2024-01-03"], "'tomorrow' is not a local time such as 2024-01-31"),
        (["01/02/2024", "2024-01-03"], "'01/02/2024' is not a local time"),
        (["2024-01-02 00:00+01:00", "2024-01-03"], "is not a local time"),
        (["", "2024-01-03"], "'' is not a local time"),
    ],
)
def test_times_that_part_nothing_are_refused(split, message):
    with pytest.raises(ConfigError, match=message):
        split_ends(split, store_with(100))


def test_the_span_of_the_grid_is_named_in_local_time():
    store = store_with(48, time_zone="Asia/Tokyo")
    with pytest.raises(ConfigError, match=r"2024-01-01 00:00:00\+09:00 to 2024-01-02 23:00:00"):
        split_ends(["2024-01-02", "2025-01-01"], store)


def test_every_part_of_a_year_of_days_lies_where_its_date_says():
    store = store_with(366, freq="D")
    train, validation, test = split_ends(["2024-07-01", "2024-10-01", "2024-12-01"], store)
    months = np.asarray(store.grid.month)
    assert set(months[:train]) == set(range(1, 7))
    assert set(months[train:validation]) == {7, 8, 9}
    assert set(months[validation:test]) == {10, 11}
    assert store.grid[test] == pd.Timestamp("2024-12-01")
