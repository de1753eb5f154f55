import contextlib
import time
import tracemalloc
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.data.frames import (
    assert_same_series,
    assert_same_store,
    covariates_of,
    hours,
    long_frame,
    ramp,
    store_of,
    target_of,
)
from tsformer.config import DatasetConfig
from tsformer.data.building import build_store
from tsformer.data.columns import find_columns
from tsformer.data.findings import Finding, Findings
from tsformer.data.sources import open_source
from tsformer.data.store import SeriesStore
from tsformer.errors import DataError
from tsformer.settings import parse

# One series: values at hours 0 to 30, with gaps between them and missing ones among them.
some_series = st.dictionaries(
    st.integers(0, 30), st.one_of(st.just(np.nan), st.integers(-9, 9).map(float)), min_size=1
)
some_table = st.dictionaries(st.sampled_from(["a", "b", "7", "é"]), some_series, min_size=1)


def frame_of(values: dict[str, dict[int, float]]) -> pd.DataFrame:
    grid = hours(31)
    rows = [(id, grid[hour], y) for id, series in values.items() for hour, y in series.items()]
    return pd.DataFrame(rows, columns=["unique_id", "ds", "y"])


@given(some_table)
def test_each_series_lies_on_its_own_part_of_a_regular_grid(values):
    table = store_of(frame_of(values), freq="h")
    assert set(table.ids) == set(values)
    for id, series in values.items():
        known = pd.Series({hours(31)[hour]: y for hour, y in series.items()})
        full = pd.date_range(known.index.min(), known.index.max(), freq="h")
        found = target_of(table, id)
        assert list(found.index) == list(full)
        assert_array_equal(found, known.reindex(full))


@given(some_table, st.randoms(use_true_random=False))
def test_order_of_rows_changes_nothing_but_the_order_of_series(values, random):
    frame = frame_of(values)
    order = list(range(len(frame)))
    random.shuffle(order)
    straight, shuffled = store_of(frame, freq="h"), store_of(frame.iloc[order], freq="h")
    assert shuffled.ids == tuple(dict.fromkeys(frame.iloc[order]["unique_id"]))
    assert shuffled.grid.equals(straight.grid)
    for id in values:
        pd.testing.assert_series_equal(target_of(shuffled, id), target_of(straight, id))


@given(st.permutations(range(12)))
def test_order_of_rows_changes_nothing_in_a_wide_table(order):
    frame = pd.DataFrame({"ds": hours(12), "a": ramp(12), "b": ramp(12, 100), "x": ramp(12, 50)})
    parts = {"target": ["a", "b"], "past_covariates": ["x"], "freq": "h"}
    assert_same_store(store_of(frame.iloc[list(order)], **parts), store_of(frame, **parts))


def test_long_and_wide_give_the_same_table():
    wide = pd.DataFrame({"ds": hours(6), "a": ramp(6), "b": ramp(6, 10), "rain": ramp(6, 20)})
    wide.loc[[1, 4], "b"] = np.nan
    long = wide.melt(["ds", "rain"], var_name="unique_id", value_name="y")
    covariates = {"future_covariates": ["rain"]}
    assert_same_series(store_of(wide, **covariates), store_of(long, **covariates))


@given(
    st.lists(
        st.lists(st.one_of(st.just(np.nan), st.integers(-9, 9).map(float)), min_size=3, max_size=3),
        min_size=2,
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_wide_long_and_shuffled_forms_of_any_values_are_the_same_series(values, random):
    wide = pd.DataFrame(values, columns=["a", "b", "c"])
    wide.insert(0, "ds", hours(len(wide)))
    long = wide.melt("ds", var_name="unique_id", value_name="y")
    order = sorted(range(len(long)), key=lambda row: (row // len(wide), random.random()))
    shuffled = wide.sample(frac=1, random_state=random.randrange(99))
    for other in (
        long,
        long.iloc[order],
        shuffled,
        polars.from_pandas(long),
        polars.from_pandas(wide),
    ):
        assert_same_series(store_of(other, freq="h"), store_of(wide, freq="h"))


def test_gaps_become_missing_rows_of_target_and_covariates():
    frame = pd.DataFrame({"ds": hours(6), "y": ramp(6), "x": ramp(6, 10)}).drop([2, 3])
    table = store_of(frame, freq="h", past_covariates=["x"])
    assert_array_equal(table.target, [0, 1, np.nan, np.nan, 4, 5])
    assert_array_equal(table.covariates[:, 0], [10, 11, np.nan, np.nan, 14, 15])


def test_series_start_and_end_where_they_do():
    table = store_of(long_frame({"a": ramp(3), "b": ramp(5, 10)}, starts={"a": 4, "b": 1}))
    assert_array_equal(table.starts, [3, 0])
    assert_array_equal(table.lengths, [3, 5])
    assert_array_equal(table.offsets, [0, 3, 8])
    assert_array_equal(table.ends, [6, 5])
    assert table.grid.equals(hours(6, "2024-01-01 01:00"))


def test_integer_ids_become_text():
    assert store_of(long_frame({12: ramp(3), 7: ramp(3)})).ids == ("12", "7")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_unit_of_stamps_makes_no_difference(unit):
    frame = pd.DataFrame({"ds": hours(5).as_unit(unit), "y": ramp(5)})
    plain = pd.DataFrame({"ds": hours(5).strftime("%Y-%m-%d %H:%M:%S"), "y": ramp(5)})
    assert_same_store(store_of(frame), store_of(plain))


def test_freq_is_taken_from_the_longest_series():
    daily = pd.DataFrame(
        {"unique_id": "b", "ds": pd.date_range("2024-01-01", periods=2), "y": ramp(2)}
    )
    table = store_of(pd.concat([daily, long_frame({"a": ramp(20)})]))
    assert table.freq == "h"
    assert len(target_of(table, "b")) == 25


# Time zones


def aware(freq: str, zone: str, count: int = 14, start: str = "2024-01-01") -> pd.DataFrame:
    stamps = pd.date_range(start, periods=count, freq=freq, tz=zone)
    return pd.DataFrame({"ds": stamps, "y": ramp(count)})


def test_zoned_steps_below_a_day_are_laid_out_in_utc():
    frame = aware("h", "Europe/Berlin", 8, "2024-03-30 22:00")  # the clock skips an hour
    table = store_of(frame)
    assert table.freq == "h"
    assert table.time_zone == "Europe/Berlin"
    assert_array_equal(table.target, ramp(8))
    assert table.grid.equals(pd.date_range("2024-03-30 21:00", periods=8, freq="h", tz="UTC"))
    assert str(table.stamps(np.arange(8)).tz) == "Europe/Berlin"
    assert list(table.stamps(np.arange(8))) == list(frame["ds"])


def test_hours_that_the_clock_shows_twice_stay_two_rows():
    frame = aware("30min", "Europe/Berlin", 10, "2024-10-27 01:00")
    assert_array_equal(store_of(frame).target, ramp(10))


@pytest.mark.parametrize("start", ["2024-03-28", "2024-10-24"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Tokyo"])
def test_zoned_days_stay_one_row_a_local_day(zone, start):
    frame = aware("D", zone, 8, start)
    table = store_of(frame)
    assert_array_equal(table.target, ramp(8))
    assert table.grid.equals(pd.date_range(start, periods=8).as_unit("us"))
    assert list(table.stamps(np.arange(8))) == list(frame["ds"])


@pytest.mark.parametrize(
    ("zone", "start"),
    [
        ("America/Santiago", "2023-09-01"),  # 3 September 2023 began at 1 o'clock
        ("America/Havana", "2023-11-03"),  # midnight of 5 November 2023 came twice
    ],
)
def test_zoned_days_with_a_clock_change_at_midnight(zone, start):
    days = pd.date_range(start, periods=5)
    zoned = days.tz_localize(zone, ambiguous=np.ones(5, bool), nonexistent="shift_forward")
    table = store_of(pd.DataFrame({"ds": zoned, "y": ramp(5)}), freq="D")
    assert_array_equal(table.target, ramp(5))
    assert list(table.stamps(np.arange(5))) == list(zoned)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("freq", ["W-MON", "MS", "ME", "QS-JAN", "YS-JAN"])
def test_zoned_weeks_and_months_follow_the_local_clock(freq, zone):
    frame = aware(freq, zone)
    for given_freq in (freq, None):
        table = store_of(frame, freq=given_freq)
        assert_array_equal(table.target, ramp(14))
        assert list(table.stamps(np.arange(14))) == list(frame["ds"])
        assert list(table.extended(1).grid[-2:]) == list(
            pd.date_range(table.grid[-1], periods=2, freq=freq)
        )


@pytest.mark.parametrize("freq", ["D", None])
def test_local_days_written_with_offsets_are_days_of_the_zone_that_is_named(tmp_path, freq):
    frame = aware("D", "Europe/Berlin", 60, "2024-03-01")
    frame.to_csv(tmp_path / "x.csv", index=False)
    store = store_of(tmp_path / "x.csv", freq=freq, time_zone="Europe/Berlin")
    assert_same_store(store, store_of(frame, freq=freq))
    assert store.freq == "D"
    with pytest.raises(DataError, match="is not on the grid"):
        store_of(tmp_path / "x.csv", freq="D")


def test_a_named_zone_leaves_hours_as_they_came():
    frame = aware("h", "UTC", 30)
    assert_same_store(store_of(frame, time_zone="Europe/Berlin"), store_of(frame))


def test_time_zone_of_a_table_is_one_that_settings_accept():
    frame = pd.DataFrame({"ds": ["2024-01-01 00:00+01:00", "2024-01-01 01:00+01:00"], "y": [1, 2]})
    zone = store_of(frame).time_zone
    settings = {"name": "x", "path": "x.csv", "split": [0.7, 0.1, 0.2], "time_zone": zone}
    assert parse(DatasetConfig, settings).time_zone == zone


def test_zoned_wide_table_is_laid_out_about_as_fast_as_a_naive_one():
    naive = pd.DataFrame(np.zeros((10_000, 20)), columns=[f"s{i}" for i in range(20)])
    naive.insert(0, "ds", hours(10_000))
    zoned = naive.assign(ds=naive["ds"].dt.tz_localize("UTC"))

    def seconds(frame: pd.DataFrame) -> float:
        began = time.process_time()
        store_of(frame, freq="h")
        return time.process_time() - began

    plain = min(seconds(naive) for _ in range(3))
    assert min(seconds(zoned) for _ in range(2)) < 6 * plain  # an object a value: 20 times


# Rows as they stand


def test_irregular_rows_are_consecutive_steps():
    stamps = hours(6)[[0, 1, 1, 4, 3, 5]]
    table = store_of(
        pd.DataFrame({"ds": stamps, "a": ramp(6), "b": ramp(6, 10)}), freq="h", regular=False
    )
    assert_array_equal(table.target, [*ramp(6), *ramp(6, 10)])
    assert table.grid.equals(stamps.as_unit("us"))
    assert_array_equal(table.starts, [0, 0])


def test_freq_of_irregular_rows_is_their_commonest_step():
    frame = pd.DataFrame({"ds": hours(30)[[*range(10), 9, *range(12, 30)]], "y": ramp(29)})
    assert store_of(frame, regular=False).freq == "h"


# Mistakes


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (
            long_frame({"a": ramp(2), "b": ramp(3)}).iloc[[0, 1, 2, 3, 4, 3]],
            {},
            [
                "series 'b'",
                "2024-01-01 01:00:00",
                "row 3 and row 5",
                "dataset.duplicates",
                "dataset.id_column",
            ],
        ),
        (
            pd.DataFrame({"ds": hours(3)[[0, 2, 0]], "p": ramp(3), "q": ramp(3)}),
            {},
            ["series 'p'", "2024-01-01 00:00:00", "row 0 and row 2"],
        ),
        (
            pd.DataFrame({"ds": [*hours(3), pd.Timestamp("2024-01-01 01:20")], "y": ramp(4)}),
            {"freq": "h"},
            ["series 'y'", "2024-01-01 01:20:00", "row 3", "freq='h'", "dataset.freq"],
        ),
        (pd.DataFrame({"ds": hours(3), "y": ramp(3)}), {"freq": "hourly"}, ["freq='hourly'"]),
        (pd.DataFrame({"ds": hours(3), "y": ramp(3)}), {"freq": "0h"}, ["freq='0h'"]),
        (pd.DataFrame({"ds": hours(1), "y": ramp(1)}), {}, ["dataset.freq"]),
        (pd.DataFrame({"ds": hours(0), "y": ramp(0)}), {"freq": "h"}, ["no rows"]),
        (long_frame({"a": ramp(3)}), {"regular": False}, ["dataset.regular=false", "wide"]),
    ],
    ids=[
        "double row of a series",
        "double row of a wide table",
        "off the grid",
        "unknown freq",
        "no step",
        "one stamp",
        "no rows",
        "irregular long table",
    ],
)
def test_mistakes_are_named(frame, options, words):
    with pytest.raises(DataError) as error:
        store_of(frame, **options)
    for word in words:
        assert word in str(error.value)


def test_number_of_double_rows_is_told():
    frame = pd.DataFrame({"ds": hours(4).repeat(2), "y": ramp(8)})
    with pytest.raises(DataError, match=r"row 0 and row 1 \(4 in all\)"):
        store_of(frame)


def peak_memory(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_wild_stamp_is_refused_without_laying_out_its_grid():
    minutes = pd.date_range("2024-01-01", periods=100, freq="min")
    wild = pd.DataFrame(
        {
            "unique_id": ["tame"] * 100 + ["wild"] * 100,
            "ds": [*minutes, *minutes[:99], pd.Timestamp("2200-01-01")],
            "y": ramp(200),
        }
    )

    def refuse() -> None:
        with pytest.raises(DataError) as error:
            store_of(wild, freq="min")
        for word in ("'wild'", "2200-01-01", "freq='min'", "100 rows", "dataset.freq"):
            assert word in str(error.value)

    assert peak_memory(refuse) < 50e6  # bytes; its grid alone would take 740 MB


def test_large_gap_in_an_honest_table_is_accepted():
    stamps = [*hours(50), *hours(50, "2034-01-01")]
    table = store_of(pd.DataFrame({"ds": stamps, "y": ramp(100)}), freq="h")
    assert np.isnan(table.target).sum() == len(table.target) - 100
    assert_array_equal(table.target[-50:], ramp(50, 50))


# Room for a forecast


def ahead_of(store: SeriesStore, steps: int) -> list[pd.Timestamp]:
    end = store.ends[0]
    return list(store.extended(steps).stamps(np.arange(end, end + steps)))


@pytest.mark.parametrize("freq", ["30min", "D", "B", "W-SUN", "MS", "QS-OCT"])
def test_extended_grid_goes_on_by_freq(freq):
    stamps = pd.date_range("2024-01-01", periods=12, freq=freq)
    table = store_of(pd.DataFrame({"ds": stamps[:9], "y": ramp(9)}), freq=freq)
    assert ahead_of(table, 3) == list(stamps[9:])


def test_extended_days_follow_the_local_clock():
    frame = aware("D", "Europe/Berlin", 10, "2024-03-25")
    table = store_of(frame[:5])
    assert ahead_of(table, 5) == list(frame["ds"][5:])


def test_rows_as_they_stand_need_a_freq_that_goes_on_from_the_last():
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-03", periods=5, freq="7D"), "y": range(5)})
    with pytest.raises(DataError, match=r"last time 2024-01-31.*freq='W'"):
        store_of(frame, freq="W", regular=False)
    assert ahead_of(store_of(frame, freq="W-WED", regular=False), 1) == [pd.Timestamp("2024-02-07")]


# Chunks


def built(frame: pd.DataFrame, chunk_values: int, **options: Any) -> tuple[SeriesStore, list[str]]:
    source, findings = open_source(frame, chunk_values=chunk_values), Findings()
    parts = {"past_covariates": ["x", "kind"], "static_covariates": ["size"], "target": ["y"]}
    columns = find_columns(source.names, **parts, categorical=["kind"])
    store = build_store(source, columns, findings, **options)
    return store, [str(finding) for finding in findings]


@settings(max_examples=15)
@given(
    some_table,
    st.integers(1, 40),
    st.sampled_from(["first", "mean", "sum"]),
    st.randoms(use_true_random=False),
)
def test_chunks_make_no_difference(values, chunk_values, duplicates, random):
    frame = frame_of(values)
    frame = pd.concat([frame, frame.sample(frac=0.3, random_state=0)], ignore_index=True)
    order = list(range(len(frame)))
    random.shuffle(order)
    frame = frame.iloc[order].reset_index(drop=True)
    frame["x"], frame["size"] = ramp(len(frame)), frame["unique_id"].map(len)
    frame["kind"] = [random.choice(["u", "v", None]) for _ in order]
    options = {"freq": "h", "duplicates": duplicates}
    whole, told = built(frame, 10**6, **options)
    chunked, told_of_chunks = built(frame, chunk_values, **options)
    assert_same_store(chunked, whole)
    assert told_of_chunks == told


def test_chunks_make_no_difference_to_a_wide_table_as_it_stands():
    stamps = hours(20)[[0, 1, 1, *range(3, 20)]]
    frame = pd.DataFrame({"ds": stamps, "a": ramp(20), "b": ramp(20, 5)})
    columns = find_columns(frame)
    stores = [
        build_store(
            open_source(frame, chunk_values=values), columns, Findings(), freq="h", regular=False
        )
        for values in (10**6, 9)
    ]
    assert_same_store(*stores)


# Views of a store


@given(some_table, st.integers(-5, 35), st.integers(-5, 35))
def test_values_of_a_series_are_missing_outside_its_rows(values, begin, end):
    store = store_of(frame_of(values), freq="h")
    first = min(hour for series in values.values() for hour in series)
    for number, id in enumerate(store.ids):
        expected = [values[id].get(first + t, np.nan) for t in range(begin, end)]
        assert_array_equal(store.values(number, begin, end), expected)
        positions = np.arange(begin, end)
        assert_array_equal(store.at(np.full(len(positions), number), positions), expected)


@given(some_table, st.integers(0, 35), st.integers(1, 20))
def test_blocks_hold_every_row_before_the_end_once(values, end, block_rows):
    store = store_of(frame_of(values), freq="h")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tsformer.data.store.BLOCK_ROWS", block_rows)
        blocks = list(store.blocks(end))
    for number in range(len(store.ids)):
        found = np.concatenate([rows[series == number] for series, rows in blocks])
        expected = store.values(number, store.starts[number], min(store.ends[number], end))
        assert_array_equal(found, expected)


# Several target columns, other covariates


def test_each_target_column_of_an_id_is_a_series():
    frame = long_frame({"a": ramp(3), "b": ramp(2, 10)}, starts={"b": 1})
    frame = frame.assign(z=frame["y"] + 100, x=frame["y"] - 1)
    store = store_of(frame, target=["y", "z"], past_covariates=["x"])
    assert store.ids == ("a/y", "a/z", "b/y", "b/z")
    values = [0, 1, 2, 100, 101, 102, 10, 11, 110, 111]
    assert_array_equal(np.concatenate([target_of(store, id) for id in store.ids]), values)
    assert_array_equal(store.starts, [0, 0, 1, 1])
    assert_array_equal(store.offsets, [0, 3, 6, 8, 10])
    assert_array_equal(covariates_of(store, "b/z")[0], [9, 10])
    assert len(store.covariates) == 5  # an id's series share them


def test_static_covariates_are_one_row_a_series():
    frame = long_frame({"a": ramp(3), "b": ramp(2)})
    frame = frame.assign(size=[7, np.nan, 7, 9, 9], kind=["x", "x", None, "y", "y"])
    store = store_of(frame, static_covariates=["size", "kind"], categorical=["kind"])
    assert_array_equal(store.static, [[7, 0], [9, 1]])
    assert store.categories == {"kind": ("x", "y")}


def test_categories_are_coded_alike_whatever_the_order_and_type():
    frame = long_frame({"a": ramp(4)}).assign(kind=["u", None, "b", "u"], number=[2, 1, None, 1])
    options = {"past_covariates": ["kind", "number"], "categorical": ["kind", "number"]}
    store = store_of(frame, **options)
    assert store.categories == {"kind": ("b", "u"), "number": ("1", "2")}
    assert_array_equal(store.covariates, [[1, 1], [np.nan, 0], [0, np.nan], [1, 0]])
    assert_same_store(store_of(frame.iloc[::-1], **options), store)
    typed = frame.astype({"kind": "category", "number": "Int64"})
    assert_same_store(store_of(typed, **options), store)


def test_booleans_are_numbers():
    frame = long_frame({"a": ramp(3)}).assign(open=[True, False, True])
    assert_array_equal(store_of(frame, past_covariates=["open"]).covariates[:, 0], [1, 0, 1])


def test_weights_are_one_a_series():
    frame = long_frame({"a": ramp(3), "b": ramp(2)}).assign(w=[2, 2, 2, 0, 0])
    store = store_of(frame, weight="w", target=["y"])
    assert_array_equal(store.weights, [2, 0])


# Precision


def test_large_values_that_are_near_to_each_other_keep_their_digits():
    steps = np.array([0.0, 0.25, 0.5, 3.0])
    store = store_of(long_frame({"a": 1e9 + steps, "b": steps}))
    assert store.target.dtype == np.float32
    assert_array_equal(target_of(store, "a"), 1e9 + steps)
    assert_array_equal(target_of(store, "b"), steps)
    assert store.centers[1] == 0


@pytest.mark.parametrize("duplicates", ["error", "first", "mean", "sum"])
def test_policies_for_duplicates_keep_the_digits_of_large_values(duplicates):
    values = 1e9 + np.array([0.0, 0.25, 0.5, 3.0])
    store = store_of(long_frame({"a": values, "b": values - 1e9}), duplicates=duplicates)
    assert_array_equal(target_of(store, "a"), values)


def test_covariates_keep_their_digits():
    seconds = 1.7e9 + np.arange(4)
    frame = long_frame({"a": ramp(4)}).assign(x=seconds, size=16777217.0)
    parts = {"target": ["y"], "past_covariates": ["x"], "static_covariates": ["size"]}
    store = store_of(frame, **parts)
    assert_array_equal(store.covariates[:, 0], seconds)
    assert store.static[0, 0] == 16777217


def test_dates_that_may_be_read_two_ways_are_refused_behind_others_too(tmp_path):
    pd.DataFrame({"ds": hours(3).strftime("%Y-%m-%d %H:%M"), "y": ramp(3)}).to_csv(
        tmp_path / "0.csv", index=False
    )
    late = pd.DataFrame({"ds": ["10/01/2024", "11/01/2024"], "y": ramp(2)})
    late.to_csv(tmp_path / "1.csv", index=False)
    with pytest.raises(DataError, match=r"'10/01/2024' may begin with the day or with the month"):
        store_of(tmp_path)
    pd.concat([late, late.assign(ds=["25/01/2024", "26/01/2024"])]).to_csv(
        tmp_path / "1.csv", index=False
    )
    assert store_of(tmp_path, freq="h").grid[-1] == pd.Timestamp("2024-01-26")


def test_series_of_one_name_are_refused():
    frame = long_frame({"a": ramp(3), "a/b": ramp(3)})
    frame = frame.assign(c=ramp(6)).rename(columns={"y": "b/c"})
    with pytest.raises(DataError, match=r"two series would be called 'a/b/c'"):
        store_of(frame, target=["b/c", "c"])


def test_an_empty_freq_is_none():
    assert store_of(long_frame({"a": ramp(3)}), freq="").freq == "h"


def test_decimals_are_numbers():
    frame = long_frame({"a": ramp(3)}).assign(y=[Decimal("0.5"), Decimal("1.25"), None])
    assert_array_equal(store_of(frame).target, [0.5, 1.25, np.nan])


# Rows of one series and time


@pytest.mark.parametrize(
    ("duplicates", "y", "x"),
    [("first", [1, 5, np.nan], 1), ("mean", [2, 6, 4], 1.5), ("sum", [6, 12, 4], 1.5)],
)
def test_duplicate_rows_count_as_the_policy_says(duplicates, y, x):
    frame = pd.DataFrame(
        {
            "ds": hours(3)[[0, 1, 0, 2, 1, 0, 2]],
            "y": [1, 5, 2, np.nan, 7, 3, 4.0],
            "x": [1, 0, 2, 0, 0, np.nan, 0],
            "kind": list("babaabb"),
        }
    )
    findings = Findings()
    store = store_of(
        frame,
        duplicates=duplicates,
        target=["y"],
        past_covariates=["x", "kind"],
        categorical=["kind"],
        findings=findings,
    )
    assert_array_equal(store.target, y)
    assert store.covariates[0].tolist() == [x, 1]
    told = next(finding for finding in findings if finding.kind == "duplicate rows")
    assert (told.level, told.count) == ("warning", 4)


@given(some_table, st.sampled_from(["mean", "sum"]), st.randoms(use_true_random=False))
def test_mean_and_sum_do_not_depend_on_the_order_of_rows(values, duplicates, random):
    frame = frame_of(values)
    frame = pd.concat([frame, frame.sample(frac=0.5, random_state=0)], ignore_index=True)
    order = list(range(len(frame)))
    random.shuffle(order)
    order.sort(key=lambda row: frame["unique_id"][row])  # the order of series stays
    options = {"freq": "h", "duplicates": duplicates}
    straight = frame.sort_values("unique_id", kind="stable")
    assert_same_store(store_of(frame.iloc[order], **options), store_of(straight, **options))


# What is told


def findings_of(frame: pd.DataFrame, **options: Any) -> dict[str, Finding]:
    findings = Findings()
    with contextlib.suppress(DataError):
        store_of(frame, findings=findings, **options)
    return {finding.kind: finding for finding in findings}


def test_one_report_tells_every_fault():
    frame = long_frame({"a": ramp(20), "b": ramp(20)}).astype({"y": object, "unique_id": object})
    frame = frame.assign(x=ramp(40), size=1.0)
    frame.loc[3, "y"] = "n/a"
    frame.loc[4, "y"] = -np.inf
    frame.loc[5, "x"] = np.inf
    frame.loc[[7, 8], "unique_id"] = None
    frame.loc[9, "ds"] = pd.NaT
    frame.loc[11, "ds"] += pd.Timedelta(minutes=7)
    frame.loc[30, "ds"] = frame.loc[29, "ds"]
    frame.loc[35, "size"] = 2.0
    options = {"target": ["y"], "past_covariates": ["x"], "static_covariates": ["size"]}
    with pytest.raises(DataError) as error:
        store_of(frame, **options)
    for text in (
        "8 faults:",
        "series 'a', column 'y', row 3: 'n/a' is not a number",
        "series 'a', column 'y', row 4: infinite",
        "series 'a', column 'x', row 5: infinite",
        "column 'unique_id', row 7: no series id is given (2 in all)",
        "series 'a', column 'ds', row 9: no time is given",
        "series 'a': the time 2024-01-01 11:07:00 (row 11) is not on the grid of freq='h'",
        "series 'b' has the time 2024-01-01 09:00:00 twice, in row 29 and row 30",
        "series 'b', column 'size', row 35: 2.0 differs",
    ):
        assert text in str(error.value)


def test_notes_tell_what_was_done():
    frame = long_frame({"a": ramp(10), "b": np.ones(10), "c": np.full(10, np.nan), "d": ramp(10)})
    frame = frame.assign(x=[np.nan, *ramp(39)])
    frame.loc[32, "y"] = np.nan
    frame = frame.drop(index=[4, 5]).iloc[::-1]
    found = findings_of(frame, past_covariates=["x"], freq="h")
    assert {(f.kind, f.level, f.count) for f in found.values()} == {
        ("no value at all", "warning", 1),
        ("unsorted rows", "note", 4),
        ("gaps", "note", 2),
        ("empty target", "note", 1),
        ("constant series", "note", 1),
        ("empty covariate", "note", 1),
    }
    for kind, words in (
        ("no value at all", "series 'c'"),
        ("gaps", "series 'a': no rows at 2 steps"),
        ("empty target", "series 'd': 1 rows without a value"),
        ("constant series", "series 'b'"),
        ("empty covariate", "column 'x'"),
    ):
        assert words in str(found[kind])


def test_a_series_that_is_mostly_gaps_is_warned_of():
    frame = long_frame({"a": ramp(10), "b": ramp(10), "c": ramp(10)})
    frame.loc[10, "ds"] = frame.loc[10, "ds"].replace(year=1924)  # of b
    frame.loc[29, "ds"] += pd.Timedelta(hours=80)  # of c: 10 of 90 steps have rows
    found = findings_of(frame, freq="h")
    assert (found["mostly gaps"].level, found["gaps"].level) == ("warning", "note")
    assert "series 'b': no rows at 876," in str(found["mostly gaps"])
    assert "series 'c': no rows at 80 steps" in str(found["gaps"])


def test_sorted_rows_are_not_told_of():
    by_series = long_frame({"a": ramp(5), "b": ramp(5)})
    assert not findings_of(by_series)
    assert not findings_of(by_series.sort_values("ds", kind="stable"))
    assert "unsorted rows" in findings_of(by_series.iloc[[1, 0, *range(2, 10)]])


def test_some_zoned_and_some_naive_times_are_refused(tmp_path):
    long_frame({"a": ramp(3)}).to_parquet(tmp_path / "0.parquet")
    zoned = long_frame({"b": ramp(3)}).assign(ds=lambda x: x["ds"].dt.tz_localize("Asia/Tokyo"))
    zoned.to_parquet(tmp_path / "1.parquet")
    with pytest.raises(DataError, match=r"some times have a time zone \(Asia/Tokyo\)"):
        store_of(tmp_path)


def test_rows_of_several_files_are_named_with_their_file(tmp_path):
    for number in (0, 1):
        frame = long_frame({f"s{number}": ramp(4)}).astype({"y": object})
        frame.loc[2, "y"] = "?" if number else 2.0
        frame.to_csv(tmp_path / f"part-{number}.csv", index=False)
    with pytest.raises(DataError) as error:
        store_of(tmp_path)
    assert "series 's1', column 'y', row 2 of part-1.csv: '?' is not a number" in str(error.value)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, 1, -1, -1], "series 'b', column 'w': the weight is -1"),
        ([1, 1, None, None], "series 'b', column 'w': the weight is not given"),
        ([0, 0, 0, 0], "column 'w': all weights are 0"),
        ([1, 2, 3, 3], "series 'a', column 'w', row 1: 2"),
    ],
)
def test_wrong_weights_are_refused(weights, words):
    frame = long_frame({"a": ramp(2), "b": ramp(2)}).assign(w=weights)
    with pytest.raises(DataError) as error:
        store_of(frame, weight="w", target=["y"])
    assert words in str(error.value)
