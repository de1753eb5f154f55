"""Pictures of a fit."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsformer.data.calendar import step_of
from tsformer.data.forecast_data import ForecastData
from tsformer.evaluation.testing import MODEL, Evaluation, forecast_test
from tsformer.forecaster import Forecaster
from tsformer.loggers import CURVES
from tsformer.metrics import central_intervals, interval_ends
from tsformer.plots import (
    plot_calibration,
    plot_error_by_horizon,
    plot_forecast,
    plot_training,
)

_NUM_PICTURED = 4
_NUM_INTERVALS = 2  # the widest


def draw_forecasts(data: ForecastData, forecaster: Forecaster) -> Figure:
    """Draw forecasts of test windows spread evenly over the test part, in original units."""
    store, dataset, horizon = data.store, data.config.dataset, data.config.horizon
    picked = np.unique(np.linspace(0, len(data.test) - 1, _NUM_PICTURED).astype(int))
    group, origin = data.test.index.locate(picked)
    members = data.groups[group]
    points, quantiles = forecast_test(data, forecaster, picked)
    forecasts = points[MODEL]  # (B, H, C)
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
        if quantiles.size:
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
