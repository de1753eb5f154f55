import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.data.frames import (
    assert_same_table,
    covariates_of,
    hours,
    long_frame,
    ramp,
    stamps_of,
    table_of,
    target_of,
)
from tsformer.config import DatasetConfig, parse
from tsformer.data.columns import Columns
from tsformer.data.table import build_table
from tsformer.errors import DataError

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
    table = table_of(frame_of(values), freq="h")
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
    straight, shuffled = table_of(frame, freq="h"), table_of(frame.iloc[order], freq="h")
    assert shuffled.ids == tuple(dict.fromkeys(frame.iloc[order]["unique_id"]))
    assert shuffled.grid.equals(straight.grid)
    for id in values:
        pd.testing.assert_series_equal(target_of(shuffled, id), target_of(straight, id))


@given(st.permutations(range(12)))
def test_order_of_rows_changes_nothing_in_a_wide_table(order):
    frame = pd.DataFrame({"ds": hours(12), "a": ramp(12), "b": ramp(12, 100), "x": ramp(12, 50)})
    parts = {"target": ["a", "b"], "past_covariates": ["x"], "freq": "h"}
    assert_same_table(table_of(frame.iloc[list(order)], **parts), table_of(frame, **parts))


def test_long_and_wide_give_the_same_table():
    wide = pd.DataFrame({"ds": hours(6), "a": ramp(6), "b": ramp(6, 10), "rain": ramp(6, 20)})
    wide.loc[[1, 4], "b"] = np.nan
    long = wide.melt(["ds", "rain"], var_name="unique_id", value_name="y")
    covariates = {"future_covariates": ["rain"]}
    assert_same_table(table_of(wide, **covariates), table_of(long, **covariates))


def test_gaps_become_missing_rows_of_target_and_covariates():
    frame = pd.DataFrame({"ds": hours(6), "y": ramp(6), "x": ramp(6, 10)}).drop([2, 3])
    table = table_of(frame, freq="h", past_covariates=["x"])
    assert_array_equal(table.target[:, 0], [0, 1, np.nan, np.nan, 4, 5])
    assert_array_equal(table.covariates[:, 0], [10, 11, np.nan, np.nan, 14, 15])


def test_series_start_and_end_where_they_do():
    table = table_of(long_frame({"a": ramp(3), "b": ramp(5, 10)}, starts={"a": 4, "b": 1}))
    assert_array_equal(table.starts, [3, 0])
    assert_array_equal(table.lengths, [3, 5])
    assert_array_equal(table.offsets, [0, 3, 8])
    assert_array_equal(table.row_positions, [3, 4, 5, 0, 1, 2, 3, 4])
    assert_array_equal(table.row_series, [0, 0, 0, 1, 1, 1, 1, 1])
    assert table.grid.equals(hours(6, "2024-01-01 01:00"))


def test_integer_ids_become_text():
    assert table_of(long_frame({12: ramp(3), 7: ramp(3)})).ids == ("12", "7")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_unit_of_stamps_makes_no_difference(unit):
    frame = pd.DataFrame({"ds": hours(5).as_unit(unit), "y": ramp(5)})
    plain = pd.DataFrame({"ds": hours(5).strftime("%Y-%m-%d %H:%M:%S"), "y": ramp(5)})
    assert_same_table(table_of(frame), table_of(plain))


def test_freq_is_taken_from_the_longest_series():
    daily = pd.DataFrame(
        {"unique_id": "b", "ds": pd.date_range("2024-01-01", periods=2), "y": ramp(2)}
    )
    table = table_of(pd.concat([daily, long_frame({"a": ramp(20)})]))
    assert table.freq == "h"
    assert len(target_of(table, "b")) == 25


# Time zones


def aware(freq: str, zone: str, count: int = 14, start: str = "2024-01-01") -> pd.DataFrame:
    stamps = pd.date_range(start, periods=count, freq=freq, tz=zone)
    return pd.DataFrame({"ds": stamps, "y": ramp(count)})


def test_zoned_steps_below_a_day_are_laid_out_in_utc():
    frame = aware("h", "Europe/Berlin", 8, "2024-03-30 22:00")  # the clock skips an hour
    table = table_of(frame)
    assert table.freq == "h"
    assert table.time_zone == "Europe/Berlin"
    assert_array_equal(table.target[:, 0], ramp(8))
    assert table.grid.equals(pd.date_range("2024-03-30 21:00", periods=8, freq="h", tz="UTC"))
    assert str(table.stamps(np.arange(8)).tz) == "Europe/Berlin"
    assert list(table.stamps(np.arange(8))) == list(frame["ds"])


def test_hours_that_the_clock_shows_twice_stay_two_rows():
    frame = aware("30min", "Europe/Berlin", 10, "2024-10-27 01:00")
    assert_array_equal(table_of(frame).target[:, 0], ramp(10))


@pytest.mark.parametrize("start", ["2024-03-28", "2024-10-24"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Tokyo"])
def test_zoned_days_stay_one_row_a_local_day(zone, start):
    frame = aware("D", zone, 8, start)
    table = table_of(frame)
    assert_array_equal(table.target[:, 0], ramp(8))
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
    table = table_of(pd.DataFrame({"ds": zoned, "y": ramp(5)}), freq="D")
    assert_array_equal(table.target[:, 0], ramp(5))
    assert list(table.stamps(np.arange(5))) == list(zoned)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("freq", ["W-MON", "MS", "ME", "QS-JAN", "YS-JAN"])
def test_zoned_weeks_and_months_follow_the_local_clock(freq, zone):
    frame = aware(freq, zone)
    for given_freq in (freq, None):
        table = table_of(frame, freq=given_freq)
        assert_array_equal(table.target[:, 0], ramp(14))
        assert list(table.stamps(np.arange(14))) == list(frame["ds"])
        assert list(table.extended(1).grid[-2:]) == list(
            pd.date_range(table.grid[-1], periods=2, freq=freq)
        )


def test_time_zone_of_a_table_is_one_that_settings_accept():
    frame = pd.DataFrame({"ds": ["2024-01-01 00:00+01:00", "2024-01-01 01:00+01:00"], "y": [1, 2]})
    zone = table_of(frame).time_zone
    settings = {"name": "x", "path": "x.csv", "split": [0.7, 0.1, 0.2], "time_zone": zone}
    assert parse(DatasetConfig, settings).time_zone == zone


def test_zoned_wide_table_is_laid_out_about_as_fast_as_a_naive_one():
    naive = pd.DataFrame(np.zeros((10_000, 20)), columns=[f"s{i}" for i in range(20)])
    naive.insert(0, "ds", hours(10_000))
    zoned = naive.assign(ds=naive["ds"].dt.tz_localize("UTC"))

    def seconds(frame: pd.DataFrame) -> float:
        began = time.process_time()
        table_of(frame, freq="h")
        return time.process_time() - began

    plain = min(seconds(naive) for _ in range(3))
    assert min(seconds(zoned) for _ in range(2)) < 6 * plain  # an object a value: 20 times


# Rows as they stand


def test_irregular_rows_are_consecutive_steps():
    stamps = hours(6)[[0, 1, 1, 4, 3, 5]]
    table = table_of(
        pd.DataFrame({"ds": stamps, "a": ramp(6), "b": ramp(6, 10)}), freq="h", regular=False
    )
    assert_array_equal(table.target[:, 0], [*ramp(6), *ramp(6, 10)])
    assert table.grid.equals(stamps.as_unit("us"))
    assert_array_equal(table.starts, [0, 0])


def test_freq_of_irregular_rows_is_their_commonest_step():
    frame = pd.DataFrame({"ds": hours(30)[[*range(10), 9, *range(12, 30)]], "y": ramp(29)})
    assert table_of(frame, regular=False).freq == "h"


# Mistakes


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (
            long_frame({"a": ramp(2), "b": ramp(3)}).iloc[[0, 1, 2, 3, 4, 3]],
            {},
            ["series 'b'", "2024-01-01 01:00:00", "rows 3 and 5", "dataset.id_column"],
        ),
        (
            pd.DataFrame({"ds": hours(3)[[0, 2, 0]], "p": ramp(3), "q": ramp(3)}),
            {},
            ["series 'p'", "2024-01-01 00:00:00", "rows 0 and 2"],
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
        table_of(frame, **options)
    for word in words:
        assert word in str(error.value)


def test_number_of_double_rows_is_told():
    frame = pd.DataFrame({"ds": hours(4).repeat(2), "y": ramp(8)})
    with pytest.raises(DataError, match=r"rows 0 and 1 \(4 such rows in all\)"):
        table_of(frame)


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
            table_of(wild, freq="min")
        for word in ("'wild'", "2200-01-01", "freq='min'", "100 rows", "dataset.freq"):
            assert word in str(error.value)

    assert peak_memory(refuse) < 50e6  # bytes; its grid alone would take 740 MB


def test_large_gap_in_an_honest_table_is_accepted():
    stamps = [*hours(50), *hours(50, "2034-01-01")]
    table = table_of(pd.DataFrame({"ds": stamps, "y": ramp(100)}), freq="h")
    assert np.isnan(table.target).sum() == len(table.target) - 100
    assert_array_equal(table.target[-50:, 0], ramp(50, 50))


# Series as channels


def two_series(**columns) -> pd.DataFrame:
    frame = long_frame({"a": ramp(4), "b": ramp(3, 10)}, starts={"b": 2})
    return frame.assign(**columns)


def test_joined_series_are_channels_on_the_whole_grid():
    joined = table_of(two_series()).joined()
    assert joined.ids == ("a", "b")
    nan = np.nan
    expected = [[0, nan], [1, nan], [2, 10], [3, 11], [nan, 12]]
    assert_array_equal(joined.target, expected)
    assert_array_equal(joined.offsets, [0, 5])
    assert_array_equal(joined.starts, [0])


def test_channels_come_in_the_order_asked_for():
    table = table_of(two_series())
    joined = table.joined(["b", "a"])
    assert joined.ids == ("b", "a")
    assert_array_equal(joined.target, table.joined().target[:, ::-1])


@pytest.mark.parametrize("channels", [["a"], ["a", "b", "c"], ["a", "c"]])
def test_other_channels_than_the_series_are_refused(channels):
    with pytest.raises(DataError) as error:
        table_of(two_series()).joined(channels)
    assert str(channels) in str(error.value)
    assert "['a', 'b']" in str(error.value)


def test_joined_series_share_their_covariates():
    frame = two_series()
    frame["x"] = frame["ds"].dt.hour + 100.0
    joined = table_of(frame, past_covariates=["x"]).joined()
    assert_array_equal(joined.covariates[:, 0], ramp(5, 100))


def test_missing_covariates_of_joined_series_stay_missing():
    frame = two_series(x=[0, np.nan, 2, 3, 2, 3, 4])
    joined = table_of(frame, past_covariates=["x"]).joined()
    assert_array_equal(joined.covariates[:, 0], [0, np.nan, 2, 3, 4])


@pytest.mark.parametrize("other", [9.0, np.nan])
def test_differing_covariates_of_joined_series_are_refused(other):
    frame = two_series(x=[0, 1, 2, 3, 2, other, 4])
    with pytest.raises(DataError, match=r"model\.channels=independent"):
        table_of(frame, past_covariates=["x"]).joined()


# Room for a forecast


def test_extended_series_have_missing_rows_behind_their_own_ends():
    frame = two_series(x=ramp(7, 100))
    table = table_of(frame, past_covariates=["x"])
    extended = table.extended(2)
    for id, end in (("a", 4), ("b", 5)):
        before, after = target_of(table, id), target_of(extended, id)
        assert list(after.index[-2:]) == list(hours(7)[end : end + 2])
        pd.testing.assert_series_equal(after[:-2], before, check_freq=False)
        assert after[-2:].isna().all()
        assert covariates_of(extended, id)[-2:].isna().all(axis=None)
        assert_array_equal(covariates_of(extended, id)[:-2], covariates_of(table, id))


@pytest.mark.parametrize("freq", ["30min", "D", "B", "W-SUN", "MS", "QS-OCT"])
def test_extended_grid_goes_on_by_freq(freq):
    stamps = pd.date_range("2024-01-01", periods=12, freq=freq)
    table = table_of(pd.DataFrame({"ds": stamps[:9], "y": ramp(9)}), freq=freq)
    assert list(stamps_of(table.extended(3), "y")) == list(stamps)


def test_extended_days_follow_the_local_clock():
    frame = aware("D", "Europe/Berlin", 10, "2024-03-25")
    table = table_of(frame[:5])
    assert list(stamps_of(table.extended(5), "y")) == list(frame["ds"])


def test_rows_as_they_stand_need_a_freq_that_goes_on_from_the_last():
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-03", periods=5, freq="7D"), "y": range(5)})
    columns = Columns(None, "ds", ("y",))
    with pytest.raises(DataError, match=r"last time 2024-01-31.*freq='W'"):
        build_table(frame, columns, freq="W", regular=False)
    table = build_table(frame, columns, freq="W-WED", regular=False).extended(1)
    assert table.grid[-1] == pd.Timestamp("2024-02-07")
