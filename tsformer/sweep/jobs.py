"""Which job of a sweep comes next: of a grid all in order, of a search as Optuna draws them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tsformer.sweep import study as studies
from tsformer.sweep.config import SweepConfig
from tsformer.sweep.result import Record, Result, forget_result, read_result
from tsformer.sweep.space import Choice, Dimension, Values, grid


@dataclass(frozen=True)
class Job:
    """One job of a sweep.

    Attributes:
        number: of the job, and of its trial.
        values: of the swept settings.
        overrides: all of its command line.
        folder: its run folder.
        mistake: why it cannot be launched, or None.
    """

    number: int
    values: Values
    overrides: Sequence[str]
    folder: Path
    mistake: str | None = None


Prepare = Callable[[int, Values], Job]


class Jobs(Protocol):
    """Where the jobs of a sweep come from."""

    records: list[Record]

    def batch(self, size: int) -> list[Job]:
        """Return jobs to run now, whose numbers follow each other; none: the sweep is over."""

    def record(self, job: Job, result: Result) -> None:
        """Keep how a job ended."""


class Grid:
    """All combinations; what is finished is not run again, what failed is."""

    def __init__(self, space: Mapping[str, Choice], prepare: Prepare, *, resumed: bool) -> None:
        """Look for jobs that are finished, if the sweep is resumed."""
        self.records: list[Record] = []
        self._prepare = prepare
        self._pending = dict(enumerate(grid(space)))
        for number, values in list(self._pending.items()) if resumed else ():
            job = prepare(number, values)
            result = read_result(job.folder)
            if result is not None and result.state != "failed":
                self.record(job, result)
                del self._pending[number]
            else:
                forget_result(job.folder)

    def batch(self, size: int) -> list[Job]:
        """See `Jobs`."""
        jobs: list[Job] = []
        number = next(iter(self._pending), 0)
        while number in self._pending and len(jobs) < size:
            jobs.append(self._prepare(number, self._pending.pop(number)))
            number += 1
        return jobs

    def record(self, job: Job, result: Result) -> None:
        """See `Jobs`."""
        self.records.append(Record(job.number, job.values, job.folder, result))


class Search:
    """Trials of an Optuna study; those that were running when it was killed come first."""

    def __init__(
        self,
        study: Any,
        space: Mapping[str, Dimension],
        config: SweepConfig,
        prepare: Prepare,
    ) -> None:
        """Look through the trials of the study."""
        self.records: list[Record] = []
        self._study, self._space, self._config, self._prepare = study, space, config, prepare
        self._began = time.monotonic()
        self._pending: dict[int, Job] = {}
        trials = study.get_trials(deepcopy=False)
        self._next = len(trials)
        for trial in trials:
            _, values = studies.ask(study, space, config, trial.number)
            job = prepare(trial.number, values)
            result = read_result(job.folder)
            if trial.state.is_finished():
                self._keep(job, result or _result_of(trial))
            elif result is not None:
                self.record(job, result)
            else:
                self._pending[trial.number] = job

    def batch(self, size: int) -> list[Job]:
        """See `Jobs`."""
        jobs: list[Job] = []
        number = min(self._pending, default=self._next)
        while len(jobs) < size:
            if number in self._pending:
                jobs.append(self._pending.pop(number))
            elif number == self._next and self._may_ask():
                _, values = studies.ask(self._study, self._space, self._config)
                jobs.append(self._prepare(number, values))
                self._next += 1
            else:
                break
            number += 1
        return jobs

    def record(self, job: Job, result: Result) -> None:
        """See `Jobs`."""
        studies.tell(self._study, job.number, result)
        self._keep(job, result)

    def _keep(self, job: Job, result: Result) -> None:
        self.records.append(Record(job.number, job.values, job.folder, result))

    def _may_ask(self) -> bool:
        timeout = self._config.timeout
        late = timeout is not None and time.monotonic() - self._began > timeout
        return self._next < self._config.n_trials and not late


def _result_of(trial: Any) -> Result:
    """Return what the study knows of a trial whose run folder is gone."""
    states = {"COMPLETE": "complete", "PRUNED": "pruned"}
    state: Any = states.get(trial.state.name, "failed")
    return Result(state, None if state == "failed" else trial.value)
