"""scripts/fit.py as users run it: real processes, real files."""

import csv
import json
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
import yaml

from tsformer import Forecaster

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    "model.d_model=16",
    "model.d_ff=16",
    "model.num_layers=1",
    "trainer.max_steps=6",
    "trainer.progress_bar=false",
    "report=false",
)
MISTAKES = {
    "no group": (["model=null"], "Config group"),
    "unknown dataset": (["dataset=nowhere"], "nowhere"),
    "unknown key": (
        ["model.d_modl=3"],
        "model.d_modl: there is no such setting. Is it model.d_model?",
    ),
    "unknown key, forced in": (["+model.width=3"], "model.width: there is no such setting"),
    "not an override": (["dataset"], "dataset"),
    "wrong type": (["model.d_model=wide"], "model.d_model='wide'"),
    "out of range": (["model.dropout=1.5"], "model.dropout=1.5"),
    "unknown choice": (["model.decoding=beam"], "'parallel' or 'autoregressive'"),
    "heads": (["model.num_heads=5"], "d_model=64 is not divisible by num_heads=5"),
    "patches": (["model.patch_len=100"], "nearest multiple: 300"),
    "long context": (["context_length=48000"], "longest series has 36825 train steps"),
    "long horizon": (["horizon=6000"], "the validation part, 5262 steps"),
    "no path": (["dataset=custom"], "dataset.path=my.csv"),
    "no file": (["dataset=custom", "dataset.path=none.csv"], "none.csv"),
    "no benchmark file": (["dataset=ecl", "paths.data=none"], "none/electricity/electricity.csv"),
    "no such column": (["dataset.target=load"], "no column 'load'"),
    "several machines": (["trainer.num_nodes=2"], "with torchrun"),
    "no number": (["trainer.devices=0"], "trainer.devices"),
    "resume and more": (["resume=nowhere", "seed=1"], "leave out all others"),
    "counts that are scaled": (["model.head=negative_binomial"], "set scaling.per=none"),
    "quantiles that fall": (["model.quantiles=[0.9,0.1]"], "must rise"),
    "nothing ends it": (["trainer.max_epochs=-1"], "max_epochs or max_steps"),
}


def run_fit(*overrides: str, cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "fit.py"), *overrides]
    environment = {k: v for k, v in os.environ.items() if k != "TSFORMER_DATA"} | env
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the run folder and the output of a short fit of the default dataset."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    result = run_fit(*TINY, "report=true", f"hydra.run.dir={folder}", cwd=folder.parent)
    assert result.returncode == 0, result.stderr
    return folder, result.stdout + result.stderr


def test_a_run_folder_holds_all_that_the_readme_names(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    names = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert {
        "config.yaml",
        "run.json",
        ".hydra/overrides.yaml",
        "model/model.safetensors",
        "model/config.json",
        "model/README.md",
        "checkpoints/best.ckpt",
        "checkpoints/last.ckpt",
        "metrics.json",
        "report.html",
        "forecast.png",
        "error_by_horizon.png",
        "training.png",
        "csv/metrics.csv",
    } <= names
    assert any(name.startswith("tensorboard/events") for name in names)
    for picture in folder.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_size > 10_000


def test_the_metrics_are_those_of_every_test_window(finished: tuple[Path, str]) -> None:
    folder, output = finished
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["test_windows"] == 10_521 - 48 + 1
    assert metrics["test"]["seasonal naive (daily)"]["mae"] == pytest.approx(321.36, abs=0.01)
    assert metrics["test"]["seasonal naive (weekly)"]["mae"] == pytest.approx(242.84, abs=0.01)
    assert all(value > 0 for value in metrics["test"]["tsformer"].values())
    with (folder / "csv" / "metrics.csv").open() as file:
        logged = [float(row["val/mae"]) for row in csv.DictReader(file) if row["val/mae"]]
    assert metrics["objective"] == pytest.approx(min(logged), rel=1e-5)
    assert "seasonal naive" in output


def test_a_normal_run_gives_no_warning(finished: tuple[Path, str]) -> None:
    _, output = finished
    assert "arning" not in output
    assert "deprecated" not in output


def test_the_resolved_settings_are_kept(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    settings = yaml.safe_load((folder / "config.yaml").read_text())
    assert settings["model"]["d_model"] == 16
    assert settings["context_length"] == 336
    assert settings["paths"]["run"] == str(folder)


def test_checkpoints_hold_plain_values_only(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    for name in ("best", "last"):
        state = torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)
        assert state["global_step"] == 6


def test_the_saved_model_forecasts_as_the_test_did(finished: tuple[Path, str]) -> None:
    """The Forecaster, fed rows of the file, must give the scores that the fit reported."""
    folder, _ = finished
    frame = pd.read_parquet(ROOT / "datasets" / "electricity" / "electricity.parquet")
    forecaster = Forecaster.load(folder / "model")
    state = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    for name, weight in forecaster.network.state_dict().items():
        assert torch.equal(weight, state[f"averaged.{name}"])
    history, future = frame[:-48], frame[-48:].drop(columns="y")
    forecast = forecaster.predict(history, future)
    assert list(forecast.columns) == ["unique_id", "ds", "tsformer"]
    assert (forecast["ds"].to_numpy() == future["ds"].to_numpy()).all()
    assert abs(forecast["tsformer"] - frame["y"].tail(48).to_numpy()).mean() < 2000


def test_a_finished_run_is_not_overwritten(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    before = (folder / "metrics.json").read_bytes()
    result = run_fit(*TINY, f"hydra.run.dir={folder}", cwd=folder.parent)
    assert result.returncode == 2
    assert "holds another run" in result.stderr
    assert (folder / "metrics.json").read_bytes() == before


@pytest.mark.slow
def test_a_run_can_be_repeated_and_another_seed_gives_other_weights(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    folder, _ = finished
    settings = ("--config-path", str(folder / ".hydra"), "--config-name", "config")
    again = run_fit(*settings, f"hydra.run.dir={tmp_path / 'again'}", cwd=tmp_path)
    other = run_fit(*TINY, "seed=1", f"hydra.run.dir={tmp_path / 'other'}", cwd=tmp_path)
    assert again.returncode == other.returncode == 0
    told = [json.loads((path / "run.json").read_text()) for path in (folder, tmp_path / "again")]
    assert told[0]["data_sha256"] == told[1]["data_sha256"]
    assert told[0]["command"] != told[1]["command"]
    weights = [
        (path / "model" / "model.safetensors").read_bytes()
        for path in (folder, tmp_path / "again", tmp_path / "other")
    ]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_help_answers_at_once() -> None:
    result = run_fit("--help", PYTHONPROFILEIMPORTTIME="1")
    assert result.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "hydra" in loaded
    assert "torch" not in loaded  # which takes longer than all the rest
    for text in ("dataset=electricity", "context_length", "num_heads", "electricity, etth1"):
        assert text in result.stdout


def test_a_sweep_leaves_one_folder_a_job_and_no_other(tmp_path: Path) -> None:
    result = run_fit(
        "-m",
        *TINY,
        "model.d_model=8,16",
        "model.num_heads=2",
        f"hydra.sweep.dir={tmp_path / 'sweep'}",
        f"paths.runs={tmp_path / 'runs'}",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "runs").exists()
    folders = sorted(p.name for p in (tmp_path / "sweep").iterdir() if p.is_dir())
    assert folders == ["0", "1", "best"]
    weights = [
        json.loads((tmp_path / "sweep" / job / "metrics.json").read_text())["weights"]
        for job in ("0", "1")
    ]
    assert weights[0] < weights[1]


@pytest.mark.parametrize(("overrides", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_ends_with_one_message_and_exit_code_2(
    overrides: list[str], message: str, tmp_path: Path
) -> None:
    result = run_fit(*overrides, f"hydra.run.dir={tmp_path / 'run'}", cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "run" / "model").exists()


def test_a_run_that_is_not_there_does_not_go_on(tmp_path: Path) -> None:
    result = run_fit("resume=nowhere", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("error: nowhere: there is no run to resume here")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_a_mistake_too(tmp_path: Path) -> None:
    result = run_fit("trainer=gpu", f"hydra.run.dir={tmp_path / 'run'}", cwd=tmp_path)
    assert result.returncode == 2
    assert "trainer.accelerator=gpu" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_traceback_of_a_mistake_can_be_shown(tmp_path: Path) -> None:
    result = run_fit(
        "model.num_heads=5",
        f"hydra.run.dir={tmp_path / 'run'}",
        cwd=tmp_path,
        HYDRA_FULL_ERROR="1",
    )
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "not divisible" in result.stderr


def test_the_first_line_tells_how_the_table_was_taken(finished: tuple[Path, str]) -> None:
    _, output = finished
    assert "electricity: long table, 1 series, 52,608 rows of 30min; target y" in output


@pytest.mark.slow
def test_a_folder_with_a_folder_for_each_series(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=300, freq="D")})
    parts = [frame.assign(unique_id=id, y=range(300)) for id in ("007", "7", "a/b")]
    pd.concat(parts).to_parquet(tmp_path / "sales", partition_cols=["unique_id"])
    result = run_fit(
        "dataset=custom",
        "dataset.path=sales",
        "dataset.freq=D",
        "context_length=28",
        "model.patch_len=7",
        "horizon=10",
        *TINY,
        f"hydra.run.dir={tmp_path / 'run'}",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert "custom: long table, 3 series, 900 rows of D" in result.stdout + result.stderr
    forecast = Forecaster.load(tmp_path / "run" / "model").predict(tmp_path / "sales")
    assert forecast["unique_id"].unique().tolist() == ["007", "7", "a/b"]


def test_a_csv_of_ones_own(tmp_path: Path) -> None:
    stamps = pd.date_range("2024-01-01", periods=400, freq="D")
    long = pd.concat(
        pd.DataFrame({"shop": f"00{s}", "day": stamps, "sold": range(s, 400 + s)}) for s in (1, 2)
    )
    long.to_csv(tmp_path / "sales.csv", index=False)
    result = run_fit(
        "dataset=custom",
        "dataset.path=sales.csv",
        "dataset.id_column=shop",
        "dataset.time_column=day",
        "dataset.target=sold",
        "context_length=28",
        "model.patch_len=7",
        "horizon=10",
        *TINY,
        f"hydra.run.dir={tmp_path / 'run'}",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    forecast = Forecaster.load(tmp_path / "run" / "model").predict(long)
    assert forecast["unique_id"].tolist() == ["001"] * 10 + ["002"] * 10
    assert forecast["ds"].tolist() == list(pd.date_range("2025-02-04", periods=10)) * 2


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_fit_with_its_code_and_a_word(
    number: int, code: int, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command = [
        *(sys.executable, str(ROOT / "scripts" / "fit.py"), *TINY[:3], *TINY[-2:]),
        *("trainer.max_epochs=1000", "batch_size=16", f"hydra.run.dir={run}"),
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        logged = run / "csv" / "metrics.csv"
        deadline = time.monotonic() + 120
        while not (logged.exists() and logged.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.2)
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert "Interrupted" in output
    assert not (run / "model").exists()


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """Return a folder with sales.csv, counts of two shops by the day, and its rows."""
    folder = tmp_path_factory.mktemp("sales")
    stamps = pd.date_range("2024-01-01", periods=400, freq="D")
    frame = pd.concat(
        pd.DataFrame(
            {"unique_id": id, "ds": stamps, "y": np.random.default_rng(seed).poisson(3, 400)}
        )
        for seed, id in enumerate(("left", "right"))
    )
    frame.to_csv(folder / "sales.csv", index=False)
    return folder, frame


OF_SALES = (
    *("dataset=custom", "dataset.path=sales.csv", "context_length=28", "model.patch_len=7"),
    *("horizon=10", "logger.tensorboard=false", *TINY),
)


def test_a_fit_of_calibrated_quantiles(sales: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    folder, frame = sales
    given = ("model.head=quantile", "conformal=true", "callbacks.monitor=val/loss")
    result = run_fit(*OF_SALES, *given, f"hydra.run.dir={tmp_path / 'run'}", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "arning" not in result.stdout + result.stderr
    assert "Nominal" in result.stdout
    assert (tmp_path / "run" / "calibration.png").read_bytes().startswith(b"\x89PNG")
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["monitor"] == "val/loss"
    (method, figures) = next(iter(metrics["test_quantiles"].items()))
    assert (method, len(metrics["test_quantiles"])) == ("tsformer", 1)
    assert set(figures) == {"scaled_crps", "pinball", "coverage", "width"}
    # Noise without a trend: hardly trained, the model holds what it promises by its calibration.
    for nominal, covered in figures["coverage"].items():
        assert covered == pytest.approx(float(nominal), abs=0.12)
    forecaster = Forecaster.load(tmp_path / "run" / "model")
    assert forecaster.conformal is not None
    assert forecaster.conformal.offsets.shape == (3, 10, 1, 11)
    forecast = forecaster.predict(frame, level=90, adaptive=True)
    assert (forecast["tsformer-lo-90"] < forecast["tsformer-hi-90"]).all()


@pytest.mark.slow
def test_a_fit_of_counts(sales: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    folder, frame = sales
    given = ("model.head=negative_binomial", "scaling.per=none", "model.decoding=autoregressive")
    result = run_fit(*OF_SALES, *given, f"hydra.run.dir={tmp_path / 'run'}", cwd=folder)
    assert result.returncode == 0, result.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["test_quantiles"]["tsformer"]["scaled_crps"] > 0
    forecast = Forecaster.load(tmp_path / "run" / "model").predict(frame, num_samples=2)
    assert (forecast["tsformer-sample-1"] % 1 == 0).all()

    frame.assign(y=frame["y"] - 0.5).to_csv(tmp_path / "sales.csv", index=False)
    result = run_fit(*OF_SALES, *given, f"hydra.run.dir={tmp_path / 'no'}", cwd=tmp_path)
    assert result.returncode == 2
    assert "series 'left', 2024-01-01 00:00:00: " in result.stderr
    assert "is not a count" in result.stderr
    assert not (tmp_path / "no" / "checkpoints").exists()
