"""Trials in Optuna's storage, as sweeps that are killed leave and find them."""

import sys
from pathlib import Path

import pytest

from tsformer.config import TrialConfig
from tsformer.errors import ConfigError
from tsformer.sweep.config import PrunerConfig, SweepConfig
from tsformer.sweep.jobs import Grid, Job, Search
from tsformer.sweep.result import Result, read_result, write_result
from tsformer.sweep.space import Choice, Interval, Values
from tsformer.sweep.study import ask, load_trial, open_study, tell

SPACE = {"lr": Interval(1e-4, 1e-2, log=True), "width": Choice(("8", "16"))}


def make_config(**changes) -> SweepConfig:
    given = {
        "sampler": "tpe",
        "n_startup_trials": 2,
        "seed": 0,
        "n_trials": 6,
        "timeout": None,
        "storage": None,
        "pruner": PrunerConfig(name="median", n_startup_trials=2, n_warmup_steps=1),
    }
    return SweepConfig(**{**given, **changes})


def loss(values: Values) -> float:
    return abs(float(values["lr"]) - 1e-3) + float(values["width"])


class Sweep:
    """A sweep in a folder, whose jobs are no fits."""

    def __init__(self, folder: Path, *, storage: str | None = None) -> None:
        self.folder, self.config = folder, make_config()
        study = open_study(storage or str(folder / "study.journal"), "sweep", self.config)
        self.jobs = Search(study, SPACE, self.config, self.prepare)

    def prepare(self, number: int, values: Values) -> Job:
        return Job(number, values, [], self.folder / str(number))

    def run(self, size: int, batches: int = 100) -> None:
        for _ in range(batches):
            for job in self.jobs.batch(size):
                write_result(job.folder, Result("complete", loss(job.values)))
                self.jobs.record(job, Result("complete", loss(job.values)))

    @property
    def trials(self) -> dict[int, Values]:
        return {record.number: record.values for record in self.jobs.records}


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"])
def test_a_search_that_is_killed_ends_with_the_trials_of_one_that_is_not(
    storage: str | None, tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    whole = Sweep(tmp_path / "whole")
    whole.run(2)
    assert list(whole.trials) == [0, 1, 2, 3, 4, 5]

    (tmp_path / "killed").mkdir()
    place = storage.format(tmp_path) if storage else None
    killed = Sweep(tmp_path / "killed", storage=place)
    killed.run(2, batches=1)
    first, second = killed.jobs.batch(2)
    write_result(second.folder, Result("complete", loss(second.values)))  # and none has heard of it
    resumed = Sweep(tmp_path / "killed", storage=place)
    assert sorted(resumed.trials) == [0, 1, 3]
    (again,) = resumed.jobs.batch(1)
    assert again == first
    resumed = Sweep(tmp_path / "killed", storage=place)
    resumed.run(2)
    assert sorted(resumed.trials) == [0, 1, 2, 3, 4, 5]
    assert [resumed.trials[n] for n in range(4)] == [whole.trials[n] for n in range(4)]


def test_numbers_of_a_batch_follow_each_other(tmp_path: Path) -> None:
    killed = Sweep(tmp_path)
    jobs = killed.jobs.batch(3)
    write_result(jobs[1].folder, Result("pruned", 1.0))
    resumed = Sweep(tmp_path)
    assert [job.number for job in resumed.jobs.batch(3)] == [0]
    assert [job.number for job in resumed.jobs.batch(3)] == [2, 3, 4]
    assert [job.number for job in resumed.jobs.batch(3)] == [5]
    assert resumed.jobs.batch(3) == []


def test_trials_that_fail_count_and_teach_nothing(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    while batch := sweep.jobs.batch(1):
        sweep.jobs.record(batch[0], Result("failed", message="no"))
    assert len(sweep.trials) == 6
    assert {record.result.state for record in Sweep(tmp_path).jobs.records} == {"failed"}


def test_no_trial_begins_after_the_timeout(tmp_path: Path) -> None:
    study = open_study(str(tmp_path / "study.journal"), "sweep", make_config())
    late = Search(study, SPACE, make_config(timeout=1e-9), Sweep(tmp_path).prepare)
    assert late.batch(2) == []


def test_a_trial_is_pruned_if_others_were_better_by_then(tmp_path: Path) -> None:
    config, place = make_config(), str(tmp_path / "study.journal")
    study = open_study(place, "sweep", config)
    for value in (1.0, 3.0):  # n_startup_trials
        number, _ = ask(study, SPACE, config)
        trial = load_trial(TrialConfig(number=number, storage=place, study="sweep"))
        for step in (1, 2, 3):
            trial.report(value, step)
            assert not trial.should_prune()
        tell(study, number, Result("complete", value))
    number, _ = ask(study, SPACE, config)
    bad = load_trial(TrialConfig(number=number, storage=place, study="sweep"))
    bad.report(2.5, 1)
    assert not bad.should_prune()  # n_warmup_steps
    bad.report(2.5, 2)
    assert bad.should_prune()
    tell(study, number, Result("pruned", 2.5))
    assert study.best_value == 1.0


def test_a_storage_that_cannot_be_opened_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"sweep\.storage=nosql://x"):
        open_study("nosql://x", "sweep", make_config())


def test_without_optuna_a_search_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"pip install 'tsformer\[sweep\]'"):
        open_study(str(tmp_path / "study.journal"), "sweep", make_config())


def test_a_grid_runs_again_what_failed_and_nothing_else(tmp_path: Path) -> None:
    space = {"a": Choice(("1", "2")), "b": Choice(("x", "y"))}

    def prepare(number: int, values: Values) -> Job:
        return Job(number, values, [], tmp_path / str(number))

    jobs = Grid(space, prepare, resumed=False)
    assert [job.number for job in jobs.batch(3)] == [0, 1, 2]
    assert [job.values for job in jobs.batch(3)] == [{"a": "2", "b": "y"}]
    write_result(tmp_path / "1", Result("failed", message="no"))
    write_result(tmp_path / "2", Result("complete", 0.5))
    jobs = Grid(space, prepare, resumed=True)
    assert [record.number for record in jobs.records] == [2]
    assert [job.number for job in jobs.batch(4)] == [0, 1]
    assert [job.number for job in jobs.batch(4)] == [3]
    assert not (tmp_path / "1" / "trial.json").exists()


def test_a_journal_that_was_cut_goes_on(tmp_path):
    Sweep(tmp_path).run(2, batches=2)
    journal = tmp_path / "study.journal"
    journal.write_bytes(journal.read_bytes()[:-30])  # in the midst of how the last trial ended
    sweep = Sweep(tmp_path)
    sweep.run(2)
    assert [record.number for record in sweep.jobs.records] == list(range(6))
    Sweep(tmp_path)


def test_a_damaged_journal_is_named(tmp_path):
    Sweep(tmp_path).run(2, batches=2)
    journal = tmp_path / "study.journal"
    first, *others = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([first[:20] + b"\n", *others]))
    with pytest.raises(ConfigError, match=r"study\.journal: damaged"):
        Sweep(tmp_path)


def test_a_damaged_result_counts_as_none(tmp_path):
    for text in ('{"sta', "[]", '{"foo": 1}'):
        (tmp_path / "trial.json").write_text(text)
        assert read_result(tmp_path) is None
