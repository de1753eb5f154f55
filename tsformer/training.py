"""fit(settings) -> FitResult: train, test, draw and save one forecaster."""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import seed_everything
from lightning.pytorch.utilities.exceptions import SIGTERMException

from tsformer import report
from tsformer.config import FitConfig, parse, parse_fit
from tsformer.console import open_console
from tsformer.data.catalog import load_data
from tsformer.data.forecast_data import ForecastData
from tsformer.data.groups import channel_names
from tsformer.data.writing import write_atomically
from tsformer.forecaster import Forecaster
from tsformer.forecaster_config import (
    EncoderConfig,
    ForecasterConfig,
    ScalerConfig,
    network_settings,
)
from tsformer.model_card import model_card
from tsformer.trainer import build_module, claim, num_weights, train, versions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitResult:
    """What a fit gives back.

    Attributes:
        objective: the best validation error, `callbacks.monitor`; sweeps minimise it.
        metrics: what `metrics.json` holds.
        run: the run folder.
        pruned: whether a search stopped the training; then there is no model, and no metrics.
    """

    objective: float
    metrics: dict[str, Any]
    run: Path
    pruned: bool = False


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
    module = build_module(config, network_settings(forecaster_config), len(data.groups))
    claim(run, config)
    log.info(
        "%s weights; %s train, %s validation and %s test windows",
        *(f"{n:,}" for n in (num_weights(module), len(data.train), len(data.validation))),
        f"{len(data.test):,}",
    )
    try:
        trained = train(data, module, run, forecaster_config)
    except SystemExit as stop:  # how Lightning ends a training that a signal interrupts
        log.info("Interrupted: no model was saved; checkpoints are in %s", run / "checkpoints")
        raise SystemExit(143 if isinstance(stop, SIGTERMException) else 130) from stop
    if trained.pruned:
        log.info("Pruned: other trials of the search are better. Run folder: %s", run)
        return FitResult(trained.objective, {}, run, pruned=True)
    forecaster = Forecaster(trained.network, forecaster_config, trained.conformal)
    forecaster.save(run / "model")  # again with figures of the test, which takes a while

    log.info("Testing on %s windows", f"{len(data.test):,}")
    evaluations = report.evaluate(data, forecaster)
    by_target = report.target_metrics(data, evaluations)
    metrics: dict[str, Any] = {
        "objective": trained.objective,
        "monitor": config.callbacks.monitor,
        "test": report.test_metrics(data, evaluations),
        **({"test_by_target": by_target} if by_target else {}),
        "test_quantiles": report.quantile_metrics(evaluations),
        "test_windows": len(data.test),
        "best_step": trained.best_step,
        "train_seconds": round(trained.seconds, 1),
        "weights": num_weights(module),
    }
    report.draw_forecasts(data, forecaster).savefig(run / "forecast.png", dpi=120)
    report.draw_errors(data, evaluations).savefig(run / "error_by_horizon.png", dpi=120)
    if forecaster.is_probabilistic:
        report.draw_calibration(evaluations).savefig(run / "calibration.png", dpi=120)
    if config.logger.csv:
        curves = report.draw_training(run / "csv" / "metrics.csv", trained.best_step)
        curves.savefig(run / "training.png", dpi=120)
    told = _without_nan(metrics)
    write_atomically(run / "metrics.json", json.dumps(told, indent=1))
    forecaster.card = model_card(forecaster_config, data=config.dataset.name, metrics=told)
    forecaster.save(run / "model")
    for target, figures in by_target.items() or [(None, metrics["test"])]:
        open_console().print(report.metrics_table(data, figures, target))
        if forecaster.is_probabilistic:
            open_console().print(report.coverage_table(data, evaluations, target))
    log.info("Trained in %.0f s. Run folder: %s", trained.seconds, run)
    return FitResult(trained.objective, metrics, run)


def describe_forecaster(data: ForecastData, config: FitConfig) -> ForecasterConfig:
    """Return what a model folder says of the forecaster of some data."""
    joint = config.model.channels == "joint"
    values = {
        "context_length": config.context_length,
        "horizon": config.horizon,
        "freq": data.store.freq,
        "regular": config.dataset.regular,
        "duplicates": config.dataset.duplicates,
        "time_zone": config.dataset.time_zone or data.store.time_zone,
        "calendar": config.dataset.calendar,
        "yearly": data.yearly,
        "holidays": config.dataset.holidays,
        "columns": replace(data.columns, weight=None),
        "channels": list(channel_names(data.store)) if joint else None,
        "model": config.model,
        "scaler": ScalerConfig.of(data.scaler),
        "covariates": EncoderConfig.of(data.covariates),
        "static": EncoderConfig.of(data.static),
        "conformal": config.conformal,
        "loss": config.loss,
        "versions": versions(),
    }
    return parse(ForecasterConfig, values)


def _without_nan(value: Any) -> Any:
    """Return nested dicts with None where a number is not finite, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
