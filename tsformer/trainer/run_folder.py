"""The folder of one fit: whose it is, and whether its training can go on."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import torch
import yaml

from tsformer.config import FitConfig
from tsformer.data.files import match_files
from tsformer.data.locking import alone
from tsformer.data.writing import naming_full_disk
from tsformer.errors import ConfigError, TrainingError
from tsformer.model.checkpoint import BEST, LAST, SETTINGS_KEY, WORLD_KEY
from tsformer.places import CHECKPOINTS, METRICS, PROVENANCE, SETTINGS
from tsformer.settings import flatten, parse


def read_settings(run: Path) -> dict[str, Any]:
    """Return the settings of a run that is to go on.

    Raises:
        ConfigError: the folder holds no run, or one that is finished.
    """
    if not (run / SETTINGS).is_file():
        raise ConfigError(f"{run}: there is no run to resume here, as {SETTINGS} is missing.")
    try:
        settings = yaml.safe_load((run / SETTINGS).read_text(encoding="utf-8"))
        settings["paths"]["run"] = settings["resume"] = str(run)  # which may have been moved
        _place_data(settings, run)
    except (yaml.YAMLError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{run}: {SETTINGS} or {PROVENANCE} is damaged ({error!r}), and the run cannot go on."
        ) from error
    if (run / METRICS).exists():
        raise ConfigError(f"{run}: the run is finished; its model is {run / 'model'}.")
    if not settings["dataset"]["path"]:  # a fine-tuning names no table
        raise ConfigError(f"{run}: a fine-tuning, which does not go on. Run it anew elsewhere.")
    return settings


def _place_data(settings: dict[str, Any], run: Path) -> None:
    """Make relative places of the data those of the folder that the run was started in."""
    if not (run / PROVENANCE).is_file():
        return
    folder = Path(json.loads((run / PROVENANCE).read_text(encoding="utf-8"))["folder"])
    path, data = folder / settings["dataset"]["path"], folder / settings["paths"]["data"]
    if path.exists() or match_files(path):
        settings["dataset"]["path"] = str(path)
    settings["paths"]["data"] = str(data)


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
            raise ConfigError(f"{run}: another process is using this run folder.") from None
        stood = not _create(path, text)
        if stood and not go_on:
            done = (run / METRICS).exists() or not config.dataset.path  # of a fine-tuning
            go = "" if done else f", or resume that run: resume={run}"
            raise ConfigError(
                f"{run}: holds another run. Choose another folder (hydra.run.dir=..., of "
                f"fine_tune.py output=...){go}"
            )
        if stood and (run / METRICS).exists():
            raise ConfigError(f"{run}: the run is finished; its model is {run / 'model'}.")
        if stood:
            before = parse(FitConfig, yaml.safe_load(path.read_text(encoding="utf-8")))
            _compare(run, training_settings(before), training_settings(config))
        yield stood


def _create(path: Path, text: str) -> bool:
    """Write a whole file where none is; return False if there is one."""
    partial = path.with_name(f".{path.name}-{uuid4().hex[:8]}")
    try:
        with naming_full_disk(path):
            partial.write_text(text, encoding="utf-8")
        path.hardlink_to(partial)
    except FileExistsError:
        return False
    except OSError:  # a file system without links
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(text)
            return True
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def training_settings(config: FitConfig) -> str:
    """Return, as JSON, the settings that a training follows from: all but places and looks."""
    free = {"paths", "resume", "trial", "verbose", "report", "logger", "num_workers"}
    settings = config.model_dump(mode="json", exclude=free)
    settings["dataset"]["path"] = None  # what lies there is compared
    settings["trainer"]["progress_bar"] = None
    return json.dumps(settings)


def _compare(run: Path, before: str, now: str) -> None:
    """Refuse to go on with other settings than a run began with."""
    one, other = flatten(json.loads(before)), flatten(json.loads(now))
    for key in sorted(one.keys() | other.keys()):
        if one.get(key) != other.get(key):
            raise ConfigError(
                f"{run}: holds a run with other settings: {key}={one.get(key)}, and not "
                f"{other.get(key)}. A run resumes only with its original settings. Start a new run "
                "to use these."
            )


class Place(NamedTuple):
    """Where a training goes on.

    Attributes:
        checkpoint: file of its state.
        step: optimiser steps done.
    """

    checkpoint: Path
    step: int


def find_place(run: Path, config: FitConfig, world_size: int) -> Place | None:
    """Return where the training of a run goes on; None where it has written no checkpoint yet.

    Raises:
        ConfigError: the training had other settings.
        TrainingError: a checkpoint is damaged, or of another number of ranks.
    """
    path = run / CHECKPOINTS / LAST
    if not path.exists():
        return None
    last = _read(path, "Remove it to start the training again.")
    try:
        ranks, step, settings = last[WORLD_KEY], last["global_step"], last[SETTINGS_KEY]
        best_step = last["callbacks"]["Checkpoints"]["best_step"]
    except KeyError as error:
        raise TrainingError(f"{path}: not a checkpoint of a fit, without {error}.") from error
    if ranks != world_size:
        raise TrainingError(
            f"{path}: a training by {ranks} processes, which cannot continue with {world_size}, as "
            "each has its own windows."
        )
    _compare(run, settings, training_settings(config))
    if best_step:
        _read(run / CHECKPOINTS / BEST, f"Remove {LAST} to start the training again.")
    return Place(path, step)


def _read(path: Path, remedy: str) -> Any:
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return {**checkpoint}
    except Exception as error:  # a damaged pickle may raise anything
        raise TrainingError(f"{path}: damaged, or not a checkpoint of a fit. {remedy}") from error
