"""What a fit tells at its end: test figures beside the baselines, and pictures."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tsformer.baselines import seasonal_naive
from tsformer.data.calendar import seasonal_periods, step_of
from tsformer.data.datamodule import ForecastDataModule
from tsformer.metrics import Errors, ErrorSums, seasonal_naive_error
from tsformer.nn import ForecastNetwork
from tsformer.plots import plot_error_by_horizon, plot_forecast, plot_training

MODEL = "tsformer"
_NUM_PICTURED = 4


def baseline_errors(data: ForecastDataModule, batch_size: int = 4096) -> dict[str, Errors]:
    """Return the seasonal naive forecasts' errors on every test window, in scaled units."""
    table, index = data.table, data.test.index
    horizon, num_channels = data.config.horizon, table.target.shape[1]
    errors = {}
    for name, season in seasonal_periods(table.freq).items():
        sums = ErrorSums(len(table.lengths), horizon, num_channels)
        for begin in range(0, len(index), batch_size):
            windows = np.arange(begin, min(begin + batch_size, len(index)))
            series, origin = index.locate(windows)
            forecast = seasonal_naive(table, series, origin, horizon, season)
            target = table.target[origin[:, None] + np.arange(horizon)]
            scale = data.scaler.std[series][:, None]
            observed = ~np.isnan(target) & ~np.isnan(forecast)
            sums.update(
                torch.from_numpy(np.nan_to_num(forecast / scale)),
                torch.from_numpy(np.nan_to_num(target / scale)),
                torch.from_numpy(observed),
                torch.from_numpy(series),
            )
        errors[f"seasonal naive ({name})"] = sums.compute()
    return errors


def test_metrics(
    data: ForecastDataModule, errors: Mapping[str, Errors]
) -> dict[str, dict[str, float]]:
    """Return MAE, RMSE and MASE in original units, and MAE and MSE in scaled ones, by method.

    MASE is scaled by the in-sample error of the shortest season (Hyndman & Koehler 2006).
    """
    season = next(iter(seasonal_periods(data.table.freq).values()))
    naive_error = seasonal_naive_error(data.table, data.train_end, season)
    metrics = {}
    for method, scaled in errors.items():
        original = scaled.rescaled(data.scaler.std)
        metrics[method] = {
            "mae": original.mae(),
            "rmse": original.mse() ** 0.5,
            "mase": original.mase(naive_error),
            "scaled_mae": scaled.mae(),
            "scaled_mse": scaled.mse(),
        }
    return metrics


def metrics_table(data: ForecastDataModule, metrics: Mapping[str, Mapping[str, float]]) -> Table:
    """Return the test figures as a table for the terminal.

    (z) marks scaled units; the last column says by how much the forecaster's MAE (z) is below.
    """
    title = f"Test: {len(data.test):,} windows of {data.config.horizon} steps"
    if data.config.dataset.unit:
        title += f", MAE and RMSE in {data.config.dataset.unit}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("MAE", "RMSE", "MASE", "MAE (z)", "MSE (z)", "MAE cut"):
        table.add_column(name, justify="right", no_wrap=True)
    ours = metrics[MODEL]["scaled_mae"]  # series of different units count alike
    for method, row in metrics.items():
        theirs = row["scaled_mae"]
        cut = "" if method == MODEL or theirs == 0 else f"{1 - ours / theirs:.1%}"
        table.add_row(method, *(f"{value:,.4g}" for value in row.values()), cut)
    return table


def draw_forecasts(data: ForecastDataModule, network: ForecastNetwork) -> Figure:
    """Draw forecasts of test windows spread evenly over the test part, in original units."""
    table, dataset = data.table, data.config.dataset
    picked = np.unique(np.linspace(0, len(data.test) - 1, _NUM_PICTURED).astype(int))
    batch = data.test[picked]
    with torch.inference_mode():
        forecasts = network(
            batch.context, batch.observed, batch.past_features, batch.future_features
        )
    series, origin = data.test.index.locate(picked)
    # A context of many horizons would hide the forecast: show its end.
    length = min(data.config.context_length, 3 * data.config.horizon)
    figure = Figure(figsize=(10, 2.6 * len(picked)), layout="constrained")
    axes = figure.subplots(len(picked), 1, squeeze=False)[:, 0]
    for window, ax in enumerate(axes):
        s, channel = series[window], window % table.target.shape[1]
        begin = max(origin[window] - length, table.offsets[s])
        rows = np.arange(begin, origin[window] + data.config.horizon)
        stamps = table.stamps(rows - table.offsets[s] + table.starts[s])
        if dataset.time_zone and stamps.tz is not None:
            stamps = stamps.tz_convert(dataset.time_zone)
        values = pd.Series(table.target[rows, channel], index=stamps)
        split = origin[window] - begin
        scale, mean = data.scaler.std[s, channel], data.scaler.mean[s, channel]
        plot_forecast(
            ax,
            context=values[:split],
            truth=values[split:],
            forecast=pd.Series(
                forecasts[window, :, channel].double().numpy() * scale + mean,
                index=stamps[split:],
            ),
            unit=dataset.unit,
        )
        title = str(table.ids[s + channel])[:80]
        ax.set_title(title, loc="left", fontsize="medium", parse_math=False)
    axes[0].legend(ncols=3, frameon=False, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def draw_errors(data: ForecastDataModule, errors: Mapping[str, Errors]) -> Figure:
    """Draw the error by horizon step of all methods, in original units."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    plot_error_by_horizon(
        figure.subplots(),
        {name: e.rescaled(data.scaler.std).mae_by_step() for name, e in errors.items()},
        step=step_of(data.table.freq),
        unit=data.config.dataset.unit,
    )
    return figure


def draw_training(metrics_csv: Path, best_step: int) -> Figure:
    """Draw the curves that the CSV logger wrote."""
    return plot_training(pd.read_csv(metrics_csv), best_step=best_step)
