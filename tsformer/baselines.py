"""Forecasts that a model has to beat."""

import numpy as np

from tsformer.data.table import SeriesTable
from tsformer.data.types import FloatArray, IntArray


def seasonal_naive(
    table: SeriesTable, series: IntArray, origin: IntArray, horizon: int, season: int
) -> FloatArray:
    """Repeat the last season before each window's horizon.

    Where that value is missing, the one a season earlier is taken, as often as needed.

    Args:
        table: the series, in original units.
        series: index of each window's series, (B,).
        origin: row of each window's first target step, (B,).
        horizon: steps to forecast, H.
        season: steps of a season.

    Returns:
        Forecasts, (B, H, C); NaN where the series holds no value at that point of the season.
    """
    steps = np.arange(horizon)
    seasons_back = steps // season + 1
    rows = origin[:, None] + steps - seasons_back * season  # (B, H)
    begin = table.offsets[series][:, None]

    def values_at(rows: IntArray) -> FloatArray:
        return np.where((rows >= begin)[..., None], table.target[np.maximum(rows, begin)], np.nan)

    forecast = values_at(rows)
    while (missing := np.isnan(forecast)).any() and (rows >= begin).any():
        rows = rows - season
        forecast = np.where(missing, values_at(rows), forecast)
    return forecast
