"""Forecasts by statistical models of each window's own past, where statsforecast is installed."""

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from tsformer.baselines.past import past_of
from tsformer.baselines.statistical import build, forecast_past, seasons_of
from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import IntArray
from tsformer.data.windows import WindowDataset
from tsformer.prediction.forecasting import Forecasts

METHODS = {"MSTL + AutoETS": "mstl", "AutoTheta": "auto_theta"}  # as shown, and their names
HISTORY = 1500  # steps that a model is fitted to


def is_installed() -> bool:
    """Tell whether statsforecast is there."""
    return find_spec("statsforecast") is not None


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
    store, horizon = data.store, data.config.horizon
    group, origin = part.index.locate(windows)
    series = data.groups[group]  # (B, C)
    found = np.empty((1 + len(levels), len(windows), horizon, series.shape[1]))
    for window, (members, end) in enumerate(zip(series, origin, strict=True)):
        for channel, member in enumerate(members):
            y = past_of(store, int(member), int(end), HISTORY)
            model = build(METHODS[method], seasons_of(store.freq, len(y)))
            found[:, window, :, channel] = forecast_past(model, y, horizon, levels)
    point, *quantiles = (data.scaler.scale(x, series) for x in found)
    return Forecasts(point, np.stack(quantiles, -1) if levels else point[..., None][..., :0])
