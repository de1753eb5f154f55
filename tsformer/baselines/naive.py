"""Forecasts that repeat the past."""

import numpy as np

from tsformer.data.calendar import seasonal_periods
from tsformer.data.store import SeriesStore
from tsformer.data.types import FloatArray, IntArray


def naive_seasons(freq: str) -> dict[str, int]:
    """Return the steps of the season that each seasonal naive forecast repeats, by its name."""
    return {f"seasonal naive ({name})": n for name, n in seasonal_periods(freq).items()}


def seasonal_naive(
    store: SeriesStore, series: IntArray, origin: IntArray, horizon: int, season: int
) -> FloatArray:
    """Repeat the last season before each window's horizon.

    Where that value is missing, the one a season earlier is taken, as often as needed.

    Args:
        store: the series.
        series: index of the series that each window forecasts together, (B, C).
        origin: grid position of each window's first target step, (B,).
        horizon: steps to forecast, H.
        season: steps of a season.

    Returns:
        Forecasts in original units, (B, H, C); NaN where the series holds no value at that point
        of the season.
    """
    steps = np.arange(horizon)
    seasons_back = steps // season + 1
    positions = (origin[:, None] + steps - seasons_back * season)[:, :, None]  # (B, H, 1)
    series = series[:, None, :]
    forecast = store.at(series, positions)
    while (missing := np.isnan(forecast)).any() and (positions >= store.starts[series]).any():
        positions = positions - season
        forecast = np.where(missing, store.at(series, positions), forecast)
    return forecast
