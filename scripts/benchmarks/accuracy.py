"""Accuracy in the protocol of the long-horizon papers, beside baselines on the same windows.

A task is one method on one dataset, horizon and seed. Each finished task is a line of
`accuracy.jsonl`, and is not done again; `accuracy.md` and `accuracy.csv` show the tasks asked for.
"""

import hashlib
import json
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from benchmarks.accuracy_report import Record, as_csv, as_markdown, as_table, summarise
from benchmarks.common import machine
from benchmarks.linear import RECIPES, TRAINING, train_linear
from benchmarks.statistical import METHODS, forecast_each, is_installed
from tsformer import conformal
from tsformer.baselines import seasonal_naive
from tsformer.cli import CONF
from tsformer.config import DatasetConfig, PathsConfig, parse
from tsformer.data.calendar import seasonal_periods
from tsformer.data.catalog import find_file, load_data
from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import FloatArray, IntArray
from tsformer.data.windows import WindowDataset
from tsformer.errors import ConfigError, DataError
from tsformer.forecaster import Forecaster
from tsformer.forecasting import Forecasts, forecast_windows
from tsformer.metrics import ErrorSums, QuantileErrors, QuantileSums, central_intervals
from tsformer.report import MODEL
from tsformer.training import fit, write_atomically

# Steps that the linear baselines see, as in Zeng et al. 2023.
LOOK_BACKS = {"illness": 104}
LOOK_BACK = 336
# Windows that statistical models are fitted to, one by one, spread evenly over all test windows.
FEW = 200
# Settings that change no figure.
_UNRELATED = {"paths", "logger", "num_workers", "eval_batch_size"}
_DESCRIPTIVE = {"source", "url", "sha256", "licence", "unit", "suggested"}
INTERVAL = 0.9  # nominal coverage of the interval that is shown
_AT_ONCE = 1024  # windows


class Plan(NamedTuple):
    """What the command line asks for.

    Attributes:
        datasets: names in conf/dataset/.
        horizons: steps forecast, H.
        seeds: of our fits and of the linear baselines.
        output: folder of the results.
        look_back: steps that the linear baselines see; None: as in their paper.
        overrides: other settings of every fit, in Hydra's words.
    """

    datasets: list[str]
    horizons: list[int]
    seeds: list[int]
    output: Path
    look_back: int | None
    overrides: list[str]


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


class Task(NamedTuple):
    """One method, or some that are computed together, on one dataset, horizon and seed.

    Attributes:
        name: of the runner; see `RUNNERS`.
        seed: None if nothing in it is random.
        settings: of a fit, as plain values.
        fingerprint: of all that its figures follow from.
    """

    name: str
    dataset: str
    horizon: int
    seed: int | None
    settings: dict[str, Any]
    fingerprint: str

    @property
    def key(self) -> tuple[str, str, int, int | None, str]:
        """What tells it from other tasks in the file of results."""
        return self.name, self.dataset, self.horizon, self.seed, self.fingerprint


def measure_accuracy(arguments: Sequence[str]) -> Table:
    """Do the tasks that are not done yet, write the results, and return them as a table.

    Args:
        arguments: `key=value`: `dataset`, `horizon` and `seed` as one value or a list,
            `[a,b]`; `output`, a folder; `look_back` of the linear baselines; and any settings
            of a fit.

    Raises:
        ConfigError: an argument is wrong.
        DataError: a dataset's file is missing, or cannot be used.
    """
    plan = parse_plan(arguments)
    tasks = list(plan_tasks(plan))
    plan.output.mkdir(parents=True, exist_ok=True)
    lines = plan.output / "accuracy.jsonl"
    _end_last_line(lines)
    done = {key_of(record): record for record in read_records(lines)}
    missing = [task for task in tasks if task.key not in done]
    _check_data(missing)
    about = {"commit": commit(), "machine": machine()}
    for number, task in enumerate(missing, 1):
        print(f"{number}/{len(missing)}: {task.dataset} {task.horizon}, {task.name}", flush=True)
        scores = RUNNERS[task.name](task.settings)
        record: Record = {
            **dict(zip(("task", "dataset", "horizon", "seed", "settings"), task.key, strict=True)),
            **about,
            "methods": {method: score._asdict() for method, score in scores.items()},
        }
        done[task.key] = record
        with lines.open("ab", buffering=0) as file:  # whole lines, also of several processes
            file.write((json.dumps(record) + "\n").encode())
    records = [done[task.key] for task in tasks]
    rows = summarise(records)
    command = shlex.join(["python", "scripts/benchmark.py", "accuracy", *arguments])
    write_atomically(plan.output / "accuracy.md", as_markdown(rows, records, command))
    write_atomically(plan.output / "accuracy.csv", as_csv(rows))
    return as_table(rows)


# What is to be done


def parse_plan(arguments: Sequence[str]) -> Plan:
    """Return what `key=value` arguments ask for.

    Raises:
        ConfigError: a list is empty or holds what it cannot hold.
        HydraException: an argument is not `key=value`.
    """
    asked: dict[str, Any] = {
        "dataset": ["etth1"],
        "horizon": [96, 192, 336, 720],
        "seed": [1, 2, 3],
        "output": "docs/benchmarks",
        "look_back": [],
    }
    overrides = []
    for override in OverridesParser.create().parse_overrides(list(arguments)):
        key = override.key_or_group
        if key not in asked:
            overrides.append(str(override.input_line))
        elif override.is_sweep_override():
            raise ConfigError(f"{override.input_line}: put a list in brackets, {key}=[a,b]")
        elif override.value() in ([], "", None):
            raise ConfigError(f"{override.input_line}: a value is needed")
        else:
            asked[key] = override.value()
    return Plan(
        datasets=_listed("dataset", asked["dataset"], str, "names"),
        horizons=_numbers("horizon", asked["horizon"], least=1),
        seeds=_numbers("seed", asked["seed"], least=0),
        output=Path(str(asked["output"])).expanduser(),
        look_back=next(iter(_numbers("look_back", asked["look_back"], least=1)), None),
        overrides=overrides,
    )


def _listed(key: str, value: Any, kind: type, wanted: str) -> list[Any]:
    """Return a value, or those of a list, each once."""
    items = value if isinstance(value, list) else [value]
    for item in items:
        if type(item) is not kind:
            raise ConfigError(f"{key}={item}: expected {wanted}, as {key}=[a,b]")
    return list(dict.fromkeys(items))


def _numbers(key: str, value: Any, least: int) -> list[int]:
    wanted = f"whole numbers from {least} on"
    numbers = _listed(key, value, int, wanted)
    if min(numbers, default=least) < least:
        raise ConfigError(f"{key}={min(numbers)}: expected {wanted}")
    return numbers


def plan_tasks(plan: Plan) -> Iterator[Task]:
    """Yield the tasks of a plan: by dataset and horizon, ours first."""
    for dataset in plan.datasets:
        config = compose_fit(dataset, plan.overrides)
        content = _content_of(_resolve(config, {"horizon": plan.horizons[0]}))
        look_back = plan.look_back or LOOK_BACKS.get(dataset, LOOK_BACK)
        # The length of the patches plays no part there, and 1 goes with any look-back.
        shape = {"context_length": look_back, "model": {"patch_len": 1}}
        for horizon in plan.horizons:
            for seed in plan.seeds:
                settings = _resolve(config, {"horizon": horizon, "seed": seed})
                told = {key: settings[key] for key in settings.keys() - _UNRELATED}
                told |= _quantiles_of(settings)
                yield Task(MODEL, dataset, horizon, seed, settings, fingerprint(told, content))
            settings = _resolve(config, {"horizon": horizon, **shape})
            told = _windows_of(settings)
            yield Task("naive", dataset, horizon, None, settings, fingerprint(told, content))
            for name in METHODS if is_installed() else ():
                few = fingerprint({**told, "few": FEW}, content)
                yield Task(name, dataset, horizon, None, settings, few)
            told = {**told, "context_length": look_back, **TRAINING}
            for name in RECIPES:
                for seed in plan.seeds:
                    settings = _resolve(config, {"horizon": horizon, "seed": seed, **shape})
                    yield Task(name, dataset, horizon, seed, settings, fingerprint(told, content))


def compose_fit(dataset: str, overrides: list[str]) -> DictConfig:
    """Return the settings of our fits of a dataset; `paths.run` is left open.

    Raises:
        HydraException: there is no such dataset, or no such setting.
    """
    # How it is fitted, whatever the horizon and the seed.
    own = (CONF / "experiment" / "accuracy" / f"{dataset}.yaml").exists()
    choices = [f"dataset={dataset}", *([f"experiment=accuracy/{dataset}"] if own else [])]
    quiet = ["trainer.progress_bar=false", "logger.tensorboard=false", "logger.csv=false"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("fit", [*choices, *quiet, "paths.run=''", *overrides])


def _resolve(config: DictConfig, changes: dict[str, Any]) -> dict[str, Any]:
    """Return changed settings as plain values."""
    changed = OmegaConf.merge(config, changes)
    settings: Any = OmegaConf.to_container(changed, resolve=True, throw_on_missing=True)
    return settings


def _windows_of(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that windows, and which figures there are of them, follow from."""
    return {
        **{key: settings[key] for key in ("dataset", "scaling", "sampling", "horizon")},
        "channels": settings["model"]["channels"],
        **_quantiles_of(settings),
    }


def _quantiles_of(settings: dict[str, Any]) -> dict[str, Any]:
    levels = levels_of(settings)
    return {"levels": levels} if levels else {}


def levels_of(settings: dict[str, Any]) -> list[float]:
    """Return the levels of the quantiles that are forecast; none where our fits give points."""
    model = settings["model"]
    levels: list[float] = model["quantiles"]
    return levels if model["head"] != "point" or settings["conformal"] else []


def fingerprint(settings: dict[str, Any], content: str = "") -> str:
    """Return a hash of settings, without what only describes their dataset, and its content."""
    dataset = {k: v for k, v in settings["dataset"].items() if k not in _DESCRIPTIVE}
    text = json.dumps({**settings, "dataset": dataset}, sort_keys=True) + content
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _find_data(settings: dict[str, Any]) -> Path:
    paths = parse(PathsConfig, settings["paths"])
    dataset = parse(DatasetConfig, settings["dataset"])
    return find_file(dataset, paths.data, allow_download=paths.download)


def _check_data(tasks: list[Task]) -> None:
    """Raise DataError now, not after hours, if a dataset's file is missing."""
    for settings in {task.dataset: task.settings for task in tasks}.values():
        _find_data(settings)


def _content_of(settings: dict[str, Any]) -> str:
    """Return a hash of a dataset's file; of several files, their names, sizes and times."""
    try:
        path = _find_data(settings)
    except DataError:  # told by `_check_data`, if a task needs it
        return ""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    files = path.rglob("*") if path.is_dir() else path.parent.glob(path.name)
    stats = [(str(file), file.stat()) for file in sorted(files)]
    return str([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


# What is done


KEY = ("task", "dataset", "horizon", "seed", "settings")


def key_of(record: Record) -> tuple[Any, ...]:
    """Return the key of the task that a record is of."""
    return tuple(record[name] for name in KEY)


def _end_last_line(path: Path) -> None:
    """Keep a line that an interruption left unfinished from running into the next one."""
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file; a line that is not whole is passed over."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.keys() >= set(KEY):
            yield record


def commit() -> str:
    """Return the commit of this source tree, marked if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, cwd=CONF, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


# How it is done

# From windows of the validation or test part to forecasts in scaled units: points, (B, H, C), and
# these with quantiles.
PointForecast = Callable[[WindowDataset, IntArray], FloatArray]
Forecast = Callable[[WindowDataset, IntArray], Forecasts]


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
    sums, quantile_sums = ErrorSums(*sizes), QuantileSums(*sizes, levels)
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
