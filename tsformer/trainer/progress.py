"""How far a training is: a bar on a terminal, lines in a file, and its speed in the logs."""

import logging
import sys
import time
from datetime import timedelta
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.callbacks.progress.rich_progress import (
    BatchesProcessedColumn,
    CustomBarColumn,
    CustomTimeColumn,
)
from rich import get_console
from rich.progress import ProgressColumn, TextColumn

log = logging.getLogger(__name__)


def progress_callbacks(*, shown: bool, refresh_rate: int = 10) -> list[Callback]:
    """Return what tells how far a training is: a bar on a terminal, or a line a validation.

    Args:
        shown: draw the bar, if there is a terminal.
        refresh_rate: steps over which the speed is measured, and after which the bar moves.
    """
    meter = Meter(refresh_rate)
    if shown and get_console().is_terminal:
        return [meter, ProgressBar(meter, refresh_rate)]
    return [meter, ProgressLines(meter)]


class Meter(Callback):
    """Measures a training, and logs `train/windows_per_second`.

    Attributes:
        windows_per_second: of all ranks over the last steps, validation not counted.
    """

    def __init__(self, every_n_batches: int) -> None:
        """Set over how many batches."""
        self.every_n_batches = every_n_batches
        self.windows_per_second = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._began = self._since = self._paused = time.perf_counter()
        self._first_step = trainer.global_step  # above 0 if the training goes on
        self._windows = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the batch's windows."""
        self._windows += len(batch.series) * trainer.world_size
        seconds = time.perf_counter() - self._since
        if (batch_idx + 1) % self.every_n_batches == 0 or not self.windows_per_second:
            self.windows_per_second = self._windows / max(seconds, 1e-9)
            self._since, self._windows = time.perf_counter(), 0
        pl_module.log("train/windows_per_second", self.windows_per_second, rank_zero_only=True)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock of the speed."""
        self._paused = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let it go on."""
        self._since += time.perf_counter() - self._paused

    def seconds_left(self, trainer: Trainer) -> float | None:
        """Return how long the rest of the whole training takes, if it is as fast as up to now."""
        done = trainer.global_step - self._first_step
        if done <= 0:
            return None
        left = float(trainer.estimated_stepping_batches) - trainer.global_step
        return max(left, 0.0) * (time.perf_counter() - self._began) / done

    def memory(self, device: torch.device) -> dict[str, str]:
        """Return the most memory that this process has held, and of a GPU the most on it."""
        held = {"RAM": peak_memory()}
        if device.type == "cuda":
            held["GPU"] = torch.cuda.max_memory_reserved(device)
        return {name: f"{size / 1e9:.1f} GB" for name, size in held.items() if size is not None}


def peak_memory() -> int | None:
    """Return the most memory that this process has held, in bytes; None where it is not known."""
    if sys.platform == "win32":
        return None
    import resource

    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else 1024 * size


class ProgressBar(RichProgressBar):
    """Shows steps, time gone and left, the loss, the speed and the memory, on a terminal."""

    def __init__(self, meter: Meter, refresh_rate: int) -> None:
        """Set what measures, and after how many steps it is shown."""
        super().__init__(refresh_rate=refresh_rate, leave=True)
        self.meter = meter

    def configure_columns(self, trainer: Trainer) -> list[ProgressColumn]:
        """Return the columns before the figures."""
        theme = self.theme
        return [
            TextColumn("{task.description}"),
            CustomBarColumn(
                bar_width=10,
                complete_style=theme.progress_bar,
                finished_style=theme.progress_bar_finished,
                pulse_style=theme.progress_bar_pulse,
            ),
            BatchesProcessedColumn(style=theme.batch_progress),
            CustomTimeColumn(style=theme.time),
        ]

    def get_metrics(
        self, trainer: Trainer, pl_module: LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """Return the figures."""
        figures = super().get_metrics(trainer, pl_module)
        figures.pop("v_num", None)
        speed = f"{self.meter.windows_per_second:,.0f}"
        return {**figures, "windows/s": speed, **self.meter.memory(pl_module.device)}

    def _get_train_description(self, current_epoch: int) -> str:
        return "Training".ljust(len(self.validation_description))


class ProgressLines(Callback):
    """Logs a line a validation, for files and other places without a terminal."""

    def __init__(self, meter: Meter) -> None:
        """Set what measures."""
        self.meter = meter

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log how far the training is."""
        parts = [
            f"{name} {float(trainer.callback_metrics[name]):.4f}"
            for name in ("train/loss", "val/mae")
            if name in trainer.callback_metrics
        ]
        parts.append(f"{self.meter.windows_per_second:,.0f} windows/s")
        seconds = self.meter.seconds_left(trainer)
        if seconds is not None:
            parts.append(f"{timedelta(seconds=round(seconds))} left")
        parts += [f"{size} of {name}" for name, size in self.meter.memory(pl_module.device).items()]
        total = f"{int(trainer.estimated_stepping_batches):,}"
        log.info("step %s of %s: %s", f"{trainer.global_step:,}", total, ", ".join(parts))
