"""Pictures of a fit."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsformer.data.calendar import step_of
from tsformer.data.forecast_data import ForecastData
from tsformer.evaluation.testing import MODEL, Evaluation, forecast_some
from tsformer.forecaster import Forecaster
from tsformer.plots import (
    plot_calibration,
    plot_error_by_horizon,
    plot_forecast,
    plot_training,
)
from tsformer.report.assembly import window_views
from tsformer.trainer.loggers import CURVES

_NUM_PICTURED = 4


def draw_forecasts(data: ForecastData, forecaster: Forecaster) -> Figure:
    """Draw forecasts of test windows spread evenly over the test part, in original units."""
    picked = np.unique(np.linspace(0, len(data.test) - 1, _NUM_PICTURED).astype(int))
    windows = forecast_some(data, forecaster, picked)
    channels = data.groups.shape[1]
    # Of the groups that are forecast together, one channel each.
    numbers = np.arange(len(picked)) * channels + np.arange(len(picked)) % channels
    # A context of many horizons would hide the forecast: show its end.
    length = min(data.config.context_length, 3 * data.config.horizon)
    zone = data.config.dataset.time_zone
    seen, ahead = [], []
    for view in window_views(data.store, windows, numbers, length, zone):
        ends = {
            f"{MODEL}-{end}-{100 * nominal:g}": values
            for nominal, interval in view.intervals.items()
            for end, values in zip(("lo", "hi"), interval, strict=True)
        }
        columns = {"y": view.truth, MODEL: view.forecasts[MODEL], **ends}
        ahead.append(_rows(view.series, pd.DataFrame(columns)).assign(cutoff=view.cutoff))
        seen.append(_rows(view.series, view.context.to_frame("y")))
    # Windows of a series may overlap.
    history = pd.concat(seen).drop_duplicates(["unique_id", "ds"])
    unit = data.config.dataset.unit
    return plot_forecast(pd.concat(ahead), history, context=length, unit=unit)


def _rows(series: str, values: pd.DataFrame) -> pd.DataFrame:
    """Return values by time as rows of a long table."""
    return values.rename_axis("ds").reset_index().assign(unique_id=series)


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
