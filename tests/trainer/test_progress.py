"""How far a training is, told by a bar or by lines."""

import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import rich
import torch
from lightning.pytorch import Callback
from rich.console import Console

from tests.conftest import make_settings
from tests.forecasters import make_long
from tsformer.trainer import progress
from tsformer.trainer.progress import (
    Meter,
    ProgressBar,
    ProgressLines,
    peak_memory,
    progress_callbacks,
)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress.time, "perf_counter", lambda: self.now)


class Training:
    """Steps and validations as Lightning would tell a callback of them."""

    def __init__(self, callback: Callback, clock: Clock, *, first: int = 0, total: int = 12):
        self.callback, self.clock = callback, clock
        self.logged: list[float] = []
        self.trainer: Any = SimpleNamespace(
            global_step=first, world_size=2, estimated_stepping_batches=total
        )
        self.module: Any = SimpleNamespace(log=lambda name, value, **_: self.logged.append(value))
        callback.on_train_start(self.trainer, self.module)

    def step(self, seconds: float, windows: int = 8) -> None:
        self.clock.now += seconds
        batch = SimpleNamespace(series=torch.zeros(windows))
        number = self.trainer.global_step
        self.trainer.global_step += 1
        self.callback.on_train_batch_end(self.trainer, self.module, None, batch, number)

    def validate(self, seconds: float) -> None:
        self.callback.on_validation_start(self.trainer, self.module)
        self.clock.now += seconds
        self.callback.on_validation_end(self.trainer, self.module)


def test_the_speed_is_of_the_last_steps_of_all_ranks_without_validation(monkeypatch) -> None:
    meter = Meter(every_n_batches=3)
    training = Training(meter, Clock(monkeypatch))
    training.step(2.0)
    assert meter.windows_per_second == 8.0  # 2 ranks x 8 windows in 2 s
    training.step(0.5)
    training.validate(1000.0)
    training.step(0.5)
    assert meter.windows_per_second == 32.0
    training.step(0.1)
    training.step(0.1)
    training.step(0.2, windows=4)
    assert meter.windows_per_second == pytest.approx(100.0)
    assert training.logged == pytest.approx([8.0, 8.0, 32.0, 32.0, 32.0, 100.0])


def test_the_time_left_is_that_of_the_whole_training_with_its_validations(monkeypatch) -> None:
    meter = Meter(every_n_batches=3)
    training = Training(meter, Clock(monkeypatch), first=4, total=12)  # goes on from step 4
    assert meter.seconds_left(training.trainer) is None
    training.step(1.0)
    assert meter.seconds_left(training.trainer) == 7.0
    training.validate(3.0)
    training.step(2.0)
    assert meter.seconds_left(training.trainer) == 6 * (1 + 3 + 2) / 2


def test_memory_is_the_most_that_was_held() -> None:
    before = peak_memory()
    if before is None:
        pytest.skip("not known on this system")
    assert 50e6 < before < 50e9
    block = torch.ones(int(before / 4) + 2**24)
    after = peak_memory()
    del block
    assert after is not None
    assert after > before
    assert peak_memory() >= after
    told = Meter(1).memory(torch.device("cpu"))
    assert re.fullmatch(r"\d+\.\d GB", told["RAM"])


def run_fit(folder: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool) -> None:
    """Fit with a progress bar, on a terminal or not."""
    from tsformer.training import fit

    monkeypatch.setattr(rich, "_console", None)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(terminal)))
    make_long({"a": 300}).to_csv(folder / "series.csv", index=False)
    settings = {
        "dataset.path": str(folder / "series.csv"),
        "paths.run": str(folder / "run"),
        "paths.cache": None,
        "trainer.progress_bar": True,
        "trainer.max_epochs": 2,
        "logger.csv": False,
    }
    fit(make_settings(settings))


def test_without_a_terminal_each_validation_is_a_line(
    tmp_path, monkeypatch, caplog, capsys
) -> None:
    with caplog.at_level(logging.INFO):
        run_fit(tmp_path, monkeypatch, terminal=False)
    assert "Training" not in capsys.readouterr().out
    lines = [line for line in caplog.messages if line.startswith("step ")]
    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(
            r"step \d+ of \d+: train/loss \d\.\d{4}, val/mae \d\.\d{4}, [\d,]+ windows/s, "
            r"0:00:\d\d left, \d+\.\d GB of RAM",
            line,
        )
    number, total = re.match(r"step (\d+) of (\d+)", lines[-1]).groups()
    assert number == total


def test_a_terminal_has_a_bar(tmp_path, monkeypatch, caplog, capsys) -> None:
    with caplog.at_level(logging.INFO):
        run_fit(tmp_path, monkeypatch, terminal=True)
    assert not [line for line in caplog.messages if line.startswith("step ")]
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().out)
    last = [line for line in shown.splitlines() if line.startswith("Training")][-1]
    assert re.match(
        r"Training .* (\d+)/\1 0:00:\d\d • 0:00:00 train/loss: \d\.\d{3} val/mae: \d\.\d{3} "
        r"windows/s: [\d,]+ RAM: \d+\.\d GB",
        last,
    )


def test_who_shows_no_bar_still_measures(monkeypatch) -> None:
    def kinds(**settings: bool) -> list[type]:
        return [type(callback) for callback in progress_callbacks(**settings)]

    for terminal, shown in ((True, ProgressBar), (False, ProgressLines)):
        monkeypatch.setattr(rich, "_console", Console(force_terminal=terminal))
        assert kinds(shown=True) == [Meter, shown]
        assert kinds(shown=False) == [Meter, ProgressLines]
