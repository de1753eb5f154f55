import numpy as np
import pandas as pd
import pytest
import torch

from tests.data.frames import hours, long_frame, ramp, table_of
from tsformer.data.calendar import calendar_features
from tsformer.data.scaling import Scaler
from tsformer.data.store import SeriesStore
from tsformer.data.table import SeriesTable


def store_of(table: SeriesTable, calendar: bool = True, time_zone: str | None = None):
    return SeriesStore.build(
        table, Scaler.fit(table, 10), calendar=calendar, time_zone=time_zone or table.time_zone
    )


def test_rows_are_the_scaled_table_in_float32():
    frame = long_frame({"a": ramp(12, 1e4), "b": ramp(9)}, starts={"b": 5}).assign(x=ramp(21))
    table = table_of(frame, past_covariates=["x"])
    store = store_of(table)
    target, covariates = Scaler.fit(table, 10).transform(table)
    assert store.target.dtype == store.covariates.dtype == store.calendar.dtype == torch.float32
    np.testing.assert_allclose(store.target, target, rtol=1e-6)
    np.testing.assert_allclose(store.covariates, covariates, rtol=1e-6)
    assert store.offsets.tolist() == [0, 12, 21]
    assert store.starts.tolist() == [0, 5]


def test_large_values_are_scaled_before_they_lose_digits():
    store = store_of(table_of(long_frame({"a": ramp(12, 1e9)})))
    steps = torch.diff(store.target[:, 0])
    torch.testing.assert_close(steps, steps[0].expand(11))


def test_missing_targets_stay_nan_and_missing_covariates_become_their_mean():
    frame = long_frame({"a": ramp(12)}).assign(x=ramp(12, 50))
    frame.loc[3, ["y", "x"]] = np.nan
    store = store_of(table_of(frame, past_covariates=["x"]))
    assert store.target.isnan().flatten().tolist() == [row == 3 for row in range(12)]
    assert store.covariates[3].item() == 0
    assert not store.covariates.isnan().any()


def test_calendar_is_one_row_a_step_of_the_grid_or_none():
    table = table_of(long_frame({"a": ramp(12), "b": ramp(9)}, starts={"b": 20}))
    assert store_of(table).calendar.shape == (29, 6)
    assert store_of(table, calendar=False).calendar.shape == (29, 0)


def test_calendar_of_naive_stamps_is_their_own_clock():
    table = table_of(long_frame({"a": ramp(12)}))
    np.testing.assert_array_equal(store_of(table).calendar, calendar_features(hours(12), "h"))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_calendar_follows_the_local_clock_across_its_change(zone):
    local = pd.date_range("2024-01-01", periods=366 * 24, freq="h", tz=zone)
    frame = pd.DataFrame({"ds": local.tz_convert("UTC"), "y": ramp(len(local))})
    wall_clock = calendar_features(local.tz_localize(None), "h")
    store = store_of(table_of(frame), time_zone=zone)
    np.testing.assert_array_equal(store.calendar, wall_clock)
    # What the clock shows is not a fixed shift of UTC.
    assert not np.allclose(store_of(table_of(frame)).calendar[5:], wall_clock[:-5], atol=0.1)
    assert not np.allclose(store_of(table_of(frame)).calendar, wall_clock, atol=0.1)


def test_calendar_of_zoned_stamps_is_that_of_their_zone():
    local = pd.date_range("2024-03-30", periods=48, freq="h", tz="Europe/Berlin")
    table = table_of(pd.DataFrame({"ds": local, "y": ramp(48)}))
    np.testing.assert_array_equal(
        store_of(table).calendar, calendar_features(local.tz_localize(None), "h")
    )


def test_calendar_of_zoned_days_is_that_of_the_local_date():
    local = pd.date_range("2024-03-25", periods=12, tz="Europe/Berlin")
    table = table_of(pd.DataFrame({"ds": local, "y": ramp(12)}))
    np.testing.assert_array_equal(
        store_of(table).calendar, calendar_features(local.tz_localize(None), "D")
    )
