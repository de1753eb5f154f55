"""Fits by several processes on this machine: as one process would, and with an end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose

from tests.conftest import REPO
from tests.scripts.test_fit import run_fit
from tsformer import Forecaster

FIT = [sys.executable, str(REPO / "scripts" / "fit.py")]
TWO = ("trainer=ddp_cpu", "batch_size=32")
FSDP = ("trainer=fsdp", "trainer.accelerator=cpu", "trainer.tf32=false", "batch_size=32")
COMMON = (
    *("dataset=custom", "dataset.path=table.csv", "context_length=8", "horizon=4"),
    *("model.patch_len=4", "model.d_model=16", "model.num_heads=2", "model.d_ff=32"),
    *("model.dropout=0", "batch_size=64", "eval_batch_size=10", "logger.tensorboard=false"),
    *("trainer.max_epochs=3", "trainer.progress_bar=false", "paths.cache=null", "report=false"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with table.csv, two waves; behind the train rows some values are missing."""
    folder = tmp_path_factory.mktemp("ranks")
    values = np.sin(np.arange(700) / 4) + np.random.default_rng(0).normal(size=700) / 5
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=700, freq="h")})
    frame = frame.assign(a=values, b=values[::-1])
    frame.loc[490::3, "b"] = np.nan
    frame.to_csv(folder / "table.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def alone(folder: Path) -> pd.DataFrame:
    """Return the validation figures of a fit by one process."""
    return fitted(folder, "alone")


def fitted(folder: Path, run: str, *given: str, **env: str) -> pd.DataFrame:
    result = run_fit(*COMMON, *given, f"hydra.run.dir={folder / run}", cwd=folder, **env)
    assert result.returncode == 0, result.stderr
    assert "arning" not in result.stdout + result.stderr
    return figures_of(folder / run)


def figures_of(run: Path) -> pd.DataFrame:
    curves = pd.read_csv(run / "csv" / "metrics.csv")
    return curves[["step", "val/mae", "val/mse", "val/loss"]].dropna()


def assert_as_alone(found: pd.DataFrame, alone: pd.DataFrame) -> None:
    """Two halves of a batch are one batch, and the sums of both validations are one sum."""
    assert found["step"].tolist() == alone["step"].tolist()
    assert_allclose(found, alone, rtol=1e-5)


@pytest.mark.slow
def test_two_processes_train_and_validate_as_one(folder: Path, alone: pd.DataFrame) -> None:
    assert_as_alone(fitted(folder, "ddp", *TWO), alone)
    assert len(list((folder / "ddp").glob("**/metrics.csv"))) == 1
    log = (folder / "ddp" / "fit.log").read_text()
    assert log.count("Testing on") == log.count("2 series, 1,400 rows") == 1
    Forecaster.load(folder / "ddp" / "model").predict(folder / "table.csv")


@pytest.mark.slow
def test_torchrun_shards_weights_in_one_run_folder(folder: Path, alone: pd.DataFrame) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    place = [f"paths.runs={folder / 'runs'}"]  # its name holds the time, which ranks tell apart
    result = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", FIT[1], *COMMON, *FSDP, *place],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    (run,) = (folder / "runs" / "custom").iterdir()
    assert_as_alone(figures_of(run), alone)
    last = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert type(next(iter(last["state_dict"].values()))) is torch.Tensor
    Forecaster.from_checkpoint(run / "checkpoints" / "best.ckpt")
    swept = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", FIT[1], "-m", *COMMON, "seed=1,2"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert swept.returncode != 0
    assert "leave out torchrun" in swept.stderr


@pytest.mark.slow
def test_processes_of_a_slurm_step_share_one_run(folder: Path, alone: pd.DataFrame) -> None:
    step = {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_NODEID": "0",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_STEP_TASKS_PER_NODE": "2",
        "SLURM_STEP_NODELIST": "localhost",
    }
    command = [*FIT, *COMMON, *TWO, f"paths.runs={folder / 'slurm'}"]
    tasks = [
        subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | step | {"SLURM_PROCID": number, "SLURM_LOCALID": number},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in "01"
    ]
    told = [task.communicate(timeout=200) for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0], told
    (run,) = (folder / "slurm" / "custom").iterdir()
    assert_as_alone(figures_of(run), alone)
    assert "Testing on" not in told[1][0]


@pytest.mark.slow
def test_a_value_that_one_process_cannot_take_ends_both(folder: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(folder / "table.csv")
    frame.loc[150, "b"] = 1e38
    frame.to_csv(tmp_path / "table.csv", index=False)
    given = (*TWO, "scaling.per=none", "loss=mse", "model.instance_norm=false")
    result = run_fit(*COMMON, *given, f"hydra.run.dir={tmp_path / 'run'}", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("error: step 1: the loss is ")
    assert "in windows of series 'b'." in result.stderr
    assert "Traceback" not in result.stderr


LONG = (*TWO, "model.dropout=0.2", "callbacks.save_every_n_steps=5", "trainer.max_epochs=8")


@pytest.fixture(scope="module")
def long(folder: Path) -> bytes:
    """Return the weights of a fit that nothing disturbs."""
    fitted(folder, "long", *LONG)
    return (folder / "long" / "model" / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_two_processes_that_are_stopped_go_on_to_the_same_bytes(
    number: int, folder: Path, long: bytes, tmp_path: Path
) -> None:
    run = tmp_path / "cut"
    command = [*FIT, *COMMON, *LONG, f"hydra.run.dir={run}"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    wait_for(run / "checkpoints" / "last.ckpt")
    process.send_signal(number)
    output, _ = process.communicate(timeout=100)  # which ends when no rank holds its end any more
    assert process.returncode == (-9 if number == signal.SIGKILL else 143), output
    assert not (run / "metrics.json").exists()
    result = run_fit(f"resume={run}", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "Continuing after step" in result.stdout + result.stderr
    assert (run / "model" / "model.safetensors").read_bytes() == long


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 100
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert path.exists()
