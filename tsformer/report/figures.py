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
from tsformer.report.assembly import in_zone

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
    seen, ahead = [], []
    for window, split in enumerate(origin):
        channel = window % data.groups.shape[1]
        series = members[window, channel]
        begin = min(max(split - length, store.starts[series]), split - 1)
        stamps = in_zone(store.stamps(np.arange(begin, split + horizon)), dataset.time_zone)
        values = store.values(series, begin, split + horizon)
        rows = pd.DataFrame({"unique_id": store.ids[series], "ds": stamps, "y": values})
        future = rows[split - begin :].assign(
            cutoff=stamps[split - begin - 1], tsformer=forecasts[window, :, channel]
        )
        if quantiles.size:
            ends = quantiles[window, :, channel]  # (H, Q)
            for nominal in central_intervals(data.config.model.quantiles)[:_NUM_INTERVALS]:
                lower, upper = interval_ends(data.config.model.quantiles, nominal)
                future[f"tsformer-lo-{100 * nominal:g}"] = ends[:, lower]
                future[f"tsformer-hi-{100 * nominal:g}"] = ends[:, upper]
        seen.append(rows[: split - begin])
        ahead.append(future)
    # Windows of a series may overlap.
    history = pd.concat(seen).drop_duplicates(["unique_id", "ds"])
    return plot_forecast(pd.concat(ahead), history, context=length, unit=dataset.unit)


def draw_errors(data: ForecastData, evaluations: Mapping[str, Evaluation]) -> Figure:
    """Draw the error by horizon step of all methods, in original units if there is one target."""
    pooled = data.store.has_target_columns
    return plot_error_by_horizon(
        {
            method: (both.scaled if pooled else both.original).mae_by_step()
            for method, both in evaluations.items()
        },
        step=step_of(data.store.freq),
        unit="scaled" if pooled else data.config.dataset.unit,
    )


def draw_calibration(evaluations: Mapping[str, Evaluation]) -> Figure:
    """Draw how often test truths lay below the quantiles against how often they should have."""
    errors = {
        method: evaluation.quantiles
        for method, evaluation in evaluations.items()
        if evaluation.quantiles is not None
    }
    levels = next(iter(errors.values())).levels
    fractions = {method: error.fraction_below() for method, error in errors.items()}
    return plot_calibration(pd.DataFrame(fractions, index=list(levels)))


def draw_training(run: Path, best_step: int) -> Figure:
    """Draw the curves that the CSV logger wrote into the run folder."""
    return plot_training(pd.read_csv(run / CURVES), best_step=best_step)
