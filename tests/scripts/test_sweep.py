"""Sweeps as users run them: real processes, real files."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsformer import Forecaster

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    *("dataset=custom", "dataset.path=test.csv", "context_length=8", "horizon=4"),
    *("model.patch_len=4", "model.num_heads=2", "model.d_ff=16", "model.num_layers=1"),
    *("batch_size=64", "trainer.max_steps=4", "trainer.progress_bar=false"),
    *("logger.tensorboard=false", "logger.csv=false", "paths.cache=null", "report=false"),
)
MISTAKES = {
    "no multirun": (["sweep=tpe"], "add -m"),
    "unknown key": (["-m", "model.width=1,2"], "width"),
    "unknown key, forced in": (["-m", "+model.width=1,2"], "model.width: there is no such setting"),
    "unknown search": (["-m", "sweep=annealing", "seed=1,2"], "annealing"),
    "unknown sampler": (["-m", "sweep=tpe", "sweep.sampler=cat", "seed=1,2"], "sampler='cat'"),
    "nothing to search": (["-m", "sweep=tpe"], "nothing is searched"),
    "an interval in a grid": (["-m", "optimizer.lr=interval(1,2)"], "add sweep=tpe"),
    "no value fits": (["-m", "model.d_model=5,7"], "not divisible by num_heads=2"),
    "its own settings": (["-m", "sweep=tpe", "sweep.n_trials=1,2"], "its own settings"),
}


def test_jobs_of_one_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    result = run_fit(
        *("-m", "dataset.path=none.csv,no.csv", "hydra.sweep.subdir=all"),
        *("hydra.sweeper.max_batch_size=2", f"hydra.sweep.dir={tmp_path / 'sweep'}"),
        cwd=folder,
    )
    assert result.returncode == 2
    assert "jobs 0 and 1 would share" in result.stderr


def command(*overrides: str) -> list[str]:
    options = [override for override in overrides if override == "-m"]
    given = [override for override in overrides if override != "-m"]
    return [sys.executable, str(ROOT / "scripts" / "fit.py"), *options, *TINY, *given]


def run_fit(*overrides: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command(*overrides), cwd=cwd, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with test.csv."""
    folder = tmp_path_factory.mktemp("sweeps")
    stamps = pd.date_range("2024-01-01", periods=300, freq="D")
    values = np.random.default_rng(0).normal(size=300)
    frame = pd.DataFrame({"unique_id": "a", "ds": stamps, "y": values})
    frame.to_csv(folder / "test.csv", index=False)
    return folder


@pytest.mark.parametrize(("overrides", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_that_all_jobs_share_ends_the_sweep_at_once(
    overrides: list[str], message: str, folder: Path, tmp_path: Path
) -> None:
    sweep = tmp_path / "sweep"
    result = run_fit(
        *overrides, f"hydra.sweep.dir={sweep}", f"hydra.run.dir={tmp_path / 'run'}", cwd=folder
    )
    assert result.returncode == 2, result.stdout + result.stderr
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert not sweep.exists()


def test_a_grid_goes_on_after_a_job_that_fails_and_is_resumed(folder: Path) -> None:
    sweep = folder / "grid, it's ours"
    given = (
        "-m",
        "model.d_model=5,8,16",
        f"hydra.sweep.dir='{str(sweep).replace(chr(39), chr(92) + chr(39))}'",
    )
    result = run_fit(*given, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    table = pd.read_csv(sweep / "sweep.csv", index_col="number")
    assert table["state"].tolist() == ["failed", "complete", "complete"]
    assert table["model.d_model"].tolist() == [5, 8, 16]
    assert "not divisible by num_heads=2" in table["message"][0]
    best = json.loads((sweep / "best" / ".." / "metrics.json").read_text())
    assert best["objective"] == pytest.approx(table["objective"].min())
    frame = pd.read_csv(folder / "test.csv", parse_dates=["ds"])
    assert len(Forecaster.load(sweep / "best").predict(frame)) == 4

    # Resumed: what is finished stays, what is missing is run.
    kept = (sweep / "2" / "model" / "model.safetensors").stat().st_mtime_ns
    shutil.rmtree(sweep / "1")
    result = run_fit(*given, cwd=folder)
    assert result.returncode == 0, result.stderr
    again = pd.read_csv(sweep / "sweep.csv", index_col="number")
    assert again["objective"].tolist()[1:] == table["objective"].tolist()[1:]
    assert (sweep / "2" / "model" / "model.safetensors").stat().st_mtime_ns == kept

    # Another sweep in this folder is refused.
    for other, message in (
        ("seed=1", "of settings.seed=0; now it is 1"),
        ("seed=1,2", "space.seed"),
    ):
        result = run_fit(*given, other, cwd=folder)
        assert result.returncode == 2
        assert message in result.stderr


def test_a_sweep_without_a_winner_ends_with_code_2(folder: Path, tmp_path: Path) -> None:
    given = ("-m", "dataset.path=none.csv,no.csv", f"hydra.sweep.dir={tmp_path / 'sweep'}")
    result = run_fit(*given, cwd=folder)
    assert result.returncode == 2
    assert "no job of 2 succeeded" in result.stderr
    table = pd.read_csv(tmp_path / "sweep" / "sweep.csv")
    assert table["state"].tolist() == ["failed", "failed"]
    assert "none.csv" in table["message"][0]


@pytest.mark.slow
def test_a_search_of_two_jobs_at_once_that_is_killed_goes_on(folder: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    given = (
        *("-m", "sweep=tpe", "sweep.n_trials=12", "sweep.n_startup_trials=4"),
        *("optimizer.lr=tag(log,interval(1e-4,1e-1))", "model.d_model=8,16"),
        *("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", f"hydra.sweep.dir={sweep}"),
    )
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            command(*given), cwd=folder, stdout=file, stderr=file, start_new_session=True
        )
        deadline = time.monotonic() + 300
        while not (sweep / "5" / "config.yaml").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)  # it, and the jobs that it runs
        process.wait()
    before = {p.parent: p.read_text() for p in sweep.glob("*/trial.json")}
    assert 4 <= len(before) < 12, log.read_text()

    result = run_fit(*given, cwd=folder)
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(sweep / "sweep.csv")
    assert table["number"].tolist() == list(range(12))
    assert table["state"].isin(["complete", "pruned"]).all(), table
    assert not table.duplicated(["optimizer.lr", "model.d_model"]).any()
    assert sorted(int(p.parent.name) for p in sweep.glob("*/trial.json")) == list(range(12))
    for run, text in before.items():
        assert (run / "trial.json").read_text() == text
    for name in ("parallel_coordinates.png", "importances.png"):
        assert (sweep / name).read_bytes().startswith(b"\x89PNG")
    Forecaster.load(sweep / "best")
    assert "12 trials" in result.stdout

    # The same command again has nothing to do; more trials go on from there.
    result = run_fit(*given, "sweep.n_trials=13", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert len(pd.read_csv(sweep / "sweep.csv")) == 13


@pytest.mark.slow
def test_submitit_on_this_machine(folder: Path, tmp_path: Path) -> None:
    result = run_fit(
        *("-m", "model.d_model=5,8,16", "hydra/launcher=submitit_local"),
        *("hydra.sweeper.max_batch_size=3", f"hydra.sweep.dir={tmp_path / 'sweep'}"),
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr
    table = pd.read_csv(tmp_path / "sweep" / "sweep.csv")
    assert table["state"].tolist() == ["failed", "complete", "complete"]
    assert (tmp_path / "sweep" / "best" / "config.json").exists()


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep_and_what_is_finished_stays(folder: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    given = ("-m", "trainer.max_steps=4,1000000", f"hydra.sweep.dir={sweep}")
    with subprocess.Popen(
        command(*given), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        deadline = time.monotonic() + 120
        while not (sweep / "1" / "checkpoints").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert pd.read_csv(sweep / "sweep.csv")["state"].tolist() == ["complete"]
    assert (sweep / "best" / "config.json").exists()
