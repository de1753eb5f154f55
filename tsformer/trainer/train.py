"""train: what `fit` and `fine_tune` share."""

import logging
import math
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy

from tsformer.config import FitConfig
from tsformer.data.datamodule import ForecastDataModule
from tsformer.data.forecast_data import ForecastData
from tsformer.errors import ConfigError, TrainingError
from tsformer.model.checkpoint import BEST, forecasting_weights
from tsformer.model.config import ForecasterConfig
from tsformer.model.conformal import ConformalOffsets, scores_needed
from tsformer.model.folder import config_text
from tsformer.model.weights import build_network
from tsformer.nn import ForecastNetwork
from tsformer.places import CHECKPOINTS
from tsformer.prediction.forecasting import calibrate
from tsformer.ranks import ALONE, World, device_kind, signals_given_back
from tsformer.trainer.callbacks import CheckpointFiles, Checkpoints, StopSignals
from tsformer.trainer.module import DivergedError, ForecastModule
from tsformer.trainer.progress import ProgressBar, progress_callbacks
from tsformer.trainer.run_folder import Place, training_settings

log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """What a training leaves.

    Attributes:
        network: with the weights that validation chose, in evaluation mode, where it was trained.
        conformal: what calibrates its quantiles, or None.
        objective: the best validation error, `callbacks.monitor`.
        best_step: when it was reached.
        seconds: that the training took, since it went on if it was stopped.
    """

    network: ForecastNetwork
    conformal: ConformalOffsets | None
    objective: float
    best_step: int
    seconds: float


class Length(NamedTuple):
    """How long a training is.

    Attributes:
        num_batches: of each rank.
        validation_interval: batches between two validations.
    """

    num_batches: int
    validation_interval: int


def build_module(config: FitConfig, network: dict[str, Any]) -> ForecastModule:
    """Return a network to be trained as the settings say.

    Args:
        config: the settings.
        network: arguments of `ForecastNetwork`.
    """
    return ForecastModule(
        network=network,
        compile=config.model.compile,
        seed=config.seed,
        loss=config.loss,
        spectral_loss=config.spectral_loss,
        ema_decay=config.ema_decay,
        optimizer=config.optimizer.model_dump(),
        scheduler=config.scheduler.model_dump(),
    )


def train(
    data: ForecastData,
    module: ForecastModule,
    run: Path,
    described: ForecasterConfig,
    *,
    world: World = ALONE,
    place: Place | None = None,
    loggers: Sequence[Logger] = (),
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Train a module, choose its weights by validation, and calibrate its quantiles.

    Args:
        data: train and validation windows, and the settings.
        module: what is trained.
        run: folder that receives checkpoints/{best,last}.ckpt and the logs.
        described: what checkpoints say of the forecaster; see `read_checkpoint`.
        world: the ranks that train together.
        place: where the training goes on; None: at the beginning.
        loggers: that the training logs to.
        callbacks: that hear of it before it is saved.

    Raises:
        ConfigError: the trainer cannot do what the settings ask for, or the series are too many.
        TrainingError: the training diverged.
        Interrupted: a signal stopped it; it can go on.
    """
    config = data.config
    checkpoints = Checkpoints(
        run / CHECKPOINTS,
        monitor=config.callbacks.monitor,
        every_n_steps=config.callbacks.save_every_n_steps,
        description=config_text(described),
        settings=training_settings(config),
        world=world,
    )
    one_epoch = ForecastDataModule(data, rank=world.rank, size=world.size)
    length = training_length(config, len(one_epoch.epochs()))
    loaders = ForecastDataModule(
        data,
        length.num_batches,
        first=place.step * config.trainer.accumulate_grad_batches if place else 0,
        rank=world.rank,
        size=world.size,
    )
    stop = StopSignals(checkpoints, world, config.trainer.log_every_n_steps)
    trainer = _build_trainer(config, run, [*callbacks, checkpoints, stop], length, world, loggers)
    began = time.perf_counter()
    try:
        with signals_given_back():
            trainer.fit(module, datamodule=loaders, ckpt_path=place.checkpoint if place else None)
    except DivergedError as error:
        raise _diverged(error, data, trainer.global_step, checkpoints) from error
    seconds = time.perf_counter() - began

    if not math.isfinite(checkpoints.best_score):
        raise TrainingError(
            f"{config.callbacks.monitor} is {trainer.callback_metrics[config.callbacks.monitor]}: "
            "the training diverged, or the data hold values too large for it. Lower optimizer.lr, "
            "or look at the data's largest values."
        )
    best = torch.load(run / CHECKPOINTS / BEST, map_location="cpu", weights_only=True)
    network = build_network(described, forecasting_weights(best["state_dict"])).eval()
    network.to(trainer.strategy.root_device)  # for calibration and test
    conformal = _calibrated(data, network) if config.conformal and world.is_first else None
    return Trained(network, conformal, checkpoints.best_score, checkpoints.best_step, seconds)


def training_length(config: FitConfig, batches_per_epoch: int) -> Length:
    """Return how long a training is: whole optimiser steps, validated once an epoch.

    A training that ends within an epoch has its validations closer together, so that the last of
    them comes at its end, or fewer steps before it than there are validations.

    Args:
        config: the settings.
        batches_per_epoch: of each rank.
    """
    accumulated = config.trainer.accumulate_grad_batches
    per_epoch = -(-batches_per_epoch // accumulated)  # in optimiser steps, as all below
    limits = config.trainer.max_epochs * per_epoch, config.trainer.max_steps
    steps = min(limit for limit in limits if limit > 0)
    interval = steps // -(-steps // per_epoch)
    return Length(steps * accumulated, interval * accumulated)


def _diverged(
    error: DivergedError, data: ForecastData, step: int, checkpoints: Checkpoints
) -> TrainingError:
    names = []
    for group in sorted(set(error.groups)):
        names += [str(data.store.ids[series])[:80] for series in data.groups[group]]
    told = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    kept = (
        f"The weights of step {checkpoints.best_step} are kept in {checkpoints.folder / BEST}."
        if math.isfinite(checkpoints.best_score)
        else "No weights were kept."
    )
    return TrainingError(
        f"step {step + 1}: the loss is {error.loss}, in windows of series {told or 'unknown'}. The "
        "training diverged, or their values are too large for it: lower optimizer.lr, or look at "
        f"these series. {kept}"
    )


def _calibrated(data: ForecastData, network: ForecastNetwork) -> ConformalOffsets:
    levels = data.config.model.quantiles
    needed = scores_needed(levels)
    if len(data.validation) < needed:
        log.warning(
            "warning: %s validation windows are too few to calibrate intervals by, which takes "
            "%s: give validation a larger part, or set conformal=false",
            len(data.validation),
            needed,
        )
    return calibrate(network, data.validation, levels, data.config.eval_batch_size)


def _build_trainer(
    config: FitConfig,
    run: Path,
    callbacks: list[Callback],
    length: Length,
    world: World,
    loggers: Sequence[Logger],
) -> Trainer:
    own = config.trainer
    if loggers:
        callbacks.append(LearningRateMonitor("step"))
    if config.callbacks.early_stopping_patience:
        patience = config.callbacks.early_stopping_patience
        callbacks.append(_EarlyStopping(config.callbacks.monitor, patience=patience))
    callbacks += progress_callbacks(
        shown=own.progress_bar and world.is_first, refresh_rate=own.log_every_n_steps
    )
    plugins: list[Any] = [CheckpointFiles()]
    if world.size > 1:
        plugins.append(TorchElasticEnvironment())
    try:
        return Trainer(
            accelerator=device_kind(own.accelerator),
            devices=world.local_size,
            num_nodes=world.size // world.local_size,
            strategy=_strategy(config, world),
            precision=own.precision,
            accumulate_grad_batches=own.accumulate_grad_batches,
            deterministic=own.deterministic,
            gradient_clip_val=own.gradient_clip_val,
            log_every_n_steps=own.log_every_n_steps,
            max_epochs=1,  # as Lightning counts; see ForecastDataModule
            val_check_interval=length.validation_interval,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            logger=list(loggers) or False,
            callbacks=callbacks,
            plugins=plugins,
            default_root_dir=run,
            use_distributed_sampler=False,
            enable_progress_bar=any(isinstance(x, ProgressBar) for x in callbacks),
            enable_model_summary=False,
        )
    except MisconfigurationException as error:  # such as a GPU that is not there
        raise ConfigError(f"trainer: {error} (trainer.accelerator={own.accelerator})") from error


def _strategy(config: FitConfig, world: World) -> Strategy | str:
    if world.size == 1:
        return "auto"
    if config.trainer.strategy == "fsdp":
        return ModelParallelStrategy(
            data_parallel_size=world.size, tensor_parallel_size=1, save_distributed_checkpoint=False
        )
    return DDPStrategy(gradient_as_bucket_view=True)


class _EarlyStopping(EarlyStopping):
    """Stays stopped where a training goes on that was killed after its last validation."""

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        trainer.should_stop = trainer.should_stop or self.wait_count >= self.patience


def versions() -> dict[str, str]:
    """Return the versions of what a model is trained with."""
    names = "tsformer", "torch", "lightning", "numpy", "pandas"
    return {name: version(name) for name in names}


def num_weights(module: ForecastModule) -> int:
    """Return how many numbers are trained."""
    return sum(p.numel() for p in module.network.parameters())
