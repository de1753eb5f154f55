"""How each task of the benchmark of accuracy is done: ours, and what it is compared with."""

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from tsformer.baselines.naive import seasonal_naive
from tsformer.benchmarks.accuracy_plan import FEW, levels_of
from tsformer.benchmarks.linear import RECIPES, TRAINING, train_linear
from tsformer.benchmarks.statistical import METHODS, forecast_each
from tsformer.data.calendar import seasonal_periods
from tsformer.data.catalog import load_data
from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import FloatArray, IntArray
from tsformer.data.windows import WindowDataset
from tsformer.evaluation.testing import MODEL
from tsformer.forecaster import Forecaster
from tsformer.metrics import ErrorSums, QuantileErrors, QuantileSums, central_intervals
from tsformer.model import conformal
from tsformer.prediction.forecasting import Forecasts, forecast_windows
from tsformer.training import fit

INTERVAL = 0.9  # nominal coverage of the interval that is shown
_AT_ONCE = 1024  # windows

# From windows of the validation or test part to forecasts in scaled units: points, (B, H, C), and
# these with quantiles.
PointForecast = Callable[[WindowDataset, IntArray], FloatArray]
Forecast = Callable[[WindowDataset, IntArray], Forecasts]


class Score(NamedTuple):
    """Errors of one method on the test windows, and what they cost.

    Attributes:
        metrics: `mse` and `mae` in scaled units; where there are quantiles, `scaled_crps`, and
            `coverage` if they have the interval of 90 %, both in units of the table.
        minutes: of training.
        windows: how many.
    """

    metrics: dict[str, float]
    minutes: float
    windows: int


def fit_ours(settings: dict[str, Any]) -> dict[str, Score]:
    """Fit, and take the test figures that the fit reports; and those of a few windows."""
    levels = levels_of(settings)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        metrics = fit({**settings, "paths": {**settings["paths"], "run": str(run)}}).metrics
        forecaster = Forecaster.load(run / "model")
    test, minutes = metrics["test"][MODEL], metrics["train_seconds"] / 60
    figures = {"mse": test["scaled_mse"], "mae": test["scaled_mae"]}
    if levels:
        told = metrics["test_quantiles"][MODEL]
        figures["scaled_crps"] = told["scaled_crps"]
        if (nominal := f"{INTERVAL:g}") in told["coverage"]:
            figures["coverage"] = told["coverage"][nominal]
    data = ForecastData(*load_data(settings))

    def forecast(part: WindowDataset, windows: IntArray) -> Forecasts:
        found = forecast_windows(forecaster.network, part[windows], levels)
        if forecaster.conformal is None:
            return found
        group, _ = part.index.locate(windows)
        return found._replace(quantiles=forecaster.conformal.apply(found.quantiles, group))

    few = few_windows(data)
    on_few = score_windows(data, forecast, few, levels)
    return {
        _label(MODEL, few, data): Score(on_few, 0.0, len(few)),
        MODEL: Score(figures, minutes, metrics["test_windows"]),
    }


def score_naive(settings: dict[str, Any]) -> dict[str, Score]:
    """Repeat the last value, and the last season of each length."""
    data, levels = ForecastData(*load_data(settings)), levels_of(settings)
    seasons = {f"seasonal naive ({k})": n for k, n in seasonal_periods(data.store.freq).items()}

    def forecast(season: int, part: WindowDataset, windows: IntArray) -> FloatArray:
        group, origin = part.index.locate(windows)
        series = data.groups[group]
        repeated = seasonal_naive(data.store, series, origin, data.config.horizon, season)
        return data.scaler.scale(repeated, series)

    def score(season: int) -> Score:
        quantiles = with_quantiles(data, partial(forecast, season), levels)
        return Score(score_windows(data, quantiles, levels=levels), 0.0, len(data.test))

    return {
        name: score(season)
        for name, season in {"repeat last": 1, **seasons}.items()
        if name == "repeat last" or season > 1
    }


def score_linear(name: str, settings: dict[str, Any]) -> dict[str, Score]:
    """Train one of the linear baselines."""
    data, levels = ForecastData(*load_data(settings)), levels_of(settings)
    began = time.perf_counter()
    model = train_linear(RECIPES[name], data, seed=data.config.seed, **TRAINING)
    minutes = (time.perf_counter() - began) / 60

    def forecast(part: WindowDataset, windows: IntArray) -> FloatArray:
        batch = part[windows]
        with torch.inference_mode():
            found: FloatArray = model(batch.context, batch.observed).double().numpy()
        return found

    metrics = score_windows(data, with_quantiles(data, forecast, levels), levels=levels)
    return {name: Score(metrics, minutes, len(data.test))}


def score_statistical(name: str, settings: dict[str, Any]) -> dict[str, Score]:
    """Fit a statistical model to the past of each of a few windows."""
    data, levels = ForecastData(*load_data(settings)), levels_of(settings)
    few = few_windows(data)
    began = time.perf_counter()

    def forecast(part: WindowDataset, windows: IntArray) -> Forecasts:
        return forecast_each(data, name, part, windows, levels)

    metrics = score_windows(data, forecast, few, levels)
    minutes = (time.perf_counter() - began) / 60
    return {_label(name, few, data): Score(metrics, minutes, len(few))}


def few_windows(data: ForecastData) -> IntArray:
    """Return the running numbers of `FEW` test windows, or of all if there are no more."""
    return np.unique(np.linspace(0, len(data.test) - 1, FEW).astype(np.int64))


def _label(method: str, few: IntArray, data: ForecastData) -> str:
    return method if len(few) == len(data.test) else f"{method}, {len(few)} windows"


def with_quantiles(
    data: ForecastData, forecast: PointForecast, levels: Sequence[float]
) -> Forecast:
    """Give point forecasts the quantiles that their errors on validation windows ask for.

    This is what `conformal=true` does to a point forecast of ours.
    """
    if not levels:
        return lambda part, windows: _points(forecast(part, windows))
    batches = conformal.calibration_batches(
        data.validation,
        lambda windows, _: forecast(data.validation, windows),
        data.config.horizon * data.groups.shape[1],
        _AT_ONCE,
    )
    offsets = conformal.calibrate(batches, len(data.groups), levels)

    def calibrated(part: WindowDataset, windows: IntArray) -> Forecasts:
        found, (group, _) = forecast(part, windows), part.index.locate(windows)
        return Forecasts(found, offsets.apply(found, group))

    return calibrated


def _points(point: FloatArray) -> Forecasts:
    return Forecasts(point, np.empty((*point.shape, 0)))


def score_windows(
    data: ForecastData,
    forecast: Forecast,
    windows: IntArray | None = None,
    levels: Sequence[float] = (),
) -> dict[str, float]:
    """Return errors over test windows; see `Score`.

    Args:
        data: the windows.
        forecast: where its points are NaN nothing counts.
        windows: running numbers of those that count; None: all.
        levels: of the quantiles, if there are some, rising, (Q,).
    """
    sizes = (len(data.groups), data.config.horizon, data.groups.shape[1])
    sums, quantile_sums = ErrorSums(*sizes), QuantileSums(sizes[0], sizes[2], levels)
    picked = np.arange(len(data.test)) if windows is None else windows
    for begin in range(0, len(picked), _AT_ONCE):
        part = picked[begin : begin + _AT_ONCE]
        batch = data.test[part]
        point, quantiles = forecast(data.test, part)
        seen = batch.target_observed & ~torch.from_numpy(np.isnan(point))
        sums.update(torch.from_numpy(np.nan_to_num(point)), batch.target, seen, batch.series)
        if levels:
            series = data.groups[batch.series.numpy()]  # (B, C)
            truth, *rising = (
                torch.from_numpy(data.scaler.unscale(x, series))
                for x in (batch.target.double().numpy(), *np.moveaxis(quantiles, -1, 0))
            )
            quantile_sums.update(torch.stack(rising, dim=-1), truth, seen, batch.series)
    errors = sums.compute()
    metrics = {"mse": errors.mse(), "mae": errors.mae()}
    return metrics | (_quantile_metrics(quantile_sums.compute()) if levels else {})


def _quantile_metrics(errors: QuantileErrors) -> dict[str, float]:
    metrics = {"scaled_crps": errors.scaled_crps()}
    if INTERVAL in central_intervals(errors.levels):
        metrics["coverage"] = errors.coverage(INTERVAL)
    return metrics


RUNNERS: dict[str, Callable[[dict[str, Any]], dict[str, Score]]] = {
    MODEL: fit_ours,
    "naive": score_naive,
    **{name: partial(score_linear, name) for name in RECIPES},
    **{name: partial(score_statistical, name) for name in METHODS},
}
