"""Training of a network on the windows of a table, as `fit` and `fine_tune` share it."""

import logging
import math
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint

from tsformer.checkpoint import CONFIG_KEY
from tsformer.config import FitConfig
from tsformer.conformal import ConformalOffsets, scores_needed
from tsformer.data.datamodule import ForecastDataModule
from tsformer.data.forecast_data import ForecastData
from tsformer.errors import ConfigError, TsformerError
from tsformer.forecaster_config import ForecasterConfig
from tsformer.forecasting import calibrate
from tsformer.loggers import build_loggers
from tsformer.model_folder import config_text
from tsformer.module import ForecastModule
from tsformer.nn import ForecastNetwork
from tsformer.progress import ProgressBar
from tsformer.sweep.pruning import pruning

log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """What a training leaves.

    Attributes:
        network: with the weights that validation chose, in evaluation mode.
        conformal: what calibrates its quantiles, or None.
        objective: the best validation error, `callbacks.monitor`.
        best_step: when it was reached.
        seconds: that the training took.
        pruned: whether the search that it is a trial of stopped it.
    """

    network: ForecastNetwork
    conformal: ConformalOffsets | None
    objective: float
    best_step: int
    seconds: float
    pruned: bool = False


def build_module(config: FitConfig, network: dict[str, Any], num_groups: int) -> ForecastModule:
    """Return a network to be trained as the settings say.

    Args:
        config: the settings.
        network: arguments of `ForecastNetwork`.
        num_groups: groups of series that are forecast together, N.
    """
    return ForecastModule(
        network=network,
        compile=config.model.compile,
        num_groups=num_groups,
        loss=config.loss,
        spectral_loss=config.spectral_loss,
        ema_decay=config.ema_decay,
        optimizer=config.optimizer.model_dump(),
        scheduler=config.scheduler.model_dump(),
    )


def train(
    data: ForecastData, module: ForecastModule, run: Path, described: ForecasterConfig
) -> Trained:
    """Train a module, choose its weights by validation, and calibrate its quantiles.

    Args:
        data: train and validation windows, and the settings.
        module: what is trained.
        run: folder that receives checkpoints/{best,last}.ckpt and the logs.
        described: what checkpoints say of the forecaster; see `read_checkpoint`.

    Raises:
        ConfigError: the trainer cannot do what the settings ask for, or the series are too many.
        TsformerError: the training diverged.
    """
    config = data.config
    checkpoint = ModelCheckpoint(
        run / "checkpoints",
        filename="best",
        monitor=config.callbacks.monitor,
        save_last=True,
        enable_version_counter=False,
    )
    pruners = pruning(config)
    callbacks = [checkpoint, _Description(config_text(described)), *pruners]
    loaders = ForecastDataModule(data)
    steps_per_epoch = len(loaders.train_dataloader())
    with warnings.catch_warnings():
        trainer = _build_trainer(config, run, callbacks, steps_per_epoch=steps_per_epoch)
        began = time.perf_counter()
        trainer.fit(module, datamodule=loaders)
        seconds = time.perf_counter() - began

    objective = float(torch.as_tensor(checkpoint.best_model_score))
    if not math.isfinite(objective):
        raise TsformerError(
            f"{config.callbacks.monitor} is {objective}: the training diverged, or the data hold "
            "values too large for it. Lower optimizer.lr, or look at the data's largest values."
        )
    best = torch.load(checkpoint.best_model_path, map_location="cpu", weights_only=True)
    module.load_state_dict(best["state_dict"])
    network = module.forecasting_network.eval()
    conformal = _calibrated(data, network) if config.conformal else None
    pruned = any(pruner.pruned for pruner in pruners)
    return Trained(network, conformal, objective, best["global_step"], seconds, pruned)


class _Description(Callback):
    """Puts into checkpoints what a forecaster needs beside weights."""

    def __init__(self, text: str) -> None:
        self.text = text

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[CONFIG_KEY] = self.text


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
    return calibrate(network, data.validation, levels)


def _build_trainer(
    config: FitConfig, run: Path, callbacks: list[Callback], *, steps_per_epoch: int
) -> Trainer:
    # What Lightning says about its own choices here is no news to the user.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in ("does not have many workers", "treespec, LeafSpec", "logging interval"):
        warnings.filterwarnings("ignore", message=f".*{message}.*")
    loggers = build_loggers(config.logger, run)
    if loggers:
        callbacks.append(LearningRateMonitor("step"))
    if config.callbacks.early_stopping_patience:
        patience = config.callbacks.early_stopping_patience
        callbacks.append(EarlyStopping(config.callbacks.monitor, patience=patience))
    if config.trainer.progress_bar:
        callbacks.append(ProgressBar(refresh_rate=config.trainer.log_every_n_steps, leave=True))
    settings = config.trainer.model_dump(exclude={"progress_bar", "tf32"})
    max_steps = config.trainer.max_steps
    # Validate once an epoch; a training shorter than its last epoch ends with a validation too.
    rounds = -(-max_steps // steps_per_epoch) if max_steps > 0 else 1
    try:
        return Trainer(
            **settings,
            val_check_interval=max_steps // rounds if max_steps > 0 else steps_per_epoch,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            logger=loggers or False,
            callbacks=callbacks,
            default_root_dir=run,
            use_distributed_sampler=False,
            enable_progress_bar=config.trainer.progress_bar,
            enable_model_summary=False,
        )
    except MisconfigurationException as error:  # such as a GPU that is not there
        raise ConfigError(
            f"trainer: {error} (trainer.accelerator={config.trainer.accelerator})"
        ) from error


def claim(run: Path, config: FitConfig) -> None:
    """Make the run folder ours by its config.yaml, which only one fit can create."""
    settings = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    run.mkdir(parents=True, exist_ok=True)
    try:
        with (run / "config.yaml").open("x", encoding="utf-8") as file:
            file.write(settings)
    except FileExistsError as error:
        raise ConfigError(
            f"{run}: holds another run. Choose another folder: hydra.run.dir=... of a fit, or "
            "output=..."
        ) from error


def versions() -> dict[str, str]:
    """Return the versions of what a model is trained with."""
    names = "tsformer", "torch", "lightning", "numpy", "pandas"
    return {name: version(name) for name in names}


def num_weights(module: ForecastModule) -> int:
    """Return how many numbers are trained."""
    return sum(p.numel() for p in module.network.parameters())
