"""What the page of a fit shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import FloatArray, IntArray
from tsformer.evaluation.frames import STEP, groups_of, with_groups
from tsformer.evaluation.scores import Scales, comparable, score
from tsformer.evaluation.testing import MODEL, Evaluation, forecast_some, naive_error
from tsformer.forecaster import Forecaster
from tsformer.metrics import Errors
from tsformer.prediction.history import window_frame
from tsformer.report.assembly import (
    NUM_WINDOWS,
    choose_series,
    describe_data,
    error_tables,
    how_to_load,
    spread,
    window_views,
)
from tsformer.report.content import Cell, Figures, Report
from tsformer.trainer.loggers import CURVES

# Test windows by which errors are told by the calendar: rows of all, and windows at least.
_SAMPLE, _FEWEST = 200_000, 50


def fit_report(
    data: ForecastData,
    forecaster: Forecaster,
    evaluations: Mapping[str, Evaluation],
    headline: Sequence[Figures],
    run: Path,
    best_step: int,
) -> Report:
    """Return what the page of a fit shows.

    Args:
        data: the table and its windows.
        forecaster: fitted to it.
        evaluations: errors on every test window, by method.
        headline: figures of the test.
        run: the run folder, with the curves of the csv logger if it was on.
        best_step: step of the checkpoint chosen.
    """
    config, store = data.config, data.store
    pooled = store.has_target_columns  # whose units may differ
    scale = naive_error(data) if pooled else np.ones(data.groups.shape)  # (N, C)
    sums = {method: _divided(both.original, scale) for method, both in evaluations.items()}
    by_step = pd.DataFrame({method: each.mae_by_step() for method, each in sums.items()})
    by_step.index = pd.RangeIndex(1, config.horizon + 1, name=STEP)
    errors = _series_errors(data, sums)
    numbers = pd.Index(store.ids).get_indexer(choose_series(errors))
    shown = forecast_some(data, forecaster, _windows_of(data, numbers))
    views = np.flatnonzero(np.isin(shown.series, numbers))
    context = min(config.context_length, 3 * config.horizon)
    by_calendar, notes = _by_calendar(data, forecaster, scale if pooled else None)
    quantiles = evaluations[MODEL].quantiles
    curves = run / CURVES
    return Report(
        title=f"{config.dataset.name}: fit",
        subtitle=data.description,
        headline=headline,
        windows=window_views(store, shown, views, context, config.dataset.time_zone),
        error_by={STEP: by_step, **by_calendar},
        error="MASE" if pooled else "mean absolute error",
        calibration=None
        if quantiles is None
        else pd.DataFrame({MODEL: quantiles.fraction_below()}, index=list(quantiles.levels)),
        series=errors,
        curves=pd.read_csv(curves) if config.logger.csv and curves.exists() else None,
        best_step=best_step,
        data=describe_data(store, config.dataset.path, config.dataset.time_zone) | _parts(data),
        settings=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
        how_to_load=how_to_load(
            str(run / "model"), needs_future=bool(data.columns.future_covariates)
        ),
        notes=notes,
        unit=None if pooled else config.dataset.unit,
    )


def _divided(errors: Errors, scale: FloatArray) -> Errors:
    """Return errors in units of a scale, (N, C); those without one are ignored."""
    known = ~np.isnan(scale)
    units = np.where(known, scale, np.inf)[:, None]
    return errors.of(known)._replace(absolute=errors.absolute / units)


def _series_errors(data: ForecastData, sums: Mapping[str, Errors]) -> pd.DataFrame:
    """Return the mean absolute error of each series, series x methods, the worst first."""
    columns = {method: errors.mae_by_channel().ravel() for method, errors in sums.items()}
    names = [data.store.ids[series] for series in data.groups.ravel()]
    return pd.DataFrame(columns, index=names).sort_values(MODEL, ascending=False, kind="stable")


def _windows_of(data: ForecastData, series: IntArray) -> IntArray:
    """Return some test windows of each of some series."""
    offsets = data.test.index.offsets
    groups = np.flatnonzero(np.isin(data.groups, series).any(axis=1))
    return np.concatenate(
        [spread(int(offsets[group]), int(offsets[group + 1]), NUM_WINDOWS) for group in groups]
    )


def _by_calendar(
    data: ForecastData, forecaster: Forecaster, scale: FloatArray | None
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the error by hour, weekday and month, of a sample of test windows, and notes of it.

    Args:
        data: the table and its windows.
        forecaster: fitted to it.
        scale: unit of each series' errors, (N, C); None: that of the table.
    """
    rows_each = data.config.horizon * data.groups.shape[1]
    number = min(max(_SAMPLE // rows_each, _FEWEST), len(data.test))
    # Drawn, as evenly spread ones might all begin at the same hour.
    drawn = np.random.default_rng(0).choice(len(data.test), number, replace=False)
    found = forecast_some(data, forecaster, np.sort(drawn))
    frame = window_frame(data.store, found)
    rows = comparable(with_groups(frame, data.store.freq, data.config.dataset.time_zone))
    scales = None
    if scale is not None:
        units = pd.Series(scale.ravel(), [data.store.ids[series] for series in data.groups.ravel()])
        scales = Scales(units, units)
    groups = [by for by in groups_of(rows) if by != STEP]
    metric = "MAE" if scale is None else "MASE"
    tables = error_tables({by: score(rows, by, scales=scales) for by in groups}, metric)
    if number == len(data.test) or not tables:
        return tables, []
    some = f"{number:,} of {len(data.test):,} test windows"
    return tables, [f"Errors by {', '.join(groups)} are computed on {some}, drawn at random."]


def _parts(data: ForecastData) -> dict[str, Cell]:
    """Return the windows of each part."""
    parts = {"train": data.train, "validation": data.validation, "test": data.test}
    return {f"{name} windows": f"{len(windows):,}" for name, windows in parts.items()}
