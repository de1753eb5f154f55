import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.frames import store_of
from tsformer.data.calendar import (
    calendar_features,
    grid_features,
    has_years,
    num_calendar_features,
    seasonal_periods,
    span_years,
    step_of,
)
from tsformer.errors import ConfigError


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
    assert num_calendar_features(freq) == count
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


@pytest.mark.parametrize("freq", ["h", "D", "W", "MS"])
def test_the_place_in_the_year_may_be_left_out(freq):
    stamps = pd.date_range("2024-01-01", periods=60, freq=freq)
    whole, own = calendar_features(stamps, freq), calendar_features(stamps, freq, yearly=False)
    half = whole.shape[1] // 2
    kept = [*range(half - 1), *range(half, 2 * half - 1)]
    np.testing.assert_array_equal(own, whole[:, kept])
    assert own.shape[1] == num_calendar_features(freq, yearly=False)


@pytest.mark.parametrize(
    ("begin", "end", "expected"),
    [
        ("2022-01-01", "2023-12-31", True),
        ("2022-01-01", "2023-12-01", False),
        ("2024-01-01", "2024-01-01", False),
        ("2000-01-01", "2020-01-01", True),
    ],
)
def test_two_years_are_needed_for_a_place_in_the_year(begin, end, expected):
    assert span_years(pd.date_range(begin, end, freq="MS" if end[8:] == "01" else "D")) is expected
    assert not span_years(pd.DatetimeIndex([]))


@pytest.mark.parametrize(
    ("freq", "expected"),
    [("h", True), ("W", True), ("QS", True), ("6MS", True), ("YE", False), ("2YS", False)],
)
def test_steps_of_a_year_have_no_place_in_it(freq, expected):
    assert has_years(freq) is expected


@pytest.mark.parametrize("freq", ["D", "W"])
def test_days_and_weeks_keep_the_cycles_they_have(freq):
    stamps = pd.date_range("2024-01-01", periods=60, freq=freq)
    hourly, own = calendar_features(stamps, "h"), calendar_features(stamps, freq)
    kept = {"D": [1, 2, 4, 5], "W": [2, 5]}[freq]
    np.testing.assert_array_equal(own, hourly[:, kept])


# Holidays


def holidays_of(stamps: pd.DatetimeIndex, place: str, freq: str = "h") -> np.ndarray:
    """The feature, after checking that it comes behind the others and leaves them as they are."""
    features = calendar_features(stamps, freq, place)
    assert features.dtype == np.float32
    assert features.shape == (len(stamps), num_calendar_features(freq, place))
    np.testing.assert_array_equal(features[:, :-1], calendar_features(stamps, freq))
    assert set(features[:, -1]) <= {0, 1}
    return features[:, -1] == 1


VICTORIA_2024 = [
    "2024-01-01",  # New Year's Day
    "2024-01-26",  # Australia Day
    "2024-03-11",  # Labour Day, in Victoria on this day only
    "2024-03-29",  # Good Friday
    "2024-03-30",
    "2024-03-31",
    "2024-04-01",  # Easter Monday
    "2024-04-25",  # ANZAC Day
    "2024-06-10",  # King's Birthday
    "2024-09-27",  # Friday before the AFL Grand Final, in Victoria only
    "2024-11-05",  # Melbourne Cup, in Victoria only
    "2024-12-25",
    "2024-12-26",
]


def test_days_of_a_year_in_a_subdivision():
    days = pd.date_range("2024-01-01", "2024-12-31", freq="D")
    found = days[holidays_of(days, "AU-VIC", "D")]
    assert found.equals(pd.DatetimeIndex(VICTORIA_2024))


def test_a_country_alone_has_the_days_that_all_of_it_shares():
    days = pd.date_range("2024-01-01", "2024-12-31", freq="D")
    country, victoria = (holidays_of(days, place, "D") for place in ("AU", "AU-VIC"))
    assert 0 < country.sum() < victoria.sum()
    assert not (country & ~victoria).any()


def test_all_hours_of_a_holiday_and_no_other_count():
    hours = pd.date_range("2023-12-30 07:00", "2024-01-02 05:00", freq="h")
    days = pd.Series(hours.date.astype(str))
    assert holidays_of(hours, "AU").tolist() == (days == "2024-01-01").tolist()


def test_the_local_date_counts():
    utc = pd.date_range("2024-01-25 11:00", periods=4, freq="h", tz="UTC")
    melbourne = utc.tz_convert("Australia/Melbourne")  # from 22:00 on
    assert holidays_of(melbourne, "AU").tolist() == [False, False, True, True]
    assert not holidays_of(utc, "AU").any()


@given(
    st.lists(st.datetimes(pd.Timestamp("1950-01-01"), pd.Timestamp("2050-01-01")), max_size=6),
    st.sampled_from(["AU-VIC", "US", "DE-BY", "CN", "JP"]),
    st.sampled_from(["s", "us", "ns"]),
)
def test_each_stamp_is_looked_up_by_its_day(moments, place, unit):
    import holidays

    calendar = holidays.country_holidays(place[:2], subdiv=place[3:] or None)
    stamps = pd.DatetimeIndex(moments).as_unit(unit)
    assert holidays_of(stamps, place).tolist() == [moment.date() in calendar for moment in moments]


def test_business_days_are_days():
    days = pd.date_range("2024-12-20", periods=6, freq="B")
    assert holidays_of(days, "DE", "B").tolist() == [False] * 3 + [True] * 2 + [False]


def refusal(place: str, freq: str = "D") -> str:
    with pytest.raises(ConfigError) as error:
        calendar_features(pd.date_range("2024-01-01", periods=3, freq=freq), freq, place)
    return str(error.value)


@pytest.mark.parametrize("freq", ["36h", "2D", "W", "MS", "QS", "YS"])
def test_steps_longer_than_a_day_have_no_holidays(freq):
    message = refusal("AU", freq)
    for word in ("'AU'", "steps of a day or shorter", freq, "dataset.holidays"):
        assert word in message


@pytest.mark.parametrize("place", ["au", "UA1", "AUX-VIC"])
def test_unknown_countries_are_told_with_those_that_are_near(place):
    message = refusal(place)
    assert f"no country {place.partition('-')[0]!r} is known; near to it: " in message
    assert {"au": " AU", "UA1": " UA", "AUX-VIC": " AU"}[place] in message
    assert "ISO 3166" in message


@pytest.mark.parametrize("place", ["", "-VIC", "?"])
def test_what_is_near_to_no_country_is_told(place):
    assert "is known. Give an ISO 3166 code such as AU" in refusal(place)


def test_unknown_subdivisions_are_told_with_those_that_are_known():
    message = refusal("AU-BY")
    assert "AU has no subdivision 'BY'" in message
    assert "Give one of AU, AU-ACT, AU-NSW, " in message
    assert "Give one of SG." in refusal("SG-X")


def test_without_the_package_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "holidays", None)
    assert "pip install 'tsformer[holidays]'" in refusal("AU")


def test_the_package_is_imported_only_when_asked_for():
    code = """
import sys
import pandas as pd
from tsformer.data.calendar import calendar_features
for holidays in (None, "AU"):
    calendar_features(pd.DatetimeIndex(["2024-01-01"]), "h", holidays)
    print("holidays" in sys.modules)
"""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert output.split() == ["False", "True"]


# Of a store


def features_of(stamps: pd.DatetimeIndex, zone: str | None = None, **options) -> np.ndarray:
    frame = pd.DataFrame({"ds": stamps, "y": np.arange(len(stamps))})
    options = {"calendar": True, "holidays": None, "yearly": True, **options}
    return grid_features(store_of(frame), zone=zone, **options)


def test_naive_stamps_are_their_own_clock():
    hours = pd.date_range("2024-01-01", periods=50, freq="h")
    np.testing.assert_array_equal(features_of(hours), calendar_features(hours, "h"))
    np.testing.assert_array_equal(features_of(hours, "Asia/Tokyo"), calendar_features(hours, "h"))


def test_a_calendar_may_be_left_out():
    hours = pd.date_range("2024-01-01", periods=50, freq="h")
    assert features_of(hours, calendar=False).shape == (50, 0)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_calendar_follows_the_local_clock_across_its_change(zone):
    local = pd.date_range("2024-01-01", periods=366 * 24, freq="h", tz=zone)
    wall_clock = calendar_features(local.tz_localize(None), "h")
    np.testing.assert_array_equal(features_of(local.tz_convert("UTC"), zone), wall_clock)
    # What the clock shows is not a fixed shift of UTC.
    utc = features_of(local.tz_convert("UTC"))
    assert not np.allclose(utc[5:], wall_clock[:-5], atol=0.1)
    assert not np.allclose(utc, wall_clock, atol=0.1)


@pytest.mark.parametrize(("freq", "count"), [("h", 48), ("D", 12)])
def test_calendar_of_zoned_stamps_is_that_of_their_zone(freq, count):
    local = pd.date_range("2024-03-25", periods=count, freq=freq, tz="Europe/Berlin")
    expected = calendar_features(local.tz_localize(None), freq)
    np.testing.assert_array_equal(features_of(local), expected)


def test_holidays_follow_the_local_date():
    local = pd.date_range("2024-12-24", periods=72, freq="h", tz="Australia/Melbourne")
    found = features_of(local.tz_convert("UTC"), "Australia/Melbourne", holidays="AU-VIC")
    assert found[:, -1].tolist() == [0.0] * 24 + [1.0] * 48  # Christmas, Boxing Day
