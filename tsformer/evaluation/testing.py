"""The test of a fit: errors of the model and of naive forecasts on every test window."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from tsformer.baselines.naive import naive_seasons, seasonal_naive
from tsformer.data.calendar import shortest_season
from tsformer.data.forecast_data import ForecastData
from tsformer.data.sampling import BatchSampler
from tsformer.data.types import BoolArray, FloatArray, IntArray
from tsformer.metrics import (
    Errors,
    ErrorSums,
    QuantileErrors,
    QuantileSums,
    central_intervals,
    seasonal_naive_error,
)
from tsformer.model.fitted import FittedModel
from tsformer.prediction.forecasting import forecast_windows
from tsformer.prediction.history import WindowForecasts, by_series

MODEL = "tsformer"


class Evaluation(NamedTuple):
    """Errors of one method on every test window.

    Attributes:
        scaled: in units of the scaler.
        original: in units of the table.
        quantiles: of the quantiles that the model is configured for, in units of the table; None
                of a method that gives only point forecasts.
        model_scaled: of another method: the model's errors on the steps that the method forecasts,
            in units of the scaler, as a naive forecast has none where a series is too young.
    """

    scaled: Errors
    original: Errors
    quantiles: QuantileErrors | None = None
    model_scaled: Errors | None = None

    def of(self, members: BoolArray) -> "Evaluation":
        """Return the errors of some channels of some groups alone, given which, (N, C)."""
        quantiles = None if self.quantiles is None else self.quantiles.of(members)
        model = None if self.model_scaled is None else self.model_scaled.of(members)
        return Evaluation(self.scaled.of(members), self.original.of(members), quantiles, model)

    def improvement(self) -> float:
        """Return by which part the model's scaled MAE is below, on the steps that both forecast.

        NaN of the model itself, and where there is no error to be below.
        """
        theirs = self.scaled.mae()
        if self.model_scaled is None or not theirs > 0:
            return float("nan")
        return 1 - self.model_scaled.mae() / theirs


def evaluate(data: ForecastData, model: FittedModel) -> dict[str, Evaluation]:
    """Forecast every test window with the model and the seasonal naive forecasts.

    Args:
        data: the table and its windows.
        model: fitted to the same table.

    Returns:
        Errors by method, the model's first.
    """
    sizes = (len(data.groups), data.config.horizon, data.groups.shape[1])
    sums = {method: (ErrorSums(*sizes), ErrorSums(*sizes)) for method in methods(data)}
    model_sums = {method: ErrorSums(*sizes) for method in sums if method != MODEL}
    quantile_sums = QuantileSums(sizes[0], sizes[2], data.config.model.quantiles)
    for windows in BatchSampler(data.test.index, data.config.eval_batch_size, shuffle=False):
        group, origin = data.test.index.locate(windows)
        series = data.groups[group]  # (B, C)
        positions = (origin[:, None] + np.arange(data.config.horizon))[:, :, None]
        truth = data.store.at(series[:, None], positions)  # (B, H, C)
        scaled_truth = data.scaler.scale(truth, series)
        points, quantiles = forecast_test(data, model, windows)
        if model.is_probabilistic:
            _add(quantile_sums, quantiles, truth, group)
        scaled = {method: data.scaler.scale(point, series) for method, point in points.items()}
        for method, point in points.items():
            _add(sums[method][0], scaled[method], scaled_truth, group)
            _add(sums[method][1], point, truth, group)
        for method, errors in model_sums.items():
            common = np.where(np.isnan(scaled[method]), np.nan, scaled[MODEL])
            _add(errors, common, scaled_truth, group)
    evaluations = {
        method: Evaluation(scaled.compute(), original.compute())
        for method, (scaled, original) in sums.items()
    }
    for method, errors in model_sums.items():
        evaluations[method] = evaluations[method]._replace(model_scaled=errors.compute())
    if model.is_probabilistic:
        evaluations[MODEL] = evaluations[MODEL]._replace(quantiles=quantile_sums.compute())
    return evaluations


def methods(data: ForecastData) -> list[str]:
    """Return the names of the methods that are tested, the model's first."""
    return [MODEL, *naive_seasons(data.store.freq)]


def forecast_test(
    data: ForecastData, model: FittedModel, windows: IntArray
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Forecast test windows.

    Args:
        data: the table and its windows.
        model: fitted to the same table.
        windows: running numbers of test windows, (B,).

    Returns:
        Points by method, (B, H, C), and the model's quantiles at the configured levels,
        (B, H, C, Q), without any level of a model that forecasts points; in units of the table.
    """
    group, origin = data.test.index.locate(windows)
    series = data.groups[group]  # (B, C)
    levels = data.config.model.quantiles if model.is_probabilistic else ()
    point, quantiles = forecast_windows(model.network, data.test[windows], levels)
    if model.conformal is not None:
        quantiles = model.conformal.apply(quantiles, group)
    points = {MODEL: data.scaler.unscale(point, series)}
    for name, season in naive_seasons(data.store.freq).items():
        points[name] = seasonal_naive(data.store, series, origin, data.config.horizon, season)
    parts = [data.scaler.unscale(part, series) for part in np.moveaxis(quantiles, -1, 0)]
    return points, np.stack(parts, axis=-1) if parts else quantiles


def forecast_some(data: ForecastData, model: FittedModel, windows: IntArray) -> WindowForecasts:
    """Forecast test windows, and return the forecasts by column; see `forecast_test`."""
    parts, batch_size = [], data.config.eval_batch_size
    for begin in range(0, len(windows), batch_size):
        numbers = windows[begin : begin + batch_size]
        points, quantiles = forecast_test(data, model, numbers)
        columns = dict(points)
        for level, values in zip(
            data.config.model.quantiles, np.moveaxis(quantiles, -1, 0), strict=False
        ):
            columns[f"{MODEL}-q-{level:g}"] = values
        group, origin = data.test.index.locate(numbers)
        stacked = np.stack([*columns.values()], axis=-1)  # (B, H, C, columns)
        parts.append(by_series(data.groups[group], origin, stacked, list(columns)))
    return WindowForecasts(
        np.concatenate([part.series for part in parts]),
        np.concatenate([part.origins for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
    )


def _add(
    errors: ErrorSums | QuantileSums, forecast: FloatArray, truth: FloatArray, group: IntArray
) -> None:
    """Add a batch, (B, H, C) or (B, H, C, Q), where truth (B, H, C) and forecast are there."""
    missing = np.isnan(truth)
    missing |= np.isnan(forecast).reshape(*truth.shape, -1).any(axis=-1)
    arrays = (np.nan_to_num(forecast), np.nan_to_num(truth), ~missing, group)
    errors.update(*map(torch.from_numpy, arrays))


def test_metrics(
    data: ForecastData, evaluations: Mapping[str, Evaluation]
) -> dict[str, dict[str, float]]:
    """Return MAE, RMSE and MASE in original units, and MAE and MSE in scaled ones, by method.

    They are of all steps that the method forecasts. Of other methods than the model there is
    `improvement` too; see `Evaluation`. MASE is scaled by the in-sample error of the shortest
    season (Hyndman & Koehler 2006).
    """
    return _metrics(evaluations, naive_error(data))


def target_metrics(
    data: ForecastData, evaluations: Mapping[str, Evaluation]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return `test_metrics` of each target column of a long table that has several.

    Their units may differ, and figures over all of them say little.
    """
    if not data.store.has_target_columns:
        return {}
    target = data.groups % data.store.num_targets  # (N, C)
    unit = naive_error(data)
    return {
        name: _metrics(
            {method: evaluation.of(target == number) for method, evaluation in evaluations.items()},
            unit,
        )
        for number, name in enumerate(data.store.targets)
    }


def naive_error(data: ForecastData) -> FloatArray:
    """Return the in-sample error of the shortest season, the unit of MASE, (N, C)."""
    season = shortest_season(data.store.freq)
    return seasonal_naive_error(data.store, data.train_end, season)[data.groups]


def _metrics(
    evaluations: Mapping[str, Evaluation], naive_error: FloatArray
) -> dict[str, dict[str, float]]:
    return {
        method: {
            "mae": errors.original.mae(),
            "rmse": errors.original.mse() ** 0.5,
            "mase": errors.original.mase(naive_error),
            "scaled_mae": errors.scaled.mae(),
            "scaled_mse": errors.scaled.mse(),
            **({} if errors.model_scaled is None else {"improvement": errors.improvement()}),
        }
        for method, errors in evaluations.items()
    }


def quantile_metrics(evaluations: Mapping[str, Evaluation]) -> dict[str, dict[str, Any]]:
    """Return scaled CRPS, mean pinball loss, and coverage and width of intervals, by method."""
    return {
        method: {
            "scaled_crps": errors.scaled_crps(),
            "pinball": errors.mean_pinball(),
            "coverage": {f"{p:g}": errors.coverage(p) for p in central_intervals(errors.levels)},
            "width": {f"{p:g}": errors.width(p) for p in central_intervals(errors.levels)},
        }
        for method, evaluation in evaluations.items()
        if (errors := evaluation.quantiles) is not None
    }
