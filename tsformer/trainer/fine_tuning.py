"""fine_tune: continue training a model on your own table."""

import logging
import math
import signal
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from tsformer.arguments import count
from tsformer.config import FitConfig
from tsformer.data.forecast_data import Fitted, ForecastData
from tsformer.data.table import SeriesTable
from tsformer.data.writing import naming_full_disk
from tsformer.errors import ConfigError, DataError
from tsformer.model.config import ForecasterConfig, ScalerConfig, network_settings
from tsformer.model.fitted import FittedModel
from tsformer.model.folder import CONFIG, write_folder
from tsformer.prediction.history import History
from tsformer.ranks import Interrupted
from tsformer.settings import parse
from tsformer.trainer.loggers import build_loggers
from tsformer.trainer.quiet import quiet
from tsformer.trainer.run_folder import claimed
from tsformer.trainer.train import build_module, train, versions

log = logging.getLogger(__name__)

_VALIDATION = 0.1  # of the table's steps, unless told otherwise


def fine_tune(
    model: FittedModel,
    history: History,
    *,
    max_epochs: int,
    max_steps: int,
    lr: float,
    batch_size: int,
    validation: float | None,
    seed: int,
    output: str | Path | None,
) -> FittedModel:
    """Return a model whose training went on; see `Forecaster.fine_tune`."""
    own = model.config
    like = next(model.network.parameters())
    num_validation = _num_validation(validation, len(history.store.grid), own.horizon)
    if output is not None and not _is_new_folder(output):
        raise ConfigError(f"output={output!r}: give a folder that is not a model folder.")
    scratch = tempfile.TemporaryDirectory() if output is None else nullcontext(str(output))
    with scratch as folder, torch.random.fork_rng():
        run = Path(folder)
        settings = {
            "seed": seed,
            "batch_size": count("batch_size", batch_size),
            "split": [len(history.store.grid) - num_validation, num_validation, 0],
            "lr": lr,
            "max_epochs": count("max_epochs", max_epochs, least=-1),
            "max_steps": count("max_steps", max_steps, least=-1),
            "accelerator": "cuda" if like.is_cuda else "cpu",
            "run": str(run),
        }
        config = parse(FitConfig, _settings(own, settings))
        data = ForecastData(SeriesTable(history.store, history.columns), config, _fitted(own))
        changes = {"scaler": ScalerConfig.of(data.scaler), "versions": versions()}
        described = own.model_copy(update=changes)
        torch.manual_seed(config.seed)
        module = build_module(config, network_settings(own))
        for copy in filter(None, (module.network, module.averaged)):
            copy.load_state_dict(model.network.state_dict())
        with naming_full_disk(run), claimed(run, config), quiet():
            loggers = build_loggers(config.logger, run)
            try:
                trained = train(data, module, run, described, loggers=loggers)
            except Interrupted as stop:
                if stop.number == signal.SIGINT:
                    raise KeyboardInterrupt from stop
                raise
        log.info(
            "%s %.4f after step %s; trained in %.0f s",
            config.callbacks.monitor,
            trained.objective,
            trained.best_step,
            trained.seconds,
        )
        network = trained.network.to(like.device, like.dtype)
        tuned = FittedModel(network, described, trained.conformal)
        if output is not None:
            write_folder(run / "model", tuned)
    return tuned


def _is_new_folder(output: Any) -> bool:
    if not isinstance(output, (str, Path)) or not str(output):
        return False
    return not (Path(output) / CONFIG).exists()


def _num_validation(validation: float | None, num_steps: int, horizon: int) -> int:
    """Return how many steps at the end of the table are kept for validation."""
    if validation is None:
        steps = max(round(_VALIDATION * num_steps), horizon)
    elif isinstance(validation, float) and 0 < validation < 1:
        steps = math.ceil(validation * num_steps)
    else:
        try:
            steps = count("validation", validation)
        except ConfigError as error:
            raise ConfigError(
                f"{error} Or give a fraction of the table below 1, such as 0.1."
            ) from error
    if num_steps - steps <= horizon:
        raise DataError(
            f"the table has {num_steps} steps. Training needs at least {horizon + 1} steps, plus "
            f"{steps} for validation. Give more rows, or a smaller validation."
        )
    return steps


def _fitted(config: ForecasterConfig) -> Fitted:
    return Fitted(
        config.scaler.scaler(),
        config.covariates.encoder(config.columns.covariates),
        config.static.encoder(config.columns.static_covariates),
        config.channels,
        config.yearly,
    )


def _settings(own: ForecasterConfig, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the fit that goes on: the model's own, those given, and the usual.

    Args:
        own: of the model.
        given: arguments of `fine_tune`, the split, and what follows from the machine.
    """
    columns = own.columns
    return {
        "seed": given["seed"],
        "context_length": own.context_length,
        "horizon": own.horizon,
        "batch_size": given["batch_size"],
        "eval_batch_size": 1024,
        "num_workers": 0,
        "loss": own.loss,
        "spectral_loss": 0.0,
        "ema_decay": 0.995,
        "conformal": own.conformal,
        "dataset": {
            "name": "fine_tune",
            "path": "",
            "time_column": columns.time,
            "id_column": columns.id,
            "target": list(columns.target),
            "past_covariates": list(columns.past_covariates),
            "future_covariates": list(columns.future_covariates),
            "static_covariates": list(columns.static_covariates),
            "categorical": list(columns.categorical),
            "freq": own.freq,
            "regular": own.regular,
            "duplicates": own.duplicates,
            "time_zone": own.time_zone,
            "calendar": own.calendar,
            "holidays": own.holidays,
            "split": given["split"],
        },
        "scaling": own.scaler.model_dump(include={"per", "method", "transform"}),
        "sampling": {"over": "windows", "stride": 1, "eval_stride": 1, "windows_per_epoch": None},
        "model": own.model.model_dump(),
        "optimizer": {
            "name": "adamw",
            "lr": given["lr"],
            "weight_decay": 0.01,
            "skip_lr": None,
            "skip_weight_decay": None,
            "betas": (0.9, 0.999),
        },
        "scheduler": {"name": "cosine", "warmup_fraction": 0.05, "min_lr_ratio": 0.01},
        "trainer": {
            "max_epochs": given["max_epochs"],
            "max_steps": given["max_steps"],
            "accelerator": given["accelerator"],
            "devices": 1,
            "precision": "32-true",
            "tf32": False,
            "gradient_clip_val": 1.0,
            "log_every_n_steps": 10,
            "progress_bar": False,
        },
        "callbacks": {"monitor": "val/mae", "early_stopping_patience": None},
        "logger": {"tensorboard": False, "csv": True},
        "paths": {"data": "", "runs": "", "run": given["run"]},
    }
