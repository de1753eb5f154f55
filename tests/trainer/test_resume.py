"""A training that is stopped and goes on must come to what it would have been."""

import signal
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from tests.conftest import make_settings
from tests.forecasters import make_forecaster, make_long
from tests.processes import limited_files
from tsformer import fit, training
from tsformer.data.locking import alone
from tsformer.errors import ConfigError, DataError, TrainingError
from tsformer.ranks import STOP_SIGNALS, Interrupted
from tsformer.trainer.callbacks import Checkpoints
from tsformer.trainer.loggers import CURVES
from tsformer.trainer.run_folder import read_settings


class Killed(BaseException):
    """Takes the place of SIGKILL: what was written by then is all that is left."""


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    for name in ("draw_forecasts", "draw_errors", "draw_training"):
        monkeypatch.setattr(training, name, lambda *_: Figure())


@pytest.fixture
def settings(tmp_path):
    hours = pd.date_range("2024-01-01", periods=400, freq="h")
    wave = np.sin(np.arange(400) / 4) + np.random.default_rng(0).normal(size=400) / 5
    frame = pd.DataFrame({"ds": hours, "a": wave, "b": wave[::-1]})
    frame.to_csv(tmp_path / "table.csv", index=False)

    def make(run: str, **overrides):
        return make_settings(
            {
                "dataset.path": str(tmp_path / "table.csv"),
                "paths.run": str(tmp_path / run),
                "paths.cache": None,
                "batch_size": 64,
                "model.dropout": 0.2,
                "trainer.max_epochs": 4,
                "trainer.log_every_n_steps": 1,
                "callbacks.save_every_n_steps": 1,
                **overrides,
            }
        )

    return make


def resume(run: Path):
    return fit(make_settings({"resume": str(run)}))


def weights_of(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def kill_at(monkeypatch, step: int) -> None:
    """Die when last.ckpt of this step, or a later one, has been written."""
    save = Checkpoints.save_last

    def save_and_die(self, trainer):
        save(self, trainer)
        if trainer.global_step >= step:
            raise Killed

    monkeypatch.setattr(Checkpoints, "save_last", save_and_die)


CASES = {
    "parallel": {},
    "autoregressive, no average": {"model.decoding": "autoregressive", "ema_decay": None},
    "accumulated": {"trainer.accumulate_grad_batches": 3},
    "steps": {"trainer.max_steps": 19, "trainer.max_epochs": -1},
    "once an epoch": {"callbacks.save_every_n_steps": None},
    "quantiles, drawn by series": {
        "model.head": "quantile",
        "conformal": True,
        "callbacks.monitor": "val/loss",
        "sampling.over": "series",
        "num_workers": 1,
    },
    "stops early": {"callbacks.early_stopping_patience": 1, "optimizer.lr": 0.5},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_killed_fit_goes_on_to_the_same_bytes(case, settings, tmp_path, monkeypatch):
    whole = fit(settings("whole", **case))
    last = torch.load(tmp_path / "whole" / "checkpoints" / "last.ckpt", weights_only=True)
    total = last["global_step"]
    resumed = {}
    for step in (max(total // 3, 1), total - 1):
        with monkeypatch.context() as patched:
            kill_at(patched, step)
            with pytest.raises(Killed):
                fit(settings("cut", **case) | resumed)
        resumed = {"resume": str(tmp_path / "cut")}
        assert not (tmp_path / "cut" / "metrics.json").exists()
    result = resume(tmp_path / "cut")
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")
    assert result.objective == whole.objective
    for name in ("best_step", "test", "test_windows"):
        assert result.metrics[name] == whole.metrics[name]
    curves, expected = (pd.read_csv(tmp_path / run / CURVES) for run in ("cut", "whole"))
    found, expected = (curve[["step", "val/mae"]].dropna() for curve in (curves, expected))
    assert_allclose(found, expected, rtol=1e-12)
    assert [path.name for path in (tmp_path / "cut" / "csv").iterdir()] == ["metrics.csv"]


def test_a_fit_killed_before_its_test_goes_on_with_it(settings, tmp_path, monkeypatch):
    whole = fit(settings("whole"))
    with monkeypatch.context() as patched:
        patched.setattr("tsformer.training._finish", kill)
        with pytest.raises(Killed):
            fit(settings("cut"))
    result = resume(tmp_path / "cut")
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")
    assert result.metrics["test"] == whole.metrics["test"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_stops_its_test_which_begins_anew(number, settings, tmp_path, monkeypatch, caplog):
    whole = fit(settings("whole"))
    before = signal.getsignal(number)
    with monkeypatch.context() as patched:
        patched.setattr(training, "evaluate", lambda *_: signal.raise_signal(number))
        with pytest.raises((Interrupted, KeyboardInterrupt)) as stopped, caplog.at_level("INFO"):
            fit(settings("cut"))
    assert number == signal.SIGINT or stopped.value.code == 128 + number
    assert f"Interrupted. To go on: python scripts/fit.py resume={tmp_path / 'cut'}" in (
        caplog.messages
    )
    assert signal.getsignal(number) == before
    assert resume(tmp_path / "cut").metrics["test"] == whole.metrics["test"]


def test_a_full_disk_stops_a_fit_which_goes_on(settings, tmp_path, caplog):
    whole = fit(settings("whole"))
    told = pytest.raises(OSError, match=r"File too large.*/cut/checkpoints/last\.ckpt")
    with caplog.at_level("INFO"), limited_files(20_000), told:
        fit(settings("cut"))
    assert f"Stopped. To go on: python scripts/fit.py resume={tmp_path / 'cut'}" in caplog.messages
    assert not list((tmp_path / "cut" / "checkpoints").iterdir())
    assert resume(tmp_path / "cut").metrics["test"] == whole.metrics["test"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_stops_after_a_step_and_the_fit_goes_on(
    number, settings, tmp_path, monkeypatch, caplog
):
    settings_whole = settings("whole")
    fit(settings_whole)
    before = signal.getsignal(number)

    def receive(self, trainer, *_):
        if trainer.global_step == 5:
            signal.raise_signal(number)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "on_train_batch_start", receive, raising=False)
        with pytest.raises(Interrupted) as stopped, caplog.at_level("INFO"):
            fit(settings("cut"))
    assert stopped.value.code == 128 + number
    assert f"resume={tmp_path / 'cut'}" in caplog.text
    assert signal.getsignal(number) == before
    last = torch.load(tmp_path / "cut" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 6  # the step that was under way
    resume(tmp_path / "cut")
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")


def test_a_fit_in_a_thread_takes_no_signals(settings, tmp_path):
    thread = threading.Thread(target=fit, args=[settings("run", **{"trainer.max_epochs": 1})])
    thread.start()
    thread.join()
    assert (tmp_path / "run" / "metrics.json").exists()


def test_a_run_goes_on_where_it_was_moved(settings, tmp_path, monkeypatch):
    fit(settings("whole"))
    with monkeypatch.context() as patched:
        kill_at(patched, 8)
        with pytest.raises(Killed):
            fit(settings("cut"))
    (tmp_path / "cut").rename(tmp_path / "moved")
    resume(tmp_path / "moved")
    assert weights_of(tmp_path / "moved") == weights_of(tmp_path / "whole")


def test_a_run_without_a_checkpoint_begins_anew(settings, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Checkpoints, "on_train_batch_start", kill, raising=False)
        with pytest.raises(Killed):
            fit(settings("cut"))
    resume(tmp_path / "cut")
    fit(settings("whole"))
    assert weights_of(tmp_path / "cut") == weights_of(tmp_path / "whole")


def kill(*_):
    raise Killed


@pytest.fixture
def stopped(settings, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        kill_at(patched, 3)
        with pytest.raises(Killed):
            fit(settings("run"))
    return tmp_path / "run"


def test_what_cannot_go_on_is_told(settings, tmp_path, stopped, monkeypatch):
    with pytest.raises(ConfigError, match="there is no run to resume here"):
        read_settings(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"holds another run.*resume="):
        fit(settings("run"))
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    with pytest.raises(ConfigError, match="holds a run with other settings: seed=0, and not 3"):
        fit(settings("run", seed=3))
    last = stopped / "checkpoints" / "last.ckpt"
    whole, state = last.read_bytes(), torch.load(last, weights_only=True)
    last.write_bytes(whole[:-100])
    with pytest.raises(TrainingError, match=r"last\.ckpt: damaged"):
        resume(stopped)
    torch.save({**state, "tsformer_world_size": 4}, last)
    with pytest.raises(TrainingError, match="by 4 processes, which cannot continue with 1"):
        resume(stopped)
    (stopped / "config.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"config\.yaml or run\.json is damaged"):
        read_settings(stopped)


@pytest.mark.parametrize("name", ["SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"])
def test_the_same_command_goes_on_when_the_cluster_starts_it_again(
    name, settings, tmp_path, stopped, monkeypatch
):
    monkeypatch.setenv(name, "0")
    with pytest.raises(ConfigError, match="holds another run"):
        fit(settings("run"))
    monkeypatch.setenv(name, "1")
    fit(settings("run"))
    fit(settings("whole"))
    assert weights_of(stopped) == weights_of(tmp_path / "whole")


def test_a_run_does_not_go_on_with_other_rows(stopped, tmp_path):
    frame = pd.read_csv(tmp_path / "table.csv")
    frame.loc[390, "a"] += 1
    frame.to_csv(tmp_path / "table.csv", index=False)
    with pytest.raises(DataError, match="the table has changed since the run started"):
        resume(stopped)


@pytest.mark.parametrize(
    ("key", "line", "changed"),
    [
        ("batch_size", "batch_size: 64", "batch_size: 32"),
        ("model.d_model", "d_model: 16", "d_model: 24"),
    ],
)
def test_a_run_does_not_go_on_with_edited_settings(key, line, changed, stopped):
    file = stopped / "config.yaml"
    file.write_text(file.read_text().replace(line, changed))
    with pytest.raises(ConfigError, match=f"with other settings: {key}="):
        resume(stopped)


def test_what_only_shows_or_stores_may_change(stopped, settings, tmp_path):
    file = stopped / "config.yaml"
    text = file.read_text().replace("verbose: false", "verbose: true")
    file.write_text(text.replace("report: false", "report: true"))
    resume(stopped)
    assert (stopped / "report.html").is_file()


def test_the_best_weights_have_to_be_there(settings, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        kill_at(patched, 12)
        with pytest.raises(Killed):
            fit(settings("run"))
    best = tmp_path / "run" / "checkpoints" / "best.ckpt"
    best.write_bytes(best.read_bytes()[:-100])
    for _ in range(2):
        with pytest.raises(TrainingError, match=r"best\.ckpt: damaged.*Remove last\.ckpt"):
            resume(tmp_path / "run")
        best.unlink(missing_ok=True)


def test_a_run_goes_on_from_another_folder(tmp_path, settings, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        kill_at(patched, 3)
        with pytest.raises(Killed):
            fit(settings("run", **{"dataset.path": "table.csv"}))
    monkeypatch.chdir("/")
    resume(tmp_path / "run")


def test_a_fine_tuning_does_not_go_on_and_is_not_said_to(tmp_path):
    model, frame = make_forecaster(), make_long({"a": 60})
    model.fine_tune(frame, max_steps=1, output=tmp_path / "tuned")
    with pytest.raises(ConfigError, match="a fine-tuning, which does not go on"):
        resume(tmp_path / "tuned")
    with pytest.raises(ConfigError, match="holds another run") as told:
        model.fine_tune(frame, max_steps=1, output=tmp_path / "tuned")
    assert "resume=" not in str(told.value)


def test_curves_of_which_a_part_is_empty_are_drawn(stopped):
    (stopped / CURVES).write_text("")
    resume(stopped)
    assert len(pd.read_csv(stopped / CURVES)) > 5


def test_signals_are_whose_they_were(settings, tmp_path):
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    fit(settings("run", **{"trainer.max_epochs": 1}))
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before


@pytest.mark.parametrize("there", [True, False])
def test_slurm_is_asked_to_start_the_job_again(there, settings, tmp_path, monkeypatch, caplog):
    if there:
        (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho $@ > {tmp_path}/asked\n")
        (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "77")

    def receive(self, trainer, *_):
        if trainer.global_step == 5:
            signal.raise_signal(signal.SIGUSR1)

    monkeypatch.setattr(Checkpoints, "on_train_batch_start", receive, raising=False)
    with pytest.raises(Interrupted) as stopped, caplog.at_level("INFO"):
        fit(settings("run"))
    assert stopped.value.code == 128 + signal.SIGUSR1
    if there:
        assert (tmp_path / "asked").read_text() == "requeue 77\n"
    else:
        assert "Put the job into the queue yourself" in caplog.text


def test_two_processes_are_not_at_one_run(settings, stopped):
    with alone(stopped / ".run.lock"), pytest.raises(ConfigError, match="another process is using"):
        resume(stopped)
    resume(stopped)
    with pytest.raises(ConfigError, match="the run is finished; its model is"):
        read_settings(stopped)


def test_values_that_no_training_survives_are_named(settings, tmp_path):
    """The first epoch is fine; then comes a window that makes the loss infinite."""
    frame = pd.read_csv(tmp_path / "table.csv")
    frame.loc[150, "b"] = 1e38
    frame.to_csv(tmp_path / "table.csv", index=False)
    overrides = {"scaling.per": "none", "loss": "mse", "model.instance_norm": False}
    with pytest.raises(TrainingError) as error:
        fit(settings("run", **overrides))
    assert "step 1: the loss is " in str(error.value)
    assert "in windows of series 'b'." in str(error.value)
    assert "lower optimizer.lr" in str(error.value)


def test_the_last_good_weights_are_kept(settings, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("tsformer.trainer.module.ForecastModule._loss", _nan_after(10))
        with pytest.raises(
            TrainingError, match=r"step 11: the loss is nan.*step 9 are kept"
        ) as error:
            fit(settings("run"))
    assert "best.ckpt" in str(error.value)
    best = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)
    assert all(x.isfinite().all() for x in best["state_dict"].values())
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["seed"] == 0


def _nan_after(step: int):
    from tsformer.trainer.module import ForecastModule

    loss = ForecastModule._loss

    def nan(self, parameters, batch):
        bad = self.training and self.trainer.global_step >= step
        return loss(self, parameters, batch) * (float("nan") if bad else 1.0)

    return nan
