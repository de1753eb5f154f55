import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsformer.data.calendar import calendar_features, seasonal_periods, step_of


@pytest.mark.parametrize(
    ("freq", "step"),
    [("10min", "10min"), ("30min", "30min"), ("h", "1h"), ("D", "1D"), ("W", "7D"), ("2W", "14D")],
)
def test_steps_up_to_weeks_are_exact(freq, step):
    assert step_of(freq) == pd.Timedelta(step)


@pytest.mark.parametrize(
    ("freq", "shortest", "longest"),
    [("MS", 30, 31), ("ME", 30, 31), ("QS", 91, 92), ("YS", 365, 366), ("B", 1, 2)],
)
def test_longer_steps_are_a_mean(freq, shortest, longest):
    assert pd.Timedelta(days=shortest) < step_of(freq) < pd.Timedelta(days=longest)


@pytest.mark.parametrize(
    ("freq", "seasons"),
    [
        ("10min", {"daily": 144, "weekly": 1008}),
        ("30min", {"daily": 48, "weekly": 336}),
        ("h", {"daily": 24, "weekly": 168}),
        ("D", {"weekly": 7}),
        ("B", {"weekly": 5}),
        ("W", {"yearly": 52}),
        ("MS", {"yearly": 12}),
        ("QS", {"yearly": 4}),
        ("YS", {"last value": 1}),
    ],
)
def test_seasons_of_a_step(freq, seasons):
    assert seasonal_periods(freq) == seasons


@pytest.mark.parametrize(
    ("freq", "count"),
    [("10min", 6), ("30min", 6), ("h", 6), ("D", 4), ("B", 4), ("W", 2), ("MS", 2), ("QS", 2)],
)
def test_only_cycles_longer_than_a_step_are_given(freq, count):
    features = calendar_features(pd.date_range("2024-01-01", periods=5, freq=freq), freq)
    assert features.shape == (5, count)
    assert features.dtype == np.float32


@given(st.datetimes(pd.Timestamp("1990-01-01"), pd.Timestamp("2090-01-01")))
def test_features_are_points_on_circles(moment):
    sines, cosines = calendar_features(pd.DatetimeIndex([moment]), "h").reshape(2, 3)
    np.testing.assert_allclose(sines**2 + cosines**2, 1, atol=1e-6)


def cycles(*moments: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Angles in the day, week and year, each (moments,), in turns."""
    features = calendar_features(pd.DatetimeIndex(moments), "h").astype(float)
    return tuple(np.arctan2(features[:, :3], features[:, 3:]).T / (2 * np.pi) % 1)


def test_same_time_of_day_is_the_same_point_of_the_day():
    day, week, year = cycles("2024-01-01 18:30", "2024-06-12 18:30")
    np.testing.assert_allclose(day, 18.5 / 24, atol=1e-6)
    assert abs(week[0] - week[1]) > 0.1
    assert abs(year[0] - year[1]) > 0.1


def test_same_weekday_and_time_is_the_same_point_of_the_week():
    day, week, _ = cycles("2024-01-01 06:00", "2024-06-10 06:00")  # both Mondays
    np.testing.assert_allclose(day, 6 / 24, atol=1e-6)
    np.testing.assert_allclose(week, 6 / (7 * 24), atol=1e-6)


def test_same_date_is_nearly_the_same_point_of_the_year():
    _, _, year = cycles("2021-01-01 00:00", "2023-07-02 12:00", "2024-07-01 12:00")
    np.testing.assert_allclose(year, [0, 0.5, 0.5], atol=2 / 365)


@pytest.mark.parametrize("freq", ["D", "W"])
def test_days_and_weeks_keep_the_cycles_they_have(freq):
    stamps = pd.date_range("2024-01-01", periods=60, freq=freq)
    hourly, own = calendar_features(stamps, "h"), calendar_features(stamps, freq)
    kept = {"D": [1, 2, 4, 5], "W": [2, 5]}[freq]
    np.testing.assert_array_equal(own, hourly[:, kept])
