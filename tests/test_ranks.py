import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests import rank_tasks
from tests.conftest import REPO
from tsformer import ranks
from tsformer.errors import DataError, RankError
from tsformer.ranks import ALONE, World, find_world, is_restart, start_ranks

SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "6",
    "SLURM_STEP_TASKS_PER_NODE": "4,2",
    "SLURM_STEP_NODELIST": "gpu[03-04],other",
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Leave no variable of torchrun behind, whatever a test sets."""
    for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("MASTER_ADDR", "MASTER_PORT", *SLURM):
        monkeypatch.delenv(name, raising=False)
    # So that monkeypatch takes back what find_world sets.
    monkeypatch.setattr("os.environ", dict(os.environ))


def test_a_process_that_nobody_started_is_alone(monkeypatch):
    assert find_world() is None
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")  # srun --pty bash
    assert find_world() is None
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert find_world() is None
    assert (ALONE.broadcast("x"), ALONE.largest(3), ALONE.is_first) == ("x", 3, True)
    ALONE.wait()


def test_ranks_of_torchrun(monkeypatch):
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert find_world() == World(rank=3, size=4, local_size=2)


def test_ranks_of_slurm_are_those_of_torchrun(monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    world = find_world()
    assert (world.rank, world.size) == (5, 6)

    names = ("LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
    assert [os.environ[name] for name in names] == ["1", "1", "gpu03", "18456"]


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("node7", "node7"), ("a[1,4-5]", "a1"), ("a[012-014]-ib,b2", "a012-ib"), ("x1,x2", "x1")],
)
def test_the_first_node_is_where_ranks_meet(nodes, first, monkeypatch):

    for name, value in {**SLURM, "SLURM_STEP_NODELIST": nodes}.items():
        monkeypatch.setenv(name, value)
    find_world()
    assert os.environ["MASTER_ADDR"] == first


def test_a_first_start_is_no_restart(monkeypatch):
    assert not is_restart()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert not is_restart()
    monkeypatch.setenv("SLURM_RESTART_COUNT", "2")
    assert is_restart()


def start(task, *arguments, max_restarts=0):
    return start_ranks(task, arguments, num_ranks=2, max_restarts=max_restarts)


def test_ranks_talk_and_the_first_ones_result_comes_back():
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    assert start(rank_tasks.add_up, 10) == (0, 11)
    assert handlers == [
        signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    ]


def test_a_mistake_that_one_rank_finds_ends_all_with_its_message():
    with pytest.raises(DataError, match=r"^row 3: no number$"):
        start(rank_tasks.refuse)


def test_ranks_that_died_start_again_as_often_as_allowed():
    with pytest.raises(RankError, match=r"process 1 .*Signal 9 \(SIGKILL\)"):
        start(rank_tasks.die_once)
    assert start(rank_tasks.die_once, max_restarts=1) == "1"


def test_a_bug_shows_its_traceback(capfd):
    with pytest.raises(RankError, match="ZeroDivisionError: a bug"):
        start(rank_tasks.fail)
    assert "Traceback" in capfd.readouterr().err


def test_a_full_disk_is_told_without_a_traceback(capfd):
    with pytest.raises(OSError, match=r"No space left on device: 'run/last\.ckpt'"):
        start(rank_tasks.fill_the_disk)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells no other's death")
def test_ranks_end_with_the_process_that_started_them(tmp_path):
    """Also those that wait in a library, where Python's handlers are not called."""
    code = """
from tests import rank_tasks
from tests.conftest import REPO
from tsformer.ranks import start_ranks
if __name__ == "__main__":
    start_ranks(rank_tasks.wait_for_ever, ["{}"], num_ranks=2, max_restarts=0)
"""
    (tmp_path / "start.py").write_text(code.format(tmp_path))
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "start.py")], env=os.environ | {"PYTHONPATH": str(REPO)}
    )
    deadline = time.monotonic() + 100
    while not (tmp_path / "waiting").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert (tmp_path / "waiting").read_text() in children
    process.kill()
    process.wait()
    while any(map(is_running, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_running, children))


def is_running(process: str) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("has_gpu", "auto"), [(False, "cpu"), (True, "cuda")])
def test_a_training_is_on_the_cpu_or_on_gpus_of_cuda_alone(monkeypatch, has_gpu, auto):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    kinds = [ranks.device_kind(name) for name in ("cpu", "gpu", "cuda", "auto")]
    assert kinds == ["cpu", "cuda", "cuda", auto]
    assert [ranks.uses_cuda(name) for name in ("cpu", "gpu", "auto")] == [False, has_gpu, has_gpu]
