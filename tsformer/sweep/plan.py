"""The command line of a sweep, understood: what is alike, what is varied, and by whom."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from tsformer.config import parse_fit
from tsformer.data.locking import alone
from tsformer.data.writing import write_atomically
from tsformer.errors import ConfigError, TsformerError
from tsformer.settings import flatten, parse
from tsformer.sweep.config import SweepConfig
from tsformer.sweep.space import (
    Dimension,
    Values,
    configured,
    grid_space,
    probes,
    search_space,
    split,
)

MISTAKES = (TsformerError, HydraException, OmegaConfBaseException)
# Keys of conf/fit.yaml that are no settings of a fit.
_NO_SETTINGS = ("sweep", "resume")
# What may differ when a sweep is resumed.
_FREE = (*_NO_SETTINGS, "trial", "paths", "verbose", "num_workers")

Settings = dict[str, Any]
Compose = Callable[[Sequence[str]], Settings]
T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What a sweep does.

    Attributes:
        fixed: overrides that all jobs share.
        space: what is varied, by key; of a grid choices only.
        search: how Optuna searches; None: a grid.
        settings: of one of the jobs, resolved.
    """

    fixed: list[str]
    space: dict[str, Dimension]
    search: SweepConfig | None
    settings: Settings

    @property
    def monitor(self) -> str:
        """What the objective is."""
        return str(self.settings["callbacks"]["monitor"])


def make_plan(arguments: Sequence[str], parser: OverridesParser, compose: Compose) -> Plan:
    """Understand a command line, and tell mistakes that all jobs would share.

    Args:
        arguments: overrides.
        parser: of overrides.
        compose: gives the settings of a job with some overrides.

    Raises:
        ConfigError: a setting is wrong, or nothing is varied by a search.
        HydraException: an override is wrong.
    """
    fixed, swept = split(parser.parse_overrides(list(arguments)))
    given = search_space(swept)
    settings = _first(probes(given), lambda values: compose(lines(fixed, values)))
    space: dict[str, Dimension]
    search = None
    if (chosen := settings.get("sweep")) is None:
        space = {**grid_space(swept)}
    else:
        search = parse(SweepConfig, chosen)
        keys = [*swept, *(line.split("=")[0] for line in fixed)]
        space = {**search_space(configured(search.space or {}, keys, parser)), **given}
        if not space:
            raise ConfigError(
                "nothing is searched: choose a space, such as sweep/space=training, or give "
                "settings to vary, such as model.d_model=32,64"
            )
    return Plan(
        fixed, space, search, _first(probes(space), lambda v: _fit(lines(fixed, v), compose))
    )


def lines(fixed: Sequence[str], values: Values) -> list[str]:
    """Return the overrides of a job."""
    return [*fixed, *(f"{key}={value}" for key, value in values.items())]


def keep_plan(plan: Plan, folder: Path) -> bool:
    """Write sweep.json, by which a sweep that is resumed is known to be the same.

    Returns:
        Whether there is such a sweep already, which goes on.

    Raises:
        ConfigError: the folder holds another sweep, or a part of one.
    """
    told = {
        "sweep": "grid" if plan.search is None else "search",
        "space": {key: str(dimension) for key, dimension in plan.space.items()},
        "settings": flatten({k: v for k, v in plan.settings.items() if k not in _FREE}),
        **({"storage": plan.search.storage} if plan.search else {}),
    }
    told = json.loads(json.dumps(told))
    file = folder / "sweep.json"
    if file.exists():
        try:
            before, now = flatten(json.loads(file.read_text())), flatten(told)
        except (ValueError, AttributeError) as error:
            raise ConfigError(
                f"{file}: damaged. Choose another hydra.sweep.dir, or remove the file if the "
                "command is the one that the sweep began with."
            ) from error
        for key in sorted({*before, *now}, key=lambda key: key.startswith("settings.")):
            if before.get(key) != now.get(key):
                raise ConfigError(
                    f"{folder}: holds another sweep, of {key}={before.get(key)}; now it is "
                    f"{now.get(key)}. Give what it began with, or another hydra.sweep.dir."
                )
        return True
    if (folder / "multirun.yaml").exists() and not any(folder.glob("*/trial.json")):
        raise ConfigError(
            f"{folder}: holds another sweep, which cannot be resumed. Choose another "
            "hydra.sweep.dir."
        )
    write_atomically(file, json.dumps(told, indent=1))
    return False


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold the folder of a sweep, which no other process then can.

    Raises:
        ConfigError: another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(alone(folder / ".sweep.lock", wait=False))
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another process runs this sweep. Wait for it, or end it."
            ) from None
        yield


def _fit(overrides: Sequence[str], compose: Compose) -> Settings:
    settings = compose(overrides)
    parse_fit({key: value for key, value in settings.items() if key not in _NO_SETTINGS})
    return settings


def _first(points: Iterable[Values], attempt: Callable[[Values], T]) -> T:
    """Return what the first point gives that is no mistake.

    Raises:
        Exception: that of the first point, if all are mistakes.
    """
    mistake: Exception | None = None
    for point in points:
        try:
            return attempt(point)
        except MISTAKES as error:
            mistake = mistake or error
    assert mistake is not None
    raise mistake
