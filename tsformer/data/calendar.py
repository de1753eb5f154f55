"""Calendar covariates and the seasons of a step."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_DAY = pd.Timedelta(days=1)


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
    if step < _DAY:
        seasons = {"daily": _DAY / step, "weekly": 7 * _DAY / step}
    elif step < 7 * _DAY:
        seasons = {"weekly": 7 * _DAY / step}
    else:
        seasons = {"yearly": pd.Timedelta(days=365.25) / step}
    whole = {name: round(steps) for name, steps in seasons.items() if round(steps) > 1}
    return whole or {"last value": 1}


def calendar_features(stamps: pd.DatetimeIndex, freq: str) -> NDArray[np.float32]:
    """Return sines and cosines of the place in the day, week and year, (G, F).

    Only cycles longer than a step are given: 6 features below a day, 4 below a week, else 2.

    Args:
        stamps: local time of each step, (G,).
        freq: step, a pandas offset alias.
    """
    step = step_of(freq)
    hour = stamps.hour + stamps.minute / 60 + stamps.second / 3600
    cycles = [(stamps.day_of_year - 1 + hour / 24) / 365.25]
    if step < 7 * _DAY:
        cycles.insert(0, (stamps.day_of_week + hour / 24) / 7)
    if step < _DAY:
        cycles.insert(0, hour / 24)
    angle = 2 * np.pi * np.stack(cycles, axis=1)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32)
