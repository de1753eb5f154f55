"""What a training does beside its steps: checkpoints, and an end at a signal."""

import io
import logging
import math
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint

from tsformer.data.writing import replacing
from tsformer.model.checkpoint import BEST, CONFIG_KEY, LAST, SETTINGS_KEY, WORLD_KEY
from tsformer.ranks import STOP_SIGNALS, Interrupted, World, gets_signals, signals_given_back

log = logging.getLogger(__name__)


class CheckpointFiles(TorchCheckpointIO):
    """Checkpoints that are whole or not there, of plain data."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint under a temporary name, and rename it."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Of a full disk torch's writer does not tell, and aborts the process at its own end.
        buffer = io.BytesIO()
        torch.save(checkpoint, buffer)
        with replacing(Path(path)) as file:
            file.write(buffer.getbuffer())

    def load_checkpoint(
        self, path: Any, map_location: Any = "cpu", weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Read a checkpoint without running what it may hold."""
        return torch.load(path, map_location=map_location, weights_only=True)


class Checkpoints(Checkpoint):
    """Writes best.ckpt when validation improves, and last.ckpt, from which a training goes on.

    Attributes:
        best_score: the best of the validation figure, which is to be small; infinite before.
        best_step: optimiser steps done by then.
    """

    def __init__(
        self,
        folder: Path,
        *,
        monitor: str,
        every_n_steps: int | None,
        description: str,
        settings: str,
        world: World,
    ) -> None:
        """Set what to write where.

        Args:
            folder: receives both files.
            monitor: name of the validation figure.
            every_n_steps: write last.ckpt after so many optimiser steps, too.
            description: what a forecaster needs beside weights; see `read_checkpoint`.
            settings: of the training, by which alone it can go on.
            world: the ranks of the training.
        """
        self.folder = folder
        self.monitor = monitor
        self.every_n_steps = every_n_steps
        self.description = description
        self.settings = settings
        self.world = world
        self.best_score = math.inf
        self.best_step = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the best so far."""
        return {"best_score": self.best_score, "best_step": self.best_step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the best so far."""
        self.best_score, self.best_step = state_dict["best_score"], state_dict["best_step"]

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Describe the forecaster, so that the file alone can forecast."""
        checkpoint[CONFIG_KEY] = self.description
        checkpoint[SETTINGS_KEY] = self.settings
        checkpoint[WORLD_KEY] = self.world.size

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write what is the best now, and where the training is."""
        score = float(trainer.callback_metrics[self.monitor])
        if score < self.best_score:
            self.best_score, self.best_step = score, trainer.global_step
            trainer.save_checkpoint(self.folder / BEST)
        self.save_last(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write where the training is, if it is time."""
        every = self.every_n_steps
        if every and trainer.global_step % every == 0 and can_stop(trainer, batch_idx):
            self.save_last(trainer)

    def save_last(self, trainer: Trainer) -> None:
        """Write last.ckpt; all ranks have to call this."""
        trainer.save_checkpoint(self.folder / LAST)


class StopSignals(Callback):
    """Ends a training at Ctrl+C, SIGTERM and SIGUSR1: after a step, with a checkpoint.

    Under SLURM, SIGUSR1 (`--signal=USR1@120`) puts the job into the queue once more.
    """

    def __init__(self, checkpoints: Checkpoints, world: World, every_n_steps: int) -> None:
        """Set who is asked.

        Args:
            checkpoints: writes last.ckpt.
            world: the ranks of the training, which have to end at the same step.
            every_n_steps: several ranks ask each other after so many steps.
        """
        self.checkpoints = checkpoints
        self.world = world
        self.every_n_steps = 1 if world.size == 1 else every_n_steps
        self.received = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the signals; Lightning's handlers would save nothing, or wait for each other."""
        if gets_signals():
            for number in STOP_SIGNALS:
                signal.signal(number, self._receive)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received and self.world.size == 1:  # ranks get Ctrl+C twice, once by the launcher
            raise Interrupted(number)
        if self.world.is_first and not self.received:
            log.info("%s: the training stops after this step", signal.Signals(number).name)
        self.received = number

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop if a rank has received a signal."""
        asks = trainer.global_step % self.every_n_steps == 0 and can_stop(trainer, batch_idx)
        if asks and (number := self.world.largest(self.received)):
            self.checkpoints.save_last(trainer)
            self._stop(number)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop if a rank has received a signal; last.ckpt is written by then."""
        if number := self.world.largest(self.received):
            self._stop(number)

    def _stop(self, number: int) -> None:
        if self.world.is_first:
            stop(number)
        raise Interrupted(number)


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let the signals that end a training end what comes after it; Ctrl+C does by itself."""
    with signals_given_back():
        for number in STOP_SIGNALS if gets_signals() else ():
            if number != signal.SIGINT:
                signal.signal(number, lambda number, _: stop(number))
        yield


def stop(number: int) -> NoReturn:
    """End what a signal stops; of SLURM's SIGUSR1, put the job into the queue once more.

    Raises:
        Interrupted: always.
    """
    if number == signal.SIGUSR1 and "SLURM_JOB_ID" in os.environ:
        _requeue()
    raise Interrupted(number)


def can_stop(trainer: Trainer, batch_idx: int) -> bool:
    """Tell whether a training can go on from behind this batch.

    It can where the weights moved, rather than gradients adding up, and no validation follows;
    Lightning goes on after that one, but not before it.
    """
    done = batch_idx + 1
    return not (
        done % trainer.accumulate_grad_batches
        or done % int(trainer.val_check_batch or 1) == 0
        or done == trainer.num_training_batches
    )


def _requeue() -> None:
    job = os.environ["SLURM_JOB_ID"]
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        job = f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    command = ["scontrol", "requeue", job]
    try:
        subprocess.run(command, capture_output=True, text=True, check=True)
    except OSError as error:
        log.error("%s: %s. Put the job into the queue yourself.", " ".join(command), error)
    except subprocess.CalledProcessError as error:
        log.error("%s: %s", " ".join(command), error.stderr.strip())
