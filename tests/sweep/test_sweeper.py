"""Launching, with a launcher whose processes die as told, and folders of other sweeps."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hydra.core.utils import JobReturn, JobStatus

from tests.processes import start_python
from tsformer.errors import ConfigError
from tsformer.sweep.jobs import Job
from tsformer.sweep.plan import Plan, held, keep_plan
from tsformer.sweep.result import Result, read_result, write_result
from tsformer.sweep.space import Choice
from tsformer.sweep.sweeper import TrialSweeper


class Launcher:
    """Runs jobs whose overrides say how they end; a death ends the call, as with joblib."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launched: list[list[int]] = []

    def launch(self, overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[JobReturn]:
        numbers = list(range(initial_job_idx, initial_job_idx + len(overrides)))
        self.launched.append(numbers)
        returns = []
        for number, (end,) in zip(numbers, overrides, strict=True):
            if end == "die":
                raise RuntimeError("a worker was killed")
            returned = JobReturn(status=JobStatus.COMPLETED)
            if end == "raise":
                returned = JobReturn(status=JobStatus.FAILED, _return_value=KeyError("x"))
            elif end == "finish":
                write_result(self.folder / str(number), Result("complete", float(number)))
            returns.append(returned)
        return returns


def launch(folder: Path, *ends: str, first: int = 0) -> tuple[Launcher, dict[int, Result]]:
    sweeper = TrialSweeper()
    sweeper.launcher = launcher = Launcher(folder)  # type: ignore[assignment]
    jobs = [
        Job(n, {"a": end}, [end], folder / str(n), "no such key" if end == "mistaken" else None)
        for n, end in enumerate(ends, start=first)
    ]
    return launcher, {job.number: result for job, result in sweeper._launch(jobs)}


def test_each_job_ends_as_it_ends(tmp_path: Path) -> None:
    launcher, results = launch(tmp_path, "finish", "raise", "mistaken", "finish", "", first=4)
    assert launcher.launched == [[4, 5], [7, 8]]
    assert [result.state for result in results.values()] == [
        *("complete", "failed", "failed", "complete", "failed")
    ]
    assert results[5].message == "KeyError: 'x'"
    assert results[6].message == "no such key"
    assert results[8].message == "it returned without a result"
    assert results == {n: read_result(tmp_path / str(n)) for n in results}


def test_a_process_that_dies_takes_no_neighbour_with_it(tmp_path: Path) -> None:
    launcher, results = launch(tmp_path, "finish", "die", "finish")
    assert launcher.launched == [[0, 1, 2], [1], [2]]
    assert [result.state for result in results.values()] == ["complete", "failed", "complete"]
    assert results[1].message == "RuntimeError: a worker was killed"


def plan(**settings: object) -> Plan:
    given = {"seed": 0, "paths": {"run": "x"}, "model": {"d_model": 8}}
    return Plan([], {"lr": Choice(("1", "2"))}, None, {**given, **settings})


def test_a_folder_is_of_one_sweep(tmp_path: Path) -> None:
    folder = tmp_path
    assert not keep_plan(plan(), folder)
    assert keep_plan(plan(paths={"run": "y"}), folder)
    with pytest.raises(ConfigError, match=r"settings.model.d_model=8; now it is 16\. Give what"):
        keep_plan(plan(model={"d_model": 16}), folder)
    other = Plan([], {"lr": Choice(("1", "3"))}, None, plan().settings)
    with pytest.raises(ConfigError, match=r"space.lr=choice\(1,2\); now it is choice\(1,3\)"):
        keep_plan(other, folder)
    (folder / "sweep.json").unlink()
    (folder / "multirun.yaml").touch()
    with pytest.raises(ConfigError, match="cannot be resumed"):
        keep_plan(plan(), folder)


def test_two_processes_do_not_run_one_sweep(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom tsformer.data.locking import alone\n"
        "with alone(Path(sys.argv[1])): print('ready', flush=True); time.sleep(600)"
    )
    process = start_python(code, str(tmp_path / ".sweep.lock"))
    try:
        with pytest.raises(ConfigError, match="another process runs this sweep"), held(tmp_path):
            pass
    finally:
        process.kill()
        process.wait()
    with held(tmp_path):  # whose process is dead holds nothing
        pass
