"""Forecasts by statistical models of each window's own past, where statsforecast is installed."""

import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from tsformer.data.calendar import seasonal_periods
from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import FloatArray, IntArray
from tsformer.data.windows import WindowDataset
from tsformer.forecasting import Forecasts

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


def forecast_each(
    data: ForecastData,
    method: str,
    part: WindowDataset,
    windows: IntArray,
    levels: Sequence[float] = (),
) -> Forecasts:
    """Fit a model to the past of each window, and forecast its horizon, in scaled units.

    Args:
        data: the series.
        method: one of `METHODS`.
        part: `data.test`, or another.
        windows: running numbers of windows of the part, (B,).
        levels: of the quantiles that the model's own prediction intervals end at, (Q,).
    """
    group, origin = part.index.locate(windows)
    series = data.groups[group]  # (B, C)
    found = np.empty((1 + len(levels), len(windows), data.config.horizon, series.shape[1]))
    for window, (members, end) in enumerate(zip(series, origin, strict=True)):
        for channel, member in enumerate(members):
            found[:, window, :, channel] = _forecast(data, method, int(member), int(end), levels)
    point, *quantiles = (data.scaler.scale(x, series) for x in found)
    return Forecasts(point, np.stack(quantiles, -1) if levels else point[..., None][..., :0])


def _forecast(
    data: ForecastData, method: str, series: int, end: int, levels: Sequence[float]
) -> FloatArray:
    """Return mean and quantiles, (1+Q, H)."""
    store, horizon = data.store, data.config.horizon
    past = store.values(series, max(int(store.starts[series]), end - HISTORY), end)
    y = pd.Series(past).interpolate(limit_direction="both").to_numpy(float)
    periods = seasonal_periods(store.freq).values()
    seasons = [season for season in periods if 1 < season <= len(y) // 2]
    return forecast_past(build(method, seasons), y, horizon, levels)


def forecast_past(model: Any, y: FloatArray, horizon: int, levels: Sequence[float]) -> FloatArray:
    """Return mean and quantiles of what follows `y`, (1+Q, H)."""
    names = [quantile_name(level) for level in levels]
    percents = sorted({percent for _, percent in names if percent})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of searches that do not converge
        found = model.forecast(y=y, h=horizon, level=percents or None)
    quantiles = [found[f"{end}-{percent}" if percent else "mean"] for end, percent in names]
    return np.stack([found["mean"], *quantiles])


def quantile_name(level: float) -> tuple[str, float]:
    """Return of which central interval, in percent, a quantile is which end: `lo`, 90 of 0.05.

    The median is of an interval of 0 %, and taken to be the mean.
    """
    percent = round(100 * abs(1 - 2 * level), 6)
    return "lo" if level < 0.5 else "hi", int(percent) if percent.is_integer() else percent
