"""Forecasts by statistical models of each window's own past, where statsforecast is installed."""

import warnings
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from tsformer.data.calendar import seasonal_periods
from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import FloatArray, IntArray

METHODS = ("MSTL + AutoETS", "AutoTheta")
HISTORY = 1500  # steps that a model is fitted to


def is_installed() -> bool:
    """Tell whether statsforecast is there."""
    return find_spec("statsforecast") is not None


def build(method: str, seasons: list[int]) -> Any:
    """Return a model that has not been fitted.

    Args:
        method: `MSTL + AutoETS` forecasts what is left of the series without its seasons
            (Bandara et al. 2021; Hyndman & Khandakar 2008); `AutoTheta` knows the shortest season
            alone (Fiorucci et al. 2016).
        seasons: steps of each season.
    """
    from statsforecast.models import MSTL, AutoETS, AutoTheta

    if method == "AutoTheta":
        return AutoTheta(season_length=seasons[0] if seasons else 1)
    return MSTL(season_length=seasons) if seasons else AutoETS()


def forecast_each(data: ForecastData, method: str, windows: IntArray) -> FloatArray:
    """Fit a model to the past of each window, and forecast its horizon.

    Args:
        data: the windows.
        method: one of `METHODS`.
        windows: running numbers of test windows, (B,).

    Returns:
        Forecasts in scaled units, (B, H, C).
    """
    group, origin = data.test.index.locate(windows)
    series = data.groups[group]  # (B, C)
    horizon = data.config.horizon
    found = np.empty((len(windows), horizon, series.shape[1]))
    for window, (members, end) in enumerate(zip(series, origin, strict=True)):
        for channel, member in enumerate(members):
            found[window, :, channel] = _forecast(data, method, int(member), int(end))
    return data.scaler.scale(found, series)


def _forecast(data: ForecastData, method: str, series: int, end: int) -> FloatArray:
    store, horizon = data.store, data.config.horizon
    past = store.values(series, max(int(store.starts[series]), end - HISTORY), end)
    y = pd.Series(past).interpolate(limit_direction="both").to_numpy(float)
    periods = seasonal_periods(store.freq).values()
    seasons = [season for season in periods if 1 < season <= len(y) // 2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of searches that do not converge
        forecast: FloatArray = build(method, seasons).forecast(y=y, h=horizon)["mean"]
    return forecast
