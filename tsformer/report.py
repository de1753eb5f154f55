"""What a fit tells at its end: test figures beside the baselines, and pictures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tsformer.baselines import seasonal_naive
from tsformer.data.calendar import seasonal_periods, step_of
from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import BoolArray, FloatArray, IntArray
from tsformer.data.windows import BatchSampler
from tsformer.forecaster import Forecaster
from tsformer.forecasting import Forecasts, forecast_windows
from tsformer.loggers import CURVES
from tsformer.metrics import (
    Errors,
    ErrorSums,
    QuantileErrors,
    QuantileSums,
    central_intervals,
    interval_ends,
    seasonal_naive_error,
)
from tsformer.plots import (
    plot_calibration,
    plot_error_by_horizon,
    plot_forecast,
    plot_training,
)

MODEL = "tsformer"
_NUM_PICTURED = 4
_NUM_INTERVALS = 2  # the widest


class Evaluation(NamedTuple):
    """Errors of one method on every test window.

    Attributes:
        scaled: in units of the scaler.
        original: in units of the table.
        quantiles: of the quantiles that the model is configured for, in units of the table; None
            of a method that forecasts points alone.
    """

    scaled: Errors
    original: Errors
    quantiles: QuantileErrors | None = None

    def of(self, members: BoolArray) -> "Evaluation":
        """Return the errors of some channels of some groups alone, given which, (N, C)."""
        quantiles = None if self.quantiles is None else self.quantiles.of(members)
        return Evaluation(self.scaled.of(members), self.original.of(members), quantiles)


def evaluate(
    data: ForecastData, forecaster: Forecaster, batch_size: int = 1024
) -> dict[str, Evaluation]:
    """Forecast every test window with the model and the seasonal naive forecasts.

    Args:
        data: the table and its windows.
        forecaster: fitted to the same table.
        batch_size: windows forecast at once.

    Returns:
        Errors by method, the model's first.
    """
    sizes = (len(data.groups), data.config.horizon, data.groups.shape[1])
    seasons = seasonal_periods(data.store.freq)
    methods = [MODEL, *(f"seasonal naive ({name})" for name in seasons)]
    sums = {method: (ErrorSums(*sizes), ErrorSums(*sizes)) for method in methods}
    quantile_sums = QuantileSums(*sizes, data.config.model.quantiles)
    for windows in BatchSampler(data.test.index, batch_size, shuffle=False):
        group, origin = data.test.index.locate(windows)
        series = data.groups[group]  # (B, C)
        positions = (origin[:, None] + np.arange(data.config.horizon))[:, :, None]
        truth = data.store.at(series[:, None], positions)  # (B, H, C)
        scaled_truth = data.scaler.scale(truth, series)
        for method, season in zip(methods, [None, *seasons.values()], strict=True):
            if season is None:
                point, quantiles = _forecast(data, forecaster, windows)
                scaled, original = point, data.scaler.unscale(point, series)
                if forecaster.is_probabilistic:
                    _add(quantile_sums, _unscaled(data, quantiles, series), truth, group)
            else:
                original = seasonal_naive(data.store, series, origin, data.config.horizon, season)
                scaled = data.scaler.scale(original, series)
            _add(sums[method][0], scaled, scaled_truth, group)
            _add(sums[method][1], original, truth, group)
    evaluations = {
        method: Evaluation(scaled.compute(), original.compute())
        for method, (scaled, original) in sums.items()
    }
    if forecaster.is_probabilistic:
        evaluations[MODEL] = evaluations[MODEL]._replace(quantiles=quantile_sums.compute())
    return evaluations


def _forecast(data: ForecastData, forecaster: Forecaster, windows: IntArray) -> Forecasts:
    """Forecast test windows, with the configured quantiles if the model has some."""
    levels = data.config.model.quantiles if forecaster.is_probabilistic else ()
    forecasts = forecast_windows(forecaster.network, data.test[windows], levels)
    if forecaster.conformal is None:
        return forecasts
    group, _ = data.test.index.locate(windows)
    return forecasts._replace(quantiles=forecaster.conformal.apply(forecasts.quantiles, group))


def _unscaled(data: ForecastData, quantiles: FloatArray, series: IntArray) -> FloatArray:
    """Return quantiles (B, H, C, Q) of series (B, C) in units of the table."""
    parts = [data.scaler.unscale(part, series) for part in np.moveaxis(quantiles, -1, 0)]
    return np.stack(parts, axis=-1)


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

    MASE is scaled by the in-sample error of the shortest season (Hyndman & Koehler 2006).
    """
    return _metrics(evaluations, _naive_error(data))


def target_metrics(
    data: ForecastData, evaluations: Mapping[str, Evaluation]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return `test_metrics` of each target column of a long table that has several.

    Their units may differ, and figures over all of them say little.
    """
    if not data.store.has_target_columns:
        return {}
    target = data.groups % data.store.num_targets  # (N, C)
    naive_error = _naive_error(data)
    return {
        name: _metrics(
            {method: evaluation.of(target == number) for method, evaluation in evaluations.items()},
            naive_error,
        )
        for number, name in enumerate(data.store.targets)
    }


def _naive_error(data: ForecastData) -> FloatArray:
    season = next(iter(seasonal_periods(data.store.freq).values()))
    return seasonal_naive_error(data.store, data.train_end, season)[data.groups]


def _metrics(
    evaluations: Mapping[str, Evaluation], naive_error: FloatArray
) -> dict[str, dict[str, float]]:
    return {
        method: {
            "mae": original.mae(),
            "rmse": original.mse() ** 0.5,
            "mase": original.mase(naive_error),
            "scaled_mae": scaled.mae(),
            "scaled_mse": scaled.mse(),
        }
        for method, (scaled, original, _) in evaluations.items()
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
        for method, (_, _, errors) in evaluations.items()
        if errors is not None
    }


def metrics_table(
    data: ForecastData, metrics: Mapping[str, Mapping[str, float]], target: str | None = None
) -> Table:
    """Return the test figures as a table for the terminal.

    (z) marks scaled units; the last column says by how much the forecaster's MAE (z) is below.
    """
    title = f"Test: {len(data.test):,} windows of {data.config.horizon} steps"
    if target is not None:
        title += f", target {target}"
    if data.config.dataset.unit:
        title += f", MAE and RMSE in {data.config.dataset.unit}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("MAE", "RMSE", "MASE", "MAE (z)", "MSE (z)", "MAE cut"):
        table.add_column(name, justify="right", no_wrap=True)
    ours = metrics[MODEL]["scaled_mae"]  # series of different units count alike
    for method, row in metrics.items():
        theirs = row["scaled_mae"]
        cut = "" if method == MODEL or not theirs > 0 else f"{1 - ours / theirs:.1%}"
        table.add_row(method, *(f"{value:,.4g}" for value in row.values()), cut)
    return table


def coverage_table(
    data: ForecastData, evaluations: Mapping[str, Evaluation], target: str | None = None
) -> Table:
    """Return how often intervals hold the truth, as a table for the terminal.

    Args:
        data: the table and its windows.
        evaluations: errors by method; those without quantiles are left out.
        target: column that it tells of, where there are several.
    """
    title = f"Intervals: {len(data.test):,} test windows"
    if target is not None:
        title += f", target {target}"
        number = data.store.targets.index(target)
        members = data.groups % data.store.num_targets == number  # (N, C)
        evaluations = {name: evaluation.of(members) for name, evaluation in evaluations.items()}
    if data.config.dataset.unit:
        title += f", mean width in {data.config.dataset.unit}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("Nominal", "Covered", "Width", "Scaled CRPS"):
        table.add_column(name, justify="right", no_wrap=True)
    for method, (_, _, errors) in evaluations.items():
        if errors is None:
            continue
        for place, nominal in enumerate(central_intervals(errors.levels)):
            covered, width = errors.coverage(nominal), errors.width(nominal)
            crps = f"{errors.scaled_crps():.4f}" if not place else ""
            name = method if not place else ""
            table.add_row(name, f"{100 * nominal:g}%", f"{covered:.1%}", f"{width:,.4g}", crps)
    return table


def draw_forecasts(data: ForecastData, forecaster: Forecaster) -> Figure:
    """Draw forecasts of test windows spread evenly over the test part, in original units."""
    store, dataset, horizon = data.store, data.config.dataset, data.config.horizon
    picked = np.unique(np.linspace(0, len(data.test) - 1, _NUM_PICTURED).astype(int))
    group, origin = data.test.index.locate(picked)
    members = data.groups[group]
    scaled = _forecast(data, forecaster, picked)
    forecasts = data.scaler.unscale(scaled.point, members)  # (B, H, C)
    quantiles = _unscaled(data, scaled.quantiles, members) if scaled.quantiles.size else None
    # A context of many horizons would hide the forecast: show its end.
    length = min(data.config.context_length, 3 * horizon)
    figure = Figure(figsize=(10, 2.6 * len(picked)), layout="constrained")
    axes = figure.subplots(len(picked), 1, squeeze=False)[:, 0]
    for window, ax in enumerate(axes):
        channel = window % data.groups.shape[1]
        series, split = members[window, channel], origin[window]
        begin = max(split - length, store.starts[series])
        stamps = store.stamps(np.arange(begin, split + horizon))
        if dataset.time_zone and stamps.tz is not None:
            stamps = stamps.tz_convert(dataset.time_zone)
        values = pd.Series(store.values(series, begin, split + horizon), index=stamps)
        intervals = {}
        if quantiles is not None:
            ends = quantiles[window, :, channel]  # (H, Q)
            for nominal in central_intervals(data.config.model.quantiles)[:_NUM_INTERVALS]:
                lower, upper = interval_ends(data.config.model.quantiles, nominal)
                intervals[nominal] = tuple(
                    pd.Series(ends[:, end], index=stamps[split - begin :]) for end in (lower, upper)
                )
        plot_forecast(
            ax,
            intervals=intervals,
            context=values[: split - begin],
            truth=values[split - begin :],
            forecast=pd.Series(forecasts[window, :, channel], index=stamps[split - begin :]),
            unit=dataset.unit,
        )
        title = str(store.ids[series])[:80]
        ax.set_title(title, loc="left", fontsize="medium", parse_math=False)
    axes[0].legend(ncols=5, frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def draw_errors(data: ForecastData, evaluations: Mapping[str, Evaluation]) -> Figure:
    """Draw the error by horizon step of all methods, in original units if there is one target."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    pooled = data.store.has_target_columns
    plot_error_by_horizon(
        figure.subplots(),
        {
            method: (both.scaled if pooled else both.original).mae_by_step()
            for method, both in evaluations.items()
        },
        step=step_of(data.store.freq),
        unit="scaled" if pooled else data.config.dataset.unit,
    )
    return figure


def draw_calibration(evaluations: Mapping[str, Evaluation]) -> Figure:
    """Draw how often test truths lay below the quantiles against how often they should have."""
    errors = {
        method: evaluation.quantiles
        for method, evaluation in evaluations.items()
        if evaluation.quantiles is not None
    }
    figure = Figure(figsize=(5, 5), layout="constrained")
    levels = next(iter(errors.values())).levels
    fractions = {method: error.fraction_below() for method, error in errors.items()}
    plot_calibration(figure.subplots(), levels, fractions)
    return figure


def draw_training(run: Path, best_step: int) -> Figure:
    """Draw the curves that the CSV logger wrote into the run folder."""
    return plot_training(pd.read_csv(run / CURVES), best_step=best_step)
