"""What the benchmark of accuracy is asked for, and the tasks that follow from it."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from tsformer.benchmarks.linear import RECIPES, TRAINING
from tsformer.benchmarks.statistical import METHODS, is_installed
from tsformer.config import DatasetConfig, PathsConfig
from tsformer.data.catalog import find_file
from tsformer.errors import ConfigError, DataError
from tsformer.evaluation.testing import MODEL
from tsformer.places import CONF
from tsformer.settings import parse

# Steps that the linear baselines see, as in Zeng et al. 2023.
LOOK_BACKS = {"illness": 104}
LOOK_BACK = 336
# Windows that statistical models are fitted to, one by one, spread evenly over all test windows.
FEW = 200
# Settings that change no figure.
_UNRELATED = {"paths", "logger", "num_workers", "eval_batch_size"}
_DESCRIPTIVE = {"source", "url", "sha256", "licence", "unit", "suggested"}


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


class Task(NamedTuple):
    """One method, or some that are computed together, on one dataset, horizon and seed.

    Attributes:
        name: of the runner; see `accuracy_scores.RUNNERS`.
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
        "output": "runs/accuracy",
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
    look_backs = _numbers("look_back", asked["look_back"], least=1)
    if len(look_backs) > 1:
        raise ConfigError(f"look_back={look_backs}: expected one number")
    return Plan(
        datasets=_listed("dataset", asked["dataset"], str, "names"),
        horizons=_numbers("horizon", asked["horizon"], least=1),
        seeds=_numbers("seed", asked["seed"], least=0),
        output=Path(str(asked["output"])).expanduser(),
        look_back=next(iter(look_backs), None),
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


def check_data(tasks: list[Task]) -> None:
    """Raise DataError now, not after hours, if a dataset's file is missing."""
    for settings in {task.dataset: task.settings for task in tasks}.values():
        _find_data(settings)


def _content_of(settings: dict[str, Any]) -> str:
    """Return a hash of a dataset's file; of several files, their names, sizes and times."""
    try:
        path = _find_data(settings)
    except DataError:  # told by `check_data`, if a task needs it
        return ""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    files = path.rglob("*") if path.is_dir() else path.parent.glob(path.name)
    stats = [(str(file), file.stat()) for file in sorted(files)]
    return str([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])
