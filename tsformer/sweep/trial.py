"""One job of a sweep, and `trial.json`, which it leaves in its run folder."""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tsformer.config import parse_fit
from tsformer.data.locking import alone
from tsformer.data.writing import write_atomically
from tsformer.errors import TsformerError

log = logging.getLogger(__name__)
_FILE = "trial.json"


@dataclass(frozen=True)
class Result:
    """How a trial ended.

    Attributes:
        state: how.
        objective: the best validation error; None where it failed.
        seconds: that it took.
        message: why it failed.
    """

    state: Literal["complete", "pruned", "failed"]
    objective: float | None = None
    seconds: float | None = None
    message: str = ""


def read_result(folder: Path) -> Result | None:
    """Return how the trial of a run folder ended, or None if it has not."""
    try:
        return Result(**json.loads((folder / _FILE).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):  # not there, or damaged
        return None


def write_result(folder: Path, result: Result) -> None:
    """Keep how the trial of a run folder ended."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _FILE, json.dumps(asdict(result), indent=1))


def forget_result(folder: Path) -> None:
    """Let a trial be run again."""
    (folder / _FILE).unlink(missing_ok=True)


def fit_trial(settings: Mapping[str, Any]) -> float | None:
    """Fit, and leave `trial.json`, also of a fit that fails.

    A process of a sweep that was killed may still be at this trial: it is waited for.

    Args:
        settings: of the fit.

    Returns:
        The objective.
    """
    run = Path(settings["paths"]["run"])
    run.mkdir(parents=True, exist_ok=True)
    with _held(run):
        if (result := read_result(run)) is not None:
            return result.objective
        began = time.perf_counter()
        try:
            parse_fit(settings)  # tells mistakes before torch is loaded, which takes seconds
            if (objective := _finished(run)) is not None:  # by fit.py resume=...
                write_result(run, Result("complete", objective))
                return objective
            from tsformer.run_folder import SETTINGS
            from tsformer.training import fit

            if (run / SETTINGS).exists():  # the sweep was killed, and this trial with it
                settings = {**settings, "resume": str(run)}
            outcome = fit(settings)
        except Exception as error:
            seconds = round(time.perf_counter() - began, 1)
            write_result(run, Result("failed", None, seconds, told(error)))
            if isinstance(error, TsformerError):
                log.error("error: %s", error)
            else:
                log.exception("A bug, or a lack of memory or space:")
            raise
        seconds = round(time.perf_counter() - began, 1)
        state: Literal["complete", "pruned"] = "pruned" if outcome.pruned else "complete"
        write_result(run, Result(state, outcome.objective, seconds))
        return outcome.objective


@contextmanager
def _held(run: Path) -> Iterator[None]:
    lock = run / ".trial.lock"
    with ExitStack() as stack:
        try:
            stack.enter_context(alone(lock, wait=False))
        except BlockingIOError:
            log.info("%s: a process of the sweep that was killed is still at it; waiting", run)
            stack.enter_context(alone(lock))
        yield


def _finished(run: Path) -> float | None:
    """Return the objective of a run that is finished, None if it is not."""
    try:
        return float(json.loads((run / "metrics.json").read_text(encoding="utf-8"))["objective"])
    except FileNotFoundError:
        return None


def told(error: BaseException) -> str:
    """Return what an error says, with its type if the user did not cause it."""
    return str(error) if isinstance(error, TsformerError) else f"{type(error).__name__}: {error}"
