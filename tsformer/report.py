"""What a fit tells at its end: test figures beside the baselines, and pictures."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tsformer.baselines import seasonal_naive
from tsformer.data.calendar import seasonal_periods, step_of
from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import FloatArray
from tsformer.data.windows import BatchSampler
from tsformer.forecaster import forecast_windows
from tsformer.metrics import (
    Errors,
    ErrorSums,
    QuantileErrors,
    central_intervals,
    seasonal_naive_error,
)
from tsformer.nn import ForecastNetwork
from tsformer.plots import plot_error_by_horizon, plot_forecast, plot_training

MODEL = "tsformer"
_NUM_PICTURED = 4


class Evaluation(NamedTuple):
    """Errors of one method on every test window.

    Attributes:
        scaled: in units of the scaler.
        original: in units of the table.
    """

    scaled: Errors
    original: Errors


def evaluate(
    data: ForecastData, network: ForecastNetwork, batch_size: int = 1024
) -> dict[str, Evaluation]:
    """Forecast every test window with the network and the seasonal naive forecasts.

    Args:
        data: the table and its windows.
        network: in evaluation mode, on any device.
        batch_size: windows forecast at once.

    Returns:
        Errors by method, the network's first.
    """
    sizes = (len(data.groups), data.config.horizon, data.groups.shape[1])
    seasons = seasonal_periods(data.store.freq)
    methods = [MODEL, *(f"seasonal naive ({name})" for name in seasons)]
    sums = {method: (ErrorSums(*sizes), ErrorSums(*sizes)) for method in methods}
    for windows in BatchSampler(data.test.index, batch_size, shuffle=False):
        group, origin = data.test.index.locate(windows)
        series = data.groups[group]  # (B, C)
        positions = (origin[:, None] + np.arange(data.config.horizon))[:, :, None]
        truth = data.store.at(series[:, None], positions)  # (B, H, C)
        scaled_truth = data.scaler.scale(truth, series)
        for method, season in zip(methods, [None, *seasons.values()], strict=True):
            if season is None:
                scaled = forecast_windows(network, data.test[windows])
                original = data.scaler.unscale(scaled, series)
            else:
                original = seasonal_naive(data.store, series, origin, data.config.horizon, season)
                scaled = data.scaler.scale(original, series)
            for errors, forecast, true in zip(
                sums[method], (scaled, original), (scaled_truth, truth), strict=True
            ):
                observed = ~np.isnan(true) & ~np.isnan(forecast)
                arrays = (np.nan_to_num(forecast), np.nan_to_num(true), observed, group)
                errors.update(*map(torch.from_numpy, arrays))
    return {
        method: Evaluation(*(errors.compute() for errors in both)) for method, both in sums.items()
    }


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
            {
                method: Evaluation(*(errors.of(target == number) for errors in both))
                for method, both in evaluations.items()
            },
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
        for method, (scaled, original) in evaluations.items()
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
    data: ForecastData, errors: Mapping[str, QuantileErrors], target: str | None = None
) -> Table:
    """Return how often intervals hold the truth, as a table for the terminal.

    Args:
        data: the table and its windows.
        errors: method -> errors of its quantiles on every test window, in original units.
        target: column that they are of, where there are several.
    """
    title = f"Intervals: {len(data.test):,} test windows"
    if target is not None:
        title += f", target {target}"
    if data.config.dataset.unit:
        title += f", mean width in {data.config.dataset.unit}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("Nominal", "Covered", "Width"):
        table.add_column(name, justify="right", no_wrap=True)
    for method, error in errors.items():
        for nominal in central_intervals(error.levels):
            covered, width = error.coverage(nominal), error.width(nominal)
            table.add_row(method, f"{100 * nominal:g}%", f"{covered:.1%}", f"{width:,.4g}")
    return table


def draw_forecasts(data: ForecastData, network: ForecastNetwork) -> Figure:
    """Draw forecasts of test windows spread evenly over the test part, in original units."""
    store, dataset, horizon = data.store, data.config.dataset, data.config.horizon
    picked = np.unique(np.linspace(0, len(data.test) - 1, _NUM_PICTURED).astype(int))
    group, origin = data.test.index.locate(picked)
    members = data.groups[group]
    scaled = forecast_windows(network, data.test[picked])
    forecasts = data.scaler.unscale(scaled, members)  # (B, H, C)
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
        plot_forecast(
            ax,
            context=values[: split - begin],
            truth=values[split - begin :],
            forecast=pd.Series(forecasts[window, :, channel], index=stamps[split - begin :]),
            unit=dataset.unit,
        )
        title = str(store.ids[series])[:80]
        ax.set_title(title, loc="left", fontsize="medium", parse_math=False)
    axes[0].legend(ncols=3, frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
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


def draw_training(metrics_csv: Path, best_step: int) -> Figure:
    """Draw the curves that the CSV logger wrote."""
    return plot_training(pd.read_csv(metrics_csv), best_step=best_step)
