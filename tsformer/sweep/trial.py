"""One job of a sweep: a fit that leaves how it ended."""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tsformer.config import parse_fit
from tsformer.data.locking import alone
from tsformer.errors import TsformerError
from tsformer.places import METRICS, SETTINGS
from tsformer.sweep.result import Result, read_result, told, write_result

if TYPE_CHECKING:
    from tsformer.training import FitResult

log = logging.getLogger(__name__)


def fit_trial(
    settings: Mapping[str, Any], fit: Callable[[Mapping[str, Any]], "FitResult"]
) -> float | None:
    """Fit, and leave `trial.json`, also of a fit that fails.

    A process of a sweep that was killed may still be at this trial: it is waited for.

    Args:
        settings: of the fit.
        fit: see `tsformer.training.fit`.

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
            log.info(
                "%s: a process of the killed sweep is still using this run folder; waiting", run
            )
            stack.enter_context(alone(lock))
        yield


def _finished(run: Path) -> float | None:
    """Return the objective of a run that is finished, None if it is not."""
    try:
        return float(json.loads((run / METRICS).read_text(encoding="utf-8"))["objective"])
    except FileNotFoundError:
        return None
