"""fit(settings) -> FitResult: train, test, draw and save one forecaster."""

import json
import logging
import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import yaml
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import (
    EarlyStopping,
    LearningRateMonitor,
    ModelCheckpoint,
    RichProgressBar,
)
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from lightning.pytorch.utilities.exceptions import SIGTERMException

from tsformer import report
from tsformer.config import FitConfig, parse_fit
from tsformer.conformal import scores_needed
from tsformer.console import open_console
from tsformer.data.catalog import load_data
from tsformer.data.datamodule import ForecastDataModule
from tsformer.data.forecast_data import ForecastData
from tsformer.data.groups import channel_names
from tsformer.errors import ConfigError, TsformerError
from tsformer.forecaster import Forecaster
from tsformer.forecaster_config import (
    EncoderConfig,
    ForecasterConfig,
    ScalerConfig,
    network_settings,
)
from tsformer.forecasting import calibrate
from tsformer.module import ForecastModule

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitResult:
    """What a fit gives back.

    Attributes:
        objective: the best validation error, `callbacks.monitor`; sweeps minimise it.
        metrics: what `metrics.json` holds.
        run: the run folder.
    """

    objective: float
    metrics: dict[str, Any]
    run: Path


def fit(settings: Mapping[str, Any]) -> FitResult:
    """Fit a forecaster and write its run folder, `settings["paths"]["run"]`.

    The folder receives config.yaml, logs, checkpoints/{best,last}.ckpt, model/, metrics.json,
    forecast.png, error_by_horizon.png, training.png, and calibration.png of a distribution.

    Args:
        settings: the resolved settings as plain values; see `FitConfig` and `conf/`.

    Raises:
        ConfigError: a setting is unknown, wrong, or does not fit the data.
        DataError: the data cannot be found or used.
    """
    parse_fit(settings)  # tells mistakes before the data are read
    table, config = load_data(settings)
    run = Path(config.paths.run)
    data = ForecastData(table, config)
    log.info("%s", data.description)
    for finding in data.findings.of("warning", "note"):
        log.info("%s: %s", finding.level, finding)
    seed_everything(config.seed, verbose=False)
    torch.set_float32_matmul_precision("high" if config.trainer.tf32 else "highest")
    forecaster_config = describe_forecaster(data, config)
    module = ForecastModule(
        network=network_settings(forecaster_config),
        compile=config.model.compile,
        num_groups=len(data.groups),
        loss=config.loss,
        spectral_loss=config.spectral_loss,
        ema_decay=config.ema_decay,
        optimizer=config.optimizer.model_dump(),
        scheduler=config.scheduler.model_dump(),
        swa_fraction=config.swa_fraction,
        scheduled_sampling=config.scheduled_sampling,
        horizon_weight=config.horizon_weight,
        augment=config.augment,
    )
    _claim(run, yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))

    checkpoint = ModelCheckpoint(
        run / "checkpoints",
        filename="best",
        monitor=config.callbacks.monitor,
        save_last=True,
        enable_version_counter=False,
    )
    loaders = ForecastDataModule(data)
    trainer = _build_trainer(
        config, run, checkpoint, steps_per_epoch=len(loaders.train_dataloader())
    )
    log.info(
        "%s weights; %s train, %s validation and %s test windows",
        *(f"{n:,}" for n in (_num_weights(module), len(data.train), len(data.validation))),
        f"{len(data.test):,}",
    )
    began = time.perf_counter()
    try:
        trainer.fit(module, datamodule=loaders)
    except SystemExit as stop:  # how Lightning ends a training that a signal interrupts
        log.info("Interrupted: no model was saved; checkpoints are in %s", run / "checkpoints")
        raise SystemExit(143 if isinstance(stop, SIGTERMException) else 130) from stop
    train_seconds = time.perf_counter() - began

    objective = float(torch.as_tensor(checkpoint.best_model_score))
    if not math.isfinite(objective):
        raise TsformerError(
            f"{config.callbacks.monitor} is {objective}: the training diverged, or the data hold "
            "values too large for it. Lower optimizer.lr, or look at the data's largest values."
        )
    best = torch.load(checkpoint.best_model_path, map_location="cpu", weights_only=True)
    module.load_state_dict(best["state_dict"])
    network = module.forecasting_network.eval()
    conformal = None
    if config.conformal:
        needed = scores_needed(config.model.quantiles)
        if len(data.validation) < needed:
            log.warning(
                "warning: %s validation windows are too few to calibrate intervals by, which takes "
                "%s: give validation a larger part, or set conformal=false",
                len(data.validation),
                needed,
            )
        conformal = calibrate(network, data.validation, config.model.quantiles)
    forecaster = Forecaster(network, forecaster_config, conformal)
    forecaster.save(run / "model")

    log.info("Testing on %s windows", f"{len(data.test):,}")
    evaluations = report.evaluate(data, forecaster)
    by_target = report.target_metrics(data, evaluations)
    metrics = {
        "objective": objective,
        "monitor": config.callbacks.monitor,
        "test": report.test_metrics(data, evaluations),
        **({"test_by_target": by_target} if by_target else {}),
        "test_quantiles": report.quantile_metrics(evaluations),
        "test_windows": len(data.test),
        "best_step": best["global_step"],
        "train_seconds": round(train_seconds, 1),
        "weights": _num_weights(module),
    }
    report.draw_forecasts(data, forecaster).savefig(run / "forecast.png", dpi=120)
    report.draw_errors(data, evaluations).savefig(run / "error_by_horizon.png", dpi=120)
    if forecaster.is_probabilistic:
        report.draw_calibration(evaluations).savefig(run / "calibration.png", dpi=120)
    if config.logger.csv:
        curves = report.draw_training(run / "csv" / "metrics.csv", best["global_step"])
        curves.savefig(run / "training.png", dpi=120)
    write_atomically(run / "metrics.json", json.dumps(_without_nan(metrics), indent=1))
    for target, figures in by_target.items() or [(None, metrics["test"])]:
        open_console().print(report.metrics_table(data, figures, target))
        if forecaster.is_probabilistic:
            open_console().print(report.coverage_table(data, evaluations, target))
    log.info("Trained in %.0f s. Run folder: %s", train_seconds, run)
    return FitResult(objective, metrics, run)


def _build_trainer(
    config: FitConfig, run: Path, checkpoint: ModelCheckpoint, *, steps_per_epoch: int
) -> Trainer:
    # What Lightning says about its own choices here is no news to the user.
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    for message in ("does not have many workers", "treespec, LeafSpec", "logging interval"):
        warnings.filterwarnings("ignore", message=f".*{message}.*")
    loggers: list[Logger] = []
    if config.logger.csv:
        loggers.append(CSVLogger(run, name="csv", version=""))
    if config.logger.tensorboard:
        loggers.append(TensorBoardLogger(run, name="tensorboard", version=""))
    callbacks: list[Callback] = [checkpoint]
    if loggers:
        callbacks.append(LearningRateMonitor("step"))
    if config.callbacks.early_stopping_patience:
        patience = config.callbacks.early_stopping_patience
        callbacks.append(EarlyStopping(config.callbacks.monitor, patience=patience))
    if config.trainer.progress_bar:
        callbacks.append(RichProgressBar(refresh_rate=config.trainer.log_every_n_steps, leave=True))
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


def describe_forecaster(data: ForecastData, config: FitConfig) -> ForecasterConfig:
    """Return what a model folder says of the forecaster of some data."""
    joint = config.model.channels == "joint"
    return ForecasterConfig(
        context_length=config.context_length,
        horizon=config.horizon,
        freq=data.store.freq,
        regular=config.dataset.regular,
        duplicates=config.dataset.duplicates,
        time_zone=config.dataset.time_zone or data.store.time_zone,
        calendar=config.dataset.calendar,
        holidays=config.dataset.holidays,
        columns=replace(data.columns, weight=None),
        channels=list(channel_names(data.store)) if joint else None,
        model=config.model,
        scaler=ScalerConfig.of(data.scaler),
        covariates=EncoderConfig.of(data.covariates),
        static=EncoderConfig.of(data.static),
        conformal=config.conformal,
        versions={
            name: version(name) for name in ("tsformer", "torch", "lightning", "numpy", "pandas")
        },
    )


def _num_weights(module: ForecastModule) -> int:
    return sum(p.numel() for p in module.network.parameters())


def _claim(run: Path, settings: str) -> None:
    """Make the run folder ours by its config.yaml, which only one fit can create."""
    run.mkdir(parents=True, exist_ok=True)
    try:
        with (run / "config.yaml").open("x", encoding="utf-8") as file:
            file.write(settings)
    except FileExistsError as error:
        raise ConfigError(
            f"{run}: holds another run. Choose another folder, hydra.run.dir=..."
        ) from error


def _without_nan(value: Any) -> Any:
    """Return nested dicts with None where a number is not finite, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is whole at any time."""
    scratch = path.with_name(f".{path.name}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
