import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.data.frames import long_frame, ramp, store_of
from tsformer.baselines.naive import seasonal_naive


def slow_seasonal_naive(y: np.ndarray, origin: int, horizon: int, season: int) -> list[float]:
    """Walk back from each step, a season at a time, to the last known value before `origin`."""
    forecast = []
    for step in range(horizon):
        row = origin + step
        while row >= origin or (row >= 0 and np.isnan(y[row])):
            row -= season
        forecast.append(y[row] if row >= 0 else np.nan)
    return forecast


numbers = st.one_of(st.just(np.nan), st.integers(0, 99).map(float))
some_series = st.lists(numbers, min_size=2, max_size=40)


@given(st.lists(some_series, min_size=1, max_size=3), st.integers(1, 12), st.integers(1, 9))
def test_equals_a_slow_walk_back(series, horizon, season):
    ids = [f"s{i}" for i in range(len(series))]
    store = store_of(long_frame(dict(zip(ids, series, strict=True))), freq="h")
    windows = [(s, row) for s, y in enumerate(series) for row in range(1, len(y) + 1)]
    index, row = (np.array(x) for x in zip(*windows, strict=True))
    found = seasonal_naive(store, index[:, None], row, horizon, season)
    assert found.shape == (len(windows), horizon, 1)
    for forecast, (s, origin) in zip(found[..., 0], windows, strict=True):
        expected = slow_seasonal_naive(np.array(series[s]), origin, horizon, season)
        assert_array_equal(forecast, expected)


def forecast_of(y, origin: int, horizon: int, season: int) -> list[float]:
    store = store_of(long_frame({"before": ramp(10, 500), "a": y}), freq="h")
    found = seasonal_naive(store, np.array([[1]]), np.array([origin]), horizon, season)
    return found[0, :, 0].tolist()


def test_last_season_is_repeated_over_a_longer_horizon():
    assert forecast_of(ramp(9), 6, 8, 3) == [3, 4, 5, 3, 4, 5, 3, 4]


def test_truth_over_the_horizon_is_never_used():
    y = ramp(20)
    y[6:] = 1e9
    assert max(forecast_of(y, 6, 8, 3)) == 5


def test_missing_value_is_taken_from_a_season_earlier():
    nan = np.nan
    assert forecast_of([0, 1, 2, nan, nan, 5, nan, 7, 8], 9, 3, 3) == [0, 7, 8]


def test_nan_where_the_series_holds_nothing_at_that_point():
    y = [9, 1, np.nan, 4]
    assert_array_equal(forecast_of(y, 4, 3, 3), [1, np.nan, 4])


def test_series_before_is_not_taken_for_an_earlier_season():
    assert_array_equal(forecast_of([0, 1, 2], 2, 3, 4), [np.nan, np.nan, 0])


def test_channels_are_forecast_together_each_from_its_own_rows():
    store = store_of(long_frame({"a": ramp(9), "b": ramp(7, 100)}, starts={"b": 2}))
    joint = seasonal_naive(store, np.array([[1, 0]]), np.array([7]), 2, 3)
    assert_array_equal(joint[0], [[102, 4], [103, 5]])
