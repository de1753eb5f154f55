"""Calendar covariates and the seasons of a step."""

from difflib import get_close_matches

import numpy as np
import pandas as pd

from tsformer.data.store import SeriesStore
from tsformer.data.types import BoolArray, Float32Array
from tsformer.errors import ConfigError

DAY = pd.Timedelta(days=1)
YEAR = 365.25 * DAY


def step_of(freq: str) -> pd.Timedelta:
    """Return the typical length of a step: exact up to weeks, the mean of months and longer."""
    stamps = pd.date_range("2000-01-01", periods=13, freq=freq)
    return (stamps[-1] - stamps[0]) / 12


def seasonal_periods(freq: str) -> dict[str, int]:
    """Return the steps of each season that data of this freq commonly show.

    Half-hourly data give `{"daily": 48, "weekly": 336}`, monthly `{"yearly": 12}`; a freq
    without a season gives `{"last value": 1}`.
    """
    step = step_of(freq)
    if step < DAY:
        seasons = {"daily": DAY / step, "weekly": 7 * DAY / step}
    elif step < 7 * DAY:
        seasons = {"weekly": 7 * DAY / step}
    else:
        seasons = {"yearly": YEAR / step}
    whole = {name: round(steps) for name, steps in seasons.items() if round(steps) > 1}
    return whole or {"last value": 1}


def shortest_season(freq: str) -> int:
    """Return the steps of the shortest of `seasonal_periods`, which MASE is scaled by."""
    return next(iter(seasonal_periods(freq).values()))


def num_calendar_features(freq: str, holidays: str | None = None, *, yearly: bool = True) -> int:
    """Return how many features `calendar_features` gives, F."""
    step = step_of(freq)
    cycles = yearly + (step < 7 * DAY) + (step < DAY)
    return 2 * cycles + (holidays is not None)


def has_years(freq: str) -> bool:
    """Tell whether steps are clearly shorter than a year: else their place in it hardly changes."""
    return step_of(freq) < 0.9 * YEAR


def span_years(stamps: pd.DatetimeIndex) -> bool:
    """Tell whether stamps span two years, from which on a place in the year comes again."""
    return len(stamps) > 0 and stamps[-1] - stamps[0] >= 2 * YEAR - 2 * DAY


def calendar_features(
    stamps: pd.DatetimeIndex, freq: str, holidays: str | None = None, *, yearly: bool = True
) -> Float32Array:
    """Return sines and cosines of the place in the day, week and year, and holidays, (G, F).

    Only cycles longer than a step are given: 6 features below a day, 4 below a week, else 2. The
    year is given if it is asked for, see `has_years` and `span_years`.

    Args:
        stamps: local time of each step, (G,).
        freq: step, a pandas offset alias.
        yearly: give the place in the year.
        holidays: country whose public holidays are one more feature, 1 on such a day, else 0:
            its ISO 3166 code such as AU, or with a subdivision AU-VIC. None: no such feature.

    Raises:
        ConfigError: steps longer than a day do not tell holidays apart, `holidays` names no known
            place, or the package of that name is not installed.
    """
    step = step_of(freq)
    hour = stamps.hour + stamps.minute / 60 + stamps.second / 3600
    cycles = []
    if step < DAY:
        cycles.append(hour / 24)
    if step < 7 * DAY:
        cycles.append((stamps.day_of_week + hour / 24) / 7)
    if yearly:
        cycles.append((stamps.day_of_year - 1 + hour / 24) / 365.25)
    angle = 2 * np.pi * np.array(cycles).reshape(len(cycles), len(stamps))
    features = [np.sin(angle), np.cos(angle)]
    if holidays is not None:
        features.append(_are_holidays(stamps, freq, holidays)[None])
    return np.ascontiguousarray(np.concatenate(features).T, dtype=np.float32)


def _are_holidays(stamps: pd.DatetimeIndex, freq: str, place: str) -> BoolArray:
    steps = pd.date_range("2000-01-01", periods=13, freq=freq)
    if (steps[1:] - steps[:-1]).min() > DAY:  # so that business days pass
        raise ConfigError(
            f"holidays={place!r}: a holiday calendar needs steps of a day or shorter, and these "
            f"are of freq={freq!r}. Leave dataset.holidays empty."
        )
    try:
        import holidays as library  # here, as it is an extra that few need
    except ImportError as error:
        raise ConfigError(
            f"holidays={place!r} needs the package holidays: pip install 'tsformer[holidays]'"
        ) from error
    country, _, subdivision = place.partition("-")
    known = library.list_supported_countries()
    if country not in known:
        near = get_close_matches(country.upper(), known, n=5, cutoff=0.5)
        raise ConfigError(
            f"holidays={place!r}: no country {country!r} is known"
            f"{'; near to it: ' + ', '.join(near) if near else ''}. Give an ISO 3166 code such as "
            "AU, DE or US."
        )
    if subdivision and subdivision not in known[country]:
        raise ConfigError(
            f"holidays={place!r}: {country} has no subdivision {subdivision!r} that is known. "
            f"Give one of {', '.join([country, *(f'{country}-{x}' for x in known[country])])}."
        )
    days = stamps.tz_localize(None).to_numpy().astype("datetime64[D]")
    years = np.unique(stamps.year).tolist()
    public = library.country_holidays(country, subdiv=subdivision or None, years=years)
    return np.isin(days, np.array(list(public), dtype="datetime64[D]"))


def grid_features(
    store: SeriesStore, *, calendar: bool, holidays: str | None, zone: str | None, yearly: bool
) -> Float32Array:
    """Return the calendar features of each step of a store's grid, (G, K).

    Args:
        store: the series.
        calendar: give the place in the day, week and year; and holidays, if they are named.
        holidays: see `calendar_features`.
        zone: whose clock the calendar follows; None: the stamps' own. Stamps without a zone are
            taken as local time already.
        yearly: see `calendar_features`.
    """
    if not calendar:
        return np.empty((len(store.grid), 0), dtype=np.float32)
    grid = store.grid
    local = grid if grid.tz is None else grid.tz_convert(zone or store.time_zone or "UTC")
    return calendar_features(local, store.freq, holidays, yearly=yearly)
