"""evaluate(settings): a model's forecasts of a table's past, beside other methods."""

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from tsformer.baselines.registry import check_installed
from tsformer.console import open_console
from tsformer.data.calendar import shortest_season
from tsformer.data.catalog import find_file
from tsformer.data.locking import folder_alone
from tsformer.data.sources import errors_naming
from tsformer.data.splits import split_ends
from tsformer.data.store import SeriesStore
from tsformer.data.writing import write_atomically, write_parquet
from tsformer.errors import ConfigError
from tsformer.evaluation.backtest import Backtest, LastWindows, backtest, last_windows
from tsformer.evaluation.comparison import compare
from tsformer.evaluation.config import EvaluateConfig
from tsformer.evaluation.frames import groups_of, point_columns, with_groups
from tsformer.evaluation.scores import (
    Scales,
    comparable,
    fraction_below,
    mean_over_series,
    score,
)
from tsformer.forecaster import Forecaster, refit_arguments
from tsformer.metrics import seasonal_naive_error
from tsformer.model.folder import CONFIG
from tsformer.places import METRICS, REPORT
from tsformer.prediction.history import History, read_history, series_names, window_frame
from tsformer.report.assembly import (
    choose_series,
    choose_windows,
    describe_data,
    error_tables,
    how_to_load,
    series_errors,
    window_views,
)
from tsformer.report.content import Report
from tsformer.report.page import write_report
from tsformer.report.tables import comparison_figures, figures_table, score_figures
from tsformer.settings import parse
from tsformer.strict_json import without_nan

log = logging.getLogger(__name__)

FORECASTS = "forecasts.parquet"
_MAX_ROWS = 50_000_000  # that can be held in memory with what is made of them, about 10 GB


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation gives back.

    Attributes:
        total: scores over all steps alike, one row a method, the model's first; see `score`.
        series_mean: mean of each series' scores, weighted by `dataset.weight_column`.
        comparison: of the model with each baseline; see `compare`. Losses are in units of the
            scale of MASE, unless no series has one.
        by_series: scores of each series.
        by_group: scores by `horizon step`, `hour`, `weekday` and `month`.
        output: the folder.
    """

    total: pd.DataFrame
    series_mean: pd.DataFrame
    comparison: pd.DataFrame
    by_series: pd.DataFrame
    by_group: dict[str, pd.DataFrame]
    output: Path


def evaluate(settings: Mapping[str, Any]) -> Evaluated:
    """Backtest a model, and write the forecasts, their scores and a report.

    The folder `settings["output"]` receives forecasts.parquet (as of `Forecaster.cross_validate`),
    scores_by_{series,horizon_step,hour,weekday,month}.csv, report.html and, last, metrics.json.

    Args:
        settings: resolved, as plain values; see `EvaluateConfig` and `conf/fitted/evaluate.yaml`.

    Raises:
        ConfigError: a setting is unknown, wrong, or does not fit the model or the table.
        DataError: the table cannot be found or used, or has no truth or no window.
        ModelFolderError: the model cannot be loaded.
    """
    config = parse(EvaluateConfig, settings)
    check_installed(config.baselines)
    with _output_alone(Path(config.output)) as output:
        return _evaluate(config, output)


def _evaluate(config: EvaluateConfig, output: Path) -> Evaluated:
    forecaster = Forecaster.load(config.model, config.device)
    past, train_end, begin = _read(config, forecaster)
    windows = _windows(config, forecaster, past, begin)
    found = _backtest(config, forecaster, past, windows)
    zone = config.dataset.time_zone or forecaster.config.time_zone
    frame = with_groups(window_frame(found.store, found.forecasts), found.store.freq, zone)
    rows = comparable(frame)
    if train_end is None:
        train_end = int(found.forecasts.origins.min())
    evaluated = _score(config, past, frame, rows, _scales(past.store, train_end))
    notes = [*filter(None, [windows.left_out]), *_notes(frame, rows)]
    report = _report(config, forecaster, past, found, evaluated, rows, notes)

    forecasts = window_frame(found.store, found.forecasts, series_names(past))
    write_parquet(forecasts, output / FORECASTS)
    for by, scores in {"series": evaluated.by_series, **evaluated.by_group}.items():
        path = output / f"scores_by_{by.replace(' ', '_')}.csv"
        write_atomically(path, scores.to_csv(index=False))
    if config.report:
        write_report(report, output / REPORT)
    metrics = {
        "model": config.model,
        "dataset": config.dataset.name,
        "windows": len(found.forecasts.series),
        "steps": len(frame),
        "steps_scored": len(rows),
        "total": _by(evaluated.total, "method"),
        "series_mean": _by(evaluated.series_mean, "method"),
        "comparison": _by(evaluated.comparison, "baseline"),
    }
    write_atomically(output / METRICS, json.dumps(without_nan(metrics), indent=1))
    for figures in report.headline:
        open_console().print(figures_table(figures))
    for note in report.notes:
        log.info("%s", note)
    log.info("Evaluation: %s", output / REPORT if config.report else output)
    return evaluated


@contextmanager
def _output_alone(output: Path) -> Iterator[Path]:
    """Make the output folder and hold it, which no other evaluation then can."""
    _check_output(output)
    with ExitStack() as stack:
        try:
            stack.enter_context(folder_alone(output))
        except BlockingIOError as error:
            raise ConfigError(
                f"output={output}: another evaluation is writing there. Name another."
            ) from error
        _check_output(output)  # once more, as another may just have ended
        yield output


def _check_output(output: Path) -> None:
    """Refuse a folder that holds something else, before hours of work."""
    if (output / METRICS).exists() or (output / CONFIG).exists():
        raise ConfigError(
            f"output={output}: it holds a run, an evaluation or a model. Choose another."
        )
    above = output.absolute()
    there = next(place for place in (above, *above.parents) if os.path.lexists(place))
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ConfigError(f"output={output}: {there} is not a writable folder.")


def _read(config: EvaluateConfig, forecaster: Forecaster) -> tuple[History, int | None, int]:
    """Return the table, the grid position after its train rows, and that of the first window.

    The end of the train rows is None where windows are taken from all of the table.
    """
    own, dataset = forecaster.config, config.dataset
    if dataset.freq is not None and dataset.freq != own.freq:
        raise ConfigError(
            f"dataset.freq={dataset.freq}: the model forecasts steps of {own.freq}. Evaluate it on "
            "data of that step."
        )
    columns = replace(own.columns, weight=dataset.weight_column)
    file = find_file(dataset, config.paths.data, allow_download=config.paths.download)
    past = read_history(file, own.model_copy(update={"columns": columns}))
    if config.part == "all":
        return past, None, 0
    train_end, begin, end = split_ends(dataset.split, past.store)
    if begin >= end:
        raise ConfigError(
            f"dataset.split={dataset.split} leaves no test part. Give it one, or add part=all."
        )
    return replace(past, store=past.store.until(end)), train_end, begin


def _windows(
    config: EvaluateConfig, forecaster: Forecaster, past: History, begin: int
) -> LastWindows:
    """Return the windows to forecast, whose rows memory can hold."""
    steps = config.horizon or forecaster.horizon
    step = config.step or steps
    with errors_naming(config.dataset.path):
        windows = last_windows(past, config.n_windows, step, steps, begin)
    number = int(windows.usable.sum())
    num_rows = number * past.groups.shape[1] * steps
    if num_rows > _MAX_ROWS:
        raise ConfigError(
            f"{number:,} windows of {steps} steps give {num_rows:,} rows, and at most "
            f"{_MAX_ROWS:,} are scored at once. Raise step (now {step}), or set n_windows."
        )
    log.info("%s windows of %s steps, %s steps apart", f"{number:,}", steps, step)
    return windows


def _backtest(
    config: EvaluateConfig, forecaster: Forecaster, past: History, windows: LastWindows
) -> Backtest:
    quantiles = config.quantiles
    if quantiles is None:
        quantiles = forecaster.config.model.quantiles if forecaster.is_probabilistic else []
    return backtest(
        forecaster,
        past,
        windows,
        steps=config.horizon or forecaster.horizon,
        asked=forecaster.asked([], quantiles, 0, config.adaptive, config.seed),
        refit=refit_arguments(config.refit, config.seed),
        baselines=config.baselines,
        num_workers=config.num_workers,
        batch_size=config.batch_size,
    )


def _score(
    config: EvaluateConfig,
    past: History,
    frame: pd.DataFrame,
    rows: pd.DataFrame,
    scales: Scales,
) -> Evaluated:
    """Score the rows that can be compared, of all that were forecast."""
    store = past.store
    weights = None if store.weights is None else pd.Series(store.weights, store.ids)
    by_series = score(rows, "unique_id", scales=scales)
    known = scales.absolute.dropna()
    # The rows that are not scored stay, as they tell how cutoffs lie to each other.
    scored = frame["y"].where(frame.index.isin(rows.index))
    comparison = compare(
        frame.assign(y=scored)[[name for name in frame if name in rows]],
        loss=config.loss,
        scales=known if len(known) else None,
        seed=config.seed,
    )
    return Evaluated(
        score(rows, scales=scales),
        mean_over_series(by_series, weights),
        comparison,
        by_series,
        {by: score(rows, by, scales=scales) for by in groups_of(rows)},
        Path(config.output),
    )


def _scales(store: SeriesStore, end: int) -> Scales:
    """Return the in-sample errors of the shortest season, as MASE and RMSSE have them."""
    season = shortest_season(store.freq)
    absolute = seasonal_naive_error(store, end, season)
    squared = seasonal_naive_error(store, end, season, power=2)
    return Scales(pd.Series(absolute, store.ids), pd.Series(squared, store.ids))


def _report(
    config: EvaluateConfig,
    forecaster: Forecaster,
    past: History,
    found: Backtest,
    evaluated: Evaluated,
    rows: pd.DataFrame,
    notes: list[str],
) -> Report:
    """Return what the terminal and the page show."""
    store, forecasts = found.store, found.forecasts
    own, unit = forecaster.config, config.dataset.unit
    # The units of several targets may differ.
    metric = "MASE" if store.has_target_columns else "MAE"
    errors = series_errors(evaluated.by_series, metric)
    shown = choose_windows(store, forecasts, choose_series(errors))
    steps = len(next(iter(forecasts.columns.values()))[0])
    zone = config.dataset.time_zone or own.time_zone
    where = "the test part" if config.part == "test" else "the table"
    title = f"{len(forecasts.series):,} windows of {steps} steps of {where}"
    headline = score_figures(evaluated.total, title + (f", in {unit}" if unit else ""))
    if len(errors) > 1:
        kind = "weighted mean" if past.store.weights is not None else "mean"
        headline += score_figures(evaluated.series_mean, f"{kind} of {len(errors):,} series")
    if len(evaluated.comparison):
        is_scaled = evaluated.total["MASE"].notna().any()
        headline.append(comparison_figures(evaluated.comparison, config.loss, is_scaled=is_scaled))
    return Report(
        title=f"{config.dataset.name}: evaluation",
        subtitle=f"{title}; {own.context_length} steps seen, step {own.freq}",
        headline=headline,
        windows=window_views(
            store,
            forecasts,
            shown,
            min(own.context_length, 3 * steps),
            zone,
        ),
        error_by=error_tables(evaluated.by_group, metric),
        error=metric if metric != "MAE" else "mean absolute error",
        calibration=fraction_below(rows),
        series=errors,
        data=describe_data(past.store, config.dataset.path, zone),
        settings=yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False),
        how_to_load=how_to_load(config.model, needs_future=bool(own.columns.future_covariates)),
        notes=notes,
        unit=None if metric == "MASE" else unit,
    )


def _notes(frame: pd.DataFrame, rows: pd.DataFrame) -> list[str]:
    """Return which steps and methods are not scored."""
    notes = []
    missing = int(frame["y"].isna().sum())
    if missing:
        notes.append(f"{missing:,} of {len(frame):,} steps have no truth and are not scored.")
    unknown = [name for name in point_columns(frame) if name not in rows]
    if unknown:
        notes.append(f"{', '.join(unknown)}: no forecast for any step, so left out.")
    lost = len(frame) - missing - len(rows)
    if lost:
        kept = point_columns(rows)
        short = ", ".join(name for name in kept if frame.loc[frame["y"].notna(), name].isna().any())
        notes.append(
            f"{lost:,} steps that {short} cannot forecast are left out of all scores, so that "
            "methods are compared on the same steps."
        )
    return notes


def _by(scores: pd.DataFrame, name: str) -> dict[str, dict[str, Any]]:
    return {row.pop(name): row for row in scores.to_dict("records")}
