"""Settings that are found by trying: the learning rate and the batch size."""

import logging
import math
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.utilities.memory import garbage_collection_cuda, is_oom_error

from tsformer.config import FitConfig
from tsformer.data.datamodule import ForecastDataModule
from tsformer.data.forecast_data import ForecastData
from tsformer.data.types import FloatArray
from tsformer.errors import ConfigError
from tsformer.ranks import device_kind, uses_cuda
from tsformer.trainer.module import ForecastModule

log = logging.getLogger(__name__)

_MIN_LR, _MAX_LR, _LR_STEPS = 1e-6, 1.0, 100
_SMOOTHING = 0.9
_SETTLED = _LR_STEPS // 10  # steps after which the smoothed loss is one
_FALL, _DIVERGED = 0.01, 4.0  # of the loss at the beginning: what counts as a fall, and as the end
_BATCH_STEPS = 3  # the optimiser takes its memory in the first


class LRCurve(NamedTuple):
    """What a learning-rate range test saw.

    Attributes:
        rates: learning rates, rising, (N,).
        losses: smoothed training loss at each, (N,).
        chosen: the rate whose loss falls the fastest.
    """

    rates: FloatArray
    losses: FloatArray
    chosen: float


def find_settings(
    data: ForecastData, build: Callable[[FitConfig], ForecastModule]
) -> LRCurve | None:
    """Put the batch size and the learning rate that `trainer.find_*` asks for into `data.config`.

    The settings then ask for nothing any more, so that a run that goes on keeps what was found.
    Random numbers are seeded here: seed them again before the training.

    Args:
        data: train windows, and the settings.
        build: returns a module to be trained as settings say.

    Returns:
        What the test of learning rates saw, if there was one.

    Raises:
        ConfigError: there is no GPU whose memory a batch could fill, or there are several ranks.
    """
    trainer = data.config.trainer
    if trainer.find_lr or trainer.find_batch_size:
        _check_alone(data.config)
    if trainer.find_batch_size:
        found = find_batch_size(data, build)
        log.info("trainer.find_batch_size: batch_size=%s", found)
        _settle(data, {"batch_size": found}, "find_batch_size")
    if not trainer.find_lr:
        return None
    curve = find_lr(data, build)
    log.info("trainer.find_lr: optimizer.lr=%g", curve.chosen)
    optimizer = data.config.optimizer.model_copy(update={"lr": curve.chosen})
    _settle(data, {"optimizer": optimizer}, "find_lr")
    return curve


def find_lr(data: ForecastData, build: Callable[[FitConfig], ForecastModule]) -> LRCurve:
    """Train a little while the learning rate grows, and see where the loss falls the fastest.

    That is the range test of Smith (2017), "Cyclical learning rates for training neural networks".
    A linear skip with a rate of its own keeps it.

    Raises:
        ConfigError: the loss never falls.
    """
    given = data.config.optimizer.lr
    test = _RangeTest(np.geomspace(_MIN_LR, _MAX_LR, _LR_STEPS), given)
    with suppress(ArithmeticError):  # the module refuses a loss that is no number
        _train(data.config, data, build, _LR_STEPS, [test])
    rates, losses = test.rates[: len(test.losses)], np.array(test.losses)
    if len(losses) <= _SETTLED or losses[_SETTLED] - losses.min() < _FALL * abs(losses[0]):
        raise ConfigError(
            "trainer.find_lr=true: the training loss does not fall at any learning rate "
            f"from {_MIN_LR:g} to {_MAX_LR:g}. Set optimizer.lr yourself, or look at the data."
        )
    slopes = np.gradient(losses, np.log(rates))[_SETTLED : int(losses.argmin()) + 1]
    best = rates[_SETTLED + int(slopes.argmin())]
    return LRCurve(rates, losses, float(f"{best:.2g}"))


class _RangeTest(Callback):
    """Raises the learning rate step by step, and notes the loss."""

    def __init__(self, rates: FloatArray, given: float) -> None:
        self.rates = rates
        self.given = given  # by which the groups are known that the rate is of
        self.losses: list[float] = []
        self._mean = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        groups = trainer.optimizers[0].param_groups
        self.groups = [group for group in groups if group["initial_lr"] == self.given]

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        for group in self.groups:  # in place of what the schedule has set
            group["lr"] = self.rates[len(self.losses)]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any
    ) -> None:
        self._mean = _SMOOTHING * self._mean + (1 - _SMOOTHING) * float(outputs["loss"])
        loss = self._mean / (1 - _SMOOTHING ** (len(self.losses) + 1))
        self.losses.append(loss if math.isfinite(loss) else math.inf)
        limit = min(self.losses) + _DIVERGED * abs(self.losses[0])
        trainer.should_stop = not loss <= limit or len(self.losses) == len(self.rates)


def find_batch_size(data: ForecastData, build: Callable[[FitConfig], ForecastModule]) -> int:
    """Double the batch size, from what is set, as long as a GPU's memory holds it.

    Raises:
        ConfigError: there is no GPU, or the first batch is too large already.
    """
    config = data.config
    if not uses_cuda(config.trainer.accelerator):
        raise ConfigError(
            "trainer.find_batch_size=true fills the memory of a GPU, and this training has none "
            f"(trainer.accelerator={config.trainer.accelerator}): on a CPU there is no limit to "
            f"find, and larger batches are not faster. Set batch_size, such as {config.batch_size}."
        )
    size, found = config.batch_size, 0
    while _fits(config.model_copy(update={"batch_size": size}), data, build):
        found = size
        if size >= len(data.train):  # a batch holds them all
            break
        size *= 2
    if not found:
        raise ConfigError(
            f"batch_size={size} is too large for the GPU's memory already: begin "
            "trainer.find_batch_size with a smaller one, or make the model smaller."
        )
    return found


def _fits(
    config: FitConfig, data: ForecastData, build: Callable[[FitConfig], ForecastModule]
) -> bool:
    try:
        _train(config, data, build, _BATCH_STEPS, [])
    except RuntimeError as error:  # torch.OutOfMemoryError, or one of a library below it
        if not is_oom_error(error):
            raise
        return False
    finally:
        garbage_collection_cuda()
    return True


def _train(
    config: FitConfig,
    data: ForecastData,
    build: Callable[[FitConfig], ForecastModule],
    steps: int,
    callbacks: list[Callback],
) -> None:
    """Train a module of its own for some steps, as the settings say, without a trace on disk."""
    seed_everything(config.seed, verbose=False)
    loaders = ForecastDataModule(data)
    given, data.config = data.config, config
    try:
        Trainer(
            accelerator=device_kind(config.trainer.accelerator),
            devices=1,
            precision=config.trainer.precision,
            gradient_clip_val=config.trainer.gradient_clip_val,
            max_epochs=-1,
            max_steps=steps,
            limit_val_batches=0,
            callbacks=callbacks,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        ).fit(build(config), datamodule=loaders)
    finally:
        data.config = given


def _check_alone(config: FitConfig) -> None:
    if str(config.trainer.devices) not in ("1", "auto") or int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise ConfigError(
            "trainer.find_lr and trainer.find_batch_size run in one process. Set "
            "trainer.devices=1, find the values, then set optimizer.lr and batch_size for the "
            "multi-process run."
        )


def _settle(data: ForecastData, found: dict[str, Any], flag: str) -> None:
    trainer = data.config.trainer.model_copy(update={flag: False})
    data.config = data.config.model_copy(update={**found, "trainer": trainer})
