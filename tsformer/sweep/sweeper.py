"""The sweeper of `fit.py -m`: Hydra's launchers run the jobs, and one that fails ends no other."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from tsformer.console import open_console
from tsformer.errors import ConfigError, TsformerError
from tsformer.sweep import board
from tsformer.sweep.jobs import Grid, Job, Jobs, Search
from tsformer.sweep.plan import MISTAKES, Plan, held, keep_plan, lines, make_plan
from tsformer.sweep.result import Result, read_result, told, write_result
from tsformer.sweep.space import Choice, Values

log = logging.getLogger(__name__)


_PACKAGE, _NAME = "hydra_plugins", "tsformer"


def register() -> None:
    """Let Hydra find the sweeper: 1.3 instantiates what is in the package hydra_plugins only.

    That package is of all plugins that are installed, and Hydra imports what is in there for any
    script; the name alone is put there, in this process.
    """
    Plugins.instance().register(TrialSweeper)
    package = sys.modules.setdefault(_PACKAGE, ModuleType(_PACKAGE))  # none where none is installed
    sys.modules[TrialSweeper.__module__] = sys.modules[__name__]
    setattr(package, _NAME, sys.modules[__name__])


class TrialSweeper(Sweeper):
    """Runs a grid, or with `sweep=...` an Optuna search, and resumes one that was killed."""

    __module__ = f"{_PACKAGE}.{_NAME}"
    config: DictConfig
    hydra_context: HydraContext
    launcher: Launcher

    def __init__(self, max_batch_size: int | None = None) -> None:
        """Take what conf/hydra/sweeper/tsformer.yaml sets."""
        self.max_batch_size = max_batch_size

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra gives."""
        self.config = config
        self.hydra_context = hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> float:
        """Run all jobs that are not finished.

        Args:
            arguments: overrides of the command line, less Hydra's own.

        Returns:
            The objective of the winner.

        Raises:
            TsformerError: all jobs failed, or the settings can be told to be wrong beforehand.
        """
        self.folder = Path(str(self.config.hydra.sweep.dir))
        self.numbers: dict[Path, int] = {}  # of jobs, by run folder
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        self.plan = make_plan(arguments, parser, lambda overrides: self._compose(overrides)[1])
        with held(self.folder):
            return self._run(keep_plan(self.plan, self.folder))

    def _run(self, resumed: bool) -> float:
        OmegaConf.save(self.config, self.folder / "multirun.yaml")
        jobs = self._jobs(resumed)
        if jobs.records:
            log.info("%s jobs are finished already", len(jobs.records))
        while batch := jobs.batch(self._batch_size()):
            for job, result in self._launch(batch):
                jobs.record(job, result)
            self._write(jobs)
        self._write(jobs)
        self._show(jobs)
        best = board.winner(jobs.records)
        if best is None:
            raise TsformerError(
                f"{self.folder}: no job of {len(jobs.records)} succeeded; sweep.csv has the "
                f"reasons, the last of which is: {jobs.records[-1].result.message}"
            )
        log.info("Best: job %s, %s", best.number, self.folder / "best")
        return board.objective(best)

    def _jobs(self, resumed: bool) -> Jobs:
        plan = self.plan
        if plan.search is None:
            choices = {k: d for k, d in plan.space.items() if isinstance(d, Choice)}
            return Grid(choices, self._prepare, resumed=resumed)
        from tsformer.sweep.study import open_study

        self.study = open_study(*self._storage(plan), plan.search)
        return Search(self.study, plan.space, plan.search, self._prepare)

    def _storage(self, plan: Plan) -> tuple[str, str]:
        """Return the storage of the study, and its name there."""
        folder = self.folder.resolve()
        if plan.search is None or plan.search.storage is None:
            return str(folder / "study.journal"), "sweep"
        return plan.search.storage, str(folder)

    def _batch_size(self) -> int:
        """Return how many jobs the launcher runs at once."""
        size = self.max_batch_size or self.config.hydra.launcher.get("n_jobs") or 1
        return int(size) if int(size) > 0 else os.cpu_count() or 1

    def _prepare(self, number: int, values: Values) -> Job:
        trial: dict[str, Any] = {"number": number}
        if self.plan.search is not None:
            storage, study = (
                QuotedString(text, Quote.single).with_quotes() for text in self._storage(self.plan)
            )
            trial |= {"storage": storage, "study": study}
        told_which = ",".join(f"{key}:{value}" for key, value in trial.items())
        overrides = [*lines(self.plan.fixed, values), f"trial={{{told_which}}}"]
        try:
            folder, _ = self._compose(overrides, number)
        except MISTAKES as error:
            return Job(number, values, overrides, self.folder / str(number), str(error))
        if (other := self.numbers.setdefault(folder, number)) != number:
            raise ConfigError(
                f"hydra.sweep.subdir: jobs {other} and {number} would share {folder}. Put "
                "${hydra.job.num} into it, or leave it out."
            )
        return Job(number, values, overrides, folder)

    def _compose(self, overrides: Sequence[str], number: int = 0) -> tuple[Path, dict[str, Any]]:
        """Return the run folder and the settings of a job."""
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.num = config.hydra.job.id = number
            folder = Path(str(self.config.hydra.sweep.dir)) / str(config.hydra.sweep.subdir)
            config.hydra.runtime.output_dir = str(folder.absolute())
            with _hydra_config(config):
                del config["hydra"]
                settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        return folder, settings  # type: ignore[return-value]

    def _launch(self, batch: list[Job]) -> Iterator[tuple[Job, Result]]:
        """Run jobs at once, and give how each ended, even if it took its process with it."""
        for job in batch:
            if job.mistake is not None:
                write_result(job.folder, Result("failed", message=job.mistake))
        for group in _neighbours([job for job in batch if job.mistake is None]):
            self._launch_group(group)
        for job in batch:
            result = read_result(job.folder)
            assert result is not None
            values = " ".join(f"{key}={value}" for key, value in job.values.items())
            how = result.message if result.objective is None else f"{result.objective:.4g}"
            log.info("Job %s (%s) %s: %s", job.number, values, result.state, how)
            yield job, result

    def _launch_group(self, group: list[Job]) -> None:
        try:
            returns: Sequence[JobReturn | None] = self.launcher.launch(
                [list(job.overrides) for job in group], initial_job_idx=group[0].number
            )
            reason = "it returned without a result"
        except Exception as error:  # the launcher's own: a process died, and its neighbours' news
            returns, reason = [None] * len(group), told(error)
        for job, returned in zip(group, returns, strict=True):
            if read_result(job.folder) is not None:
                continue
            if returned is None and len(group) > 1:
                self._launch_group([job])  # alone, so that it fails alone
                continue
            if returned is not None and returned.status == JobStatus.FAILED:
                reason = told(returned._return_value)
            write_result(job.folder, Result("failed", message=reason))

    def _write(self, jobs: Jobs) -> None:
        board.write_csv(jobs.records, list(self.plan.space), self.folder)
        board.point_to_best(jobs.records, self.folder)

    def _show(self, jobs: Jobs) -> None:
        space, monitor = self.plan.space, self.plan.monitor
        open_console().print(board.leaderboard(jobs.records, list(space), monitor))
        complete = [record for record in jobs.records if record.result.state == "complete"]
        if len(space) > 1 and len(complete) > 1:
            importances = {}
            if self.plan.search is not None:
                from tsformer.sweep.study import importances_of

                importances = importances_of(self.study)
            board.draw(jobs.records, space, importances, monitor, self.folder)


@contextmanager
def _hydra_config(config: DictConfig) -> Iterator[None]:
    """Let `${hydra:...}` mean that of a config."""
    before = HydraConfig.instance().cfg
    HydraConfig.instance().set_config(config)
    try:
        yield
    finally:
        HydraConfig.instance().cfg = before


def _neighbours(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return jobs in groups whose numbers follow each other, as launchers count them."""
    groups: list[list[Job]] = []
    for job in jobs:
        if groups and groups[-1][-1].number == job.number - 1:
            groups[-1].append(job)
        else:
            groups.append([job])
    return groups
