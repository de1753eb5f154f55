"""The folder of one fit: whose it is, and whether its training can go on."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import torch
import yaml

from tsformer.checkpoint import LAST, WORLD_KEY
from tsformer.config import FitConfig
from tsformer.data.locking import alone
from tsformer.errors import ConfigError, TrainingError

SETTINGS, METRICS, CHECKPOINTS = "config.yaml", "metrics.json", "checkpoints"


def read_settings(run: Path) -> dict[str, Any]:
    """Return the settings of a run that is to go on.

    Raises:
        ConfigError: the folder holds no run, or one that is finished.
    """
    if not (run / SETTINGS).is_file():
        raise ConfigError(f"{run}: there is no run to go on with, as it has no {SETTINGS}.")
    try:
        settings = yaml.safe_load((run / SETTINGS).read_text(encoding="utf-8"))
        settings["paths"]["run"] = settings["resume"] = str(run)  # which may have been moved
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError) as error:
        raise ConfigError(f"{run / SETTINGS}: damaged, not the settings of a run.") from error
    if (run / METRICS).exists():
        raise ConfigError(f"{run}: the run is finished; its model is {run / 'model'}.")
    return settings


@contextmanager
def claimed(run: Path, config: FitConfig, *, go_on: bool = False) -> Iterator[bool]:
    """Hold the run folder, which no other fit then can.

    Args:
        run: the folder; its config.yaml says whose it is.
        config: the settings of the fit.
        go_on: take a run that stands there, if its settings are these.

    Yields:
        Whether a run stood there.

    Raises:
        ConfigError: another run is there, or another process is at it.
    """
    text = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    run.mkdir(parents=True, exist_ok=True)
    path = run / SETTINGS
    with ExitStack() as stack:
        try:
            stack.enter_context(alone(run / ".run.lock", wait=False))
        except BlockingIOError:
            raise ConfigError(f"{run}: another process is at this run.") from None
        stood = not _create(path, text)
        if stood and not go_on:
            raise ConfigError(
                f"{run}: holds another run. Choose another folder, hydra.run.dir=... of a fit or "
                f"output=..., or go on with that run: python scripts/fit.py resume={run}"
            )
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
        if stood and _but_place(before) != _but_place(yaml.safe_load(text)):
            raise ConfigError(f"{run}: holds a run with other settings, see {path}.")
        yield stood


def _create(path: Path, text: str) -> bool:
    """Write a whole file where none is; return False if there is one."""
    partial = path.with_name(f".{path.name}-{uuid4().hex[:8]}")
    partial.write_text(text, encoding="utf-8")
    try:
        path.hardlink_to(partial)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(text)
            return True
        return False
    finally:
        partial.unlink()
    return True


def _but_place(settings: Any) -> Any:
    return {**settings, "paths": {**settings["paths"], "run": None}, "resume": None, "trial": None}


class Place(NamedTuple):
    """Where a training goes on.

    Attributes:
        checkpoint: file of its state.
        step: optimiser steps done.
    """

    checkpoint: Path
    step: int


def find_place(run: Path, world_size: int) -> Place | None:
    """Return where the training of a run goes on; None where it has written no checkpoint yet.

    Raises:
        TrainingError: the checkpoint is damaged, or of another number of ranks.
    """
    path = run / CHECKPOINTS / LAST
    if not path.exists():
        return None
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        ranks, step = checkpoint[WORLD_KEY], checkpoint["global_step"]
    except Exception as error:  # a damaged pickle may raise anything
        raise TrainingError(
            f"{path}: damaged, or not a checkpoint of a fit. Remove it to begin the training anew."
        ) from error
    if ranks != world_size:
        raise TrainingError(
            f"{path}: a training by {ranks} processes, which cannot go on with {world_size}, as "
            "each has its own windows."
        )
    return Place(path, step)
