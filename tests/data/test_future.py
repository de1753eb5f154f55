from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from tests.data.frames import hours, long_frame, ramp, store_of
from tsformer.data.columns import Columns
from tsformer.data.future import read_future
from tsformer.errors import DataError

LONG = Columns("unique_id", "ds", ("y",), ("past",), ("rain", "wind"))
WIDE = Columns(None, "ds", ("a", "b"), ("past",), ("rain", "wind"))
HORIZON = 3


def long_history() -> pd.DataFrame:
    frame = long_frame({"a": ramp(6), "b": ramp(5)}, starts={"b": 3})  # end before hours 6 and 8
    return frame.assign(past=1.0, rain=2.0, wind=3.0)


def wide_history(stamps: pd.DatetimeIndex | None = None) -> pd.DataFrame:
    stamps = hours(6) if stamps is None else stamps
    return pd.DataFrame({"ds": stamps, "a": 0.0, "b": 1.0, "past": 1.0, "rain": 2.0, "wind": 3.0})


def long_future(first: int = 0, last: int = 12) -> pd.DataFrame:
    """Values that tell series and hour: rain 100, 101, ... of a, 200, 201, ... of b."""
    grid = hours(last)[first:]
    parts = [
        pd.DataFrame(
            {"unique_id": id, "ds": grid, "rain": ramp(len(grid), base + first), "wind": -base}
        )
        for id, base in (("a", 100.0), ("b", 200.0))
    ]
    return pd.concat(parts, ignore_index=True)


def fill(
    history: pd.DataFrame,
    future: pd.DataFrame | None,
    columns: Columns,
    groups: list[list[int]] | None = None,
    **options: Any,
) -> np.ndarray:
    """Return the future covariates of each group, by default of each series, (N, H, F)."""
    parts = asdict(columns)
    store = store_of(history, **{"freq": "h", **parts, **options}).extended(HORIZON)
    groups = np.arange(len(store.ids))[:, None] if groups is None else np.array(groups)
    return read_future(future, columns, store, groups, HORIZON)[0]


def test_each_series_gets_the_values_behind_its_own_end():
    ahead = fill(long_history(), long_future().sample(frac=1, random_state=0), LONG)
    for series, base, end in ((0, 100.0, 6), (1, 200.0, 8)):
        assert_array_equal(ahead[series, :, 0], ramp(HORIZON, base + end))
        assert_array_equal(ahead[series, :, 1], [-base] * HORIZON)


def test_rows_outside_the_horizon_and_of_other_series_are_ignored():
    other = long_future().assign(unique_id="other", rain=np.nan)
    found = fill(long_history(), pd.concat([other, long_future()]), LONG)
    assert_array_equal(found, fill(long_history(), long_future(), LONG))


def test_rows_of_a_wide_table_stand_for_every_series():
    future = pd.DataFrame({"ds": hours(9)[6:], "rain": ramp(3), "wind": ramp(3, 10)})
    for ahead in fill(wide_history(), future, WIDE):
        assert_array_equal(ahead, np.stack([ramp(3), ramp(3, 10)], axis=1))


def test_integer_ids_are_matched():
    history = long_history().assign(unique_id=lambda x: x["unique_id"].map({"a": 1, "b": 2}))
    future = long_future().assign(unique_id=lambda x: x["unique_id"].map({"a": 1, "b": 2}))
    assert_array_equal(fill(history, future, LONG)[1, :, 0], ramp(HORIZON, 208.0))


def test_without_future_covariates_nothing_is_needed():
    columns = Columns("unique_id", "ds", ("y",), ("past",))
    assert fill(long_history(), None, columns).shape == (2, HORIZON, 0)


@pytest.mark.parametrize("unit", ["s", "ns"])
def test_unit_of_stamps_makes_no_difference(unit):
    future = long_future().assign(ds=lambda x: x["ds"].dt.as_unit(unit))
    assert_array_equal(
        fill(long_history(), future, LONG), fill(long_history(), long_future(), LONG)
    )


def test_zoned_hours_match_in_whatever_zone_they_are_given():
    history = wide_history(hours(6).tz_localize("Europe/Berlin"))
    stamps = hours(9)[6:].tz_localize("Europe/Berlin").tz_convert("Asia/Tokyo")
    future = pd.DataFrame({"ds": stamps, "rain": ramp(3), "wind": ramp(3)})
    assert_array_equal(fill(history, future, WIDE)[0, :, 0], ramp(3))


def test_zoned_days_match_across_a_clock_change():
    days = pd.date_range("2024-03-27", periods=9, tz="Europe/Berlin")
    future = pd.DataFrame({"ds": days[6:], "rain": ramp(3), "wind": ramp(3)})
    found = fill(wide_history(days[:6]), future, WIDE, freq="D")
    assert_array_equal(found[1, :, 0], ramp(3))


def test_rows_taken_as_they_stand_may_hold_a_stamp_twice():
    history = wide_history(hours(6)[[0, 1, 1, 2, 4, 5]])
    future = pd.DataFrame({"ds": hours(9)[6:], "rain": ramp(3), "wind": ramp(3)})
    assert_array_equal(fill(history, future, WIDE, regular=False)[0, :, 0], ramp(3))


def test_zoned_days_taken_as_they_stand_match():
    days = pd.date_range("2024-03-27", periods=9, tz="Europe/Berlin")
    future = pd.DataFrame({"ds": days[6:], "rain": ramp(3), "wind": ramp(3)})
    found = fill(wide_history(days[:6]), future, WIDE, freq="D", regular=False)
    assert_array_equal(found[0, :, 0], ramp(3))


def test_missing_value_is_named_with_series_and_time():
    future = long_future().query("not (unique_id == 'b' and rain == 209)")
    with pytest.raises(DataError) as error:
        fill(long_history(), future, LONG)
    for word in ("['rain', 'wind']", "'b'", "at 2024-01-01 09:00:00 (1 of 3", "1 of 2 series"):
        assert word in str(error.value)


def test_several_missing_values_are_named_from_first_to_last():
    with pytest.raises(DataError) as error:
        fill(long_history(), long_future(last=7), LONG)
    text = str(error.value)
    assert "'a' at 2024-01-01 07:00:00 to 2024-01-01 08:00:00 (2 of 3" in text
    assert "2 of 2 series" in text


def test_one_empty_covariate_is_a_missing_value():
    future = long_future()
    future.loc[future["rain"] == 107, "wind"] = np.nan
    with pytest.raises(DataError, match=r"'a' at 2024-01-01 07:00:00 \(1 of 3"):
        fill(long_history(), future, LONG)


def test_time_given_twice_is_refused():
    again = long_future(7, 8).assign(rain=0.0)
    with pytest.raises(DataError, match="different values for the same series and time"):
        fill(long_history(), pd.concat([long_future(), again]), LONG)


def test_naive_and_zoned_times_do_not_match():
    zoned = long_future().assign(ds=lambda x: x["ds"].dt.tz_localize("UTC"))
    with pytest.raises(DataError, match=r"'ds' has a time zone, unlike the history"):
        fill(long_history(), zoned, LONG)
    history = long_history().assign(ds=lambda x: x["ds"].dt.tz_localize("UTC"))
    with pytest.raises(DataError, match=r"'ds' has no time zone, unlike the history"):
        fill(history, long_future(), LONG)


@pytest.mark.parametrize("name", ["unique_id", "ds", "wind"])
def test_missing_column_is_named(name):
    with pytest.raises(DataError, match=rf"future: no column '{name}'"):
        fill(long_history(), long_future().drop(columns=name), LONG)


@pytest.mark.parametrize(("history", "columns"), [(long_history(), LONG), (wide_history(), WIDE)])
def test_no_future_at_all_is_told(history, columns):
    with pytest.raises(DataError, match=r"\['rain', 'wind'\].*3 steps"):
        fill(history, None, columns)


@pytest.mark.parametrize(("history", "columns"), [(long_history(), LONG), (wide_history(), WIDE)])
def test_future_without_rows_lacks_every_value(history, columns):
    with pytest.raises(DataError, match=r"'a' at 2024-01-01 06:00:00 to 2024-01-01 08:00:00"):
        fill(history, long_future().iloc[:0], columns)


def test_text_among_the_values_is_refused_and_the_message_says_that_it_is_in_future():
    future = long_future().astype({"rain": object})
    future.loc[2, "rain"] = "wet"
    with pytest.raises(DataError, match=r"future.*column 'rain', row 2: 'wet'"):
        fill(long_history(), future, LONG)


def test_series_forecast_together_share_the_values_behind_the_last_of_them():
    future = long_future().assign(rain=lambda x: x.groupby("ds")["rain"].transform("min"), wind=1)
    found = fill(long_history(), future, LONG, groups=[[0, 1]])
    assert_array_equal(found[0, :, 0], ramp(HORIZON, 108.0))
    with pytest.raises(DataError, match="series that are forecast together share"):
        fill(long_history(), long_future(), LONG, groups=[[0, 1]])


def test_target_columns_of_an_id_get_its_values():
    columns = replace(LONG, target=("y", "z"))
    found = fill(long_history().assign(z=0.0), long_future(), columns)
    assert_array_equal(found[:, 0, 0], [106, 106, 208, 208])


def test_categories_come_as_codes_with_their_texts():
    columns = Columns("unique_id", "ds", ("y",), (), ("rain",), categorical=("rain",))
    history, future = long_history().assign(rain="dry"), long_future().assign(rain="wet")
    future.loc[future["unique_id"] == "b", "rain"] = "dry"
    store = store_of(history, **{"freq": "h", **asdict(columns)}).extended(HORIZON)
    values, categories = read_future(future, columns, store, np.array([[0], [1]]), HORIZON)
    assert [categories["rain"][int(code)] for code in values[:, 0, 0]] == ["wet", "dry"]


def test_a_category_may_be_empty_where_there_is_a_row():
    columns = Columns("unique_id", "ds", ("y",), (), ("rain", "wind"), categorical=("rain",))
    history, future = long_history().assign(rain="dry"), long_future().assign(rain=None)
    assert np.isnan(fill(history, future, columns)[:, :, 0]).all()
    with pytest.raises(DataError, match=r"'a' at 2024-01-01 07:00:00 to 2024-01-01 08:00:00"):
        fill(history, future[future["ds"] < hours(8)[7]], columns)
    with pytest.raises(DataError, match=r"'a' at 2024-01-01 06:00:00"):
        fill(history, future.assign(wind=None), columns)


def test_static_covariates_of_the_future_are_those_of_the_history():
    columns = replace(LONG, static_covariates=("size", "kind"), categorical=("kind",))
    known = {"size": {"a": 0.1, "b": 2.0}, "kind": {"a": "x", "b": "y"}}

    def beside(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(**{name: frame["unique_id"].map(known[name]) for name in known})

    history, future = beside(long_history()), long_future()
    expected = fill(history, future, columns)
    single = beside(future).astype({"size": np.float32})
    partly = single.assign(size=np.nan, kind=None)
    outside = pd.concat([single, single.assign(ds=hours(1, "2030-01-01")[0], size=9.0, kind="z")])
    for alike in (single, partly, outside):
        assert_array_equal(fill(history, alike, columns), expected)
    for name, value in (("size", 9.0), ("kind", "x"), ("kind", "new")):
        other = beside(future)
        other.loc[other["unique_id"] == "b", name] = value
        with pytest.raises(
            DataError, match=rf"column '{name}': .*{value}.* for series 'b' differs"
        ):
            fill(history, other, columns)
