"""Logs of a training: in its run folder, and where MLflow and Weights & Biases keep theirs."""

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
from lightning.pytorch.loggers import (
    CSVLogger,
    Logger,
    MLFlowLogger,
    TensorBoardLogger,
    WandbLogger,
)

from tsformer.config import FitConfig, LoggerConfig, MLflowConfig, WandbConfig
from tsformer.data.locking import alone
from tsformer.data.writing import write_atomically
from tsformer.errors import ConfigError
from tsformer.settings import flatten
from tsformer.trainer.quiet import set_levels

CURVES = Path("csv", "metrics.csv")  # in a run folder, of the CSV logger
_PART = "from_step_"  # of a training that went on there
_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
_SQLITE = "sqlite:///"


def check_installed(config: LoggerConfig) -> None:
    """Refuse loggers whose package is missing.

    Raises:
        ConfigError: says what to install.
    """
    needed = {"mlflow": ["mlflow"], "wandb": ["wandb"]}
    if config.mlflow and config.mlflow.tracking_uri.startswith("sqlite"):
        needed["mlflow"] += ["sqlalchemy", "alembic"]
    for name, packages in needed.items():
        missing = [package for package in packages if find_spec(package) is None]
        if getattr(config, name) and missing:
            raise ConfigError(
                f"logger.{name} needs the package {missing[0]}: pip install 'tsformer[{name}]'"
            )


@contextmanager
def open_loggers(config: FitConfig, run: Path, first_step: int = 0) -> Iterator[list[Logger]]:
    """Give the loggers of one run with its settings in them, and tell them how it ends.

    A run that ends by an exception is FAILED, one that is interrupted is KILLED.

    Raises:
        ConfigError: a package is missing, or MLflow or Weights & Biases cannot be reached.
    """
    goes_on = _read_id(run, "mlflow") is not None
    loggers = build_loggers(config.logger, run, first_step, verbose=config.verbose)
    settings = flatten(config.model_dump(mode="json"))
    try:
        for logger in loggers:
            # A run of MLflow that goes on has them: it takes none twice, such as a moved folder.
            given = isinstance(logger, MLFlowLogger) and goes_on
            if not given and not isinstance(logger, CSVLogger):  # config.yaml stands beside it
                logger.log_hyperparams(settings)
        yield loggers
    except BaseException as error:
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        _finish(loggers, "KILLED" if stopped else "FAILED")
        raise
    _finish(loggers, "FINISHED")


def build_loggers(
    config: LoggerConfig, run: Path, first_step: int = 0, *, verbose: bool = False
) -> list[Logger]:
    """Return the loggers that the settings name, for one run.

    Args:
        config: which there are.
        run: folder that receives them.
        first_step: where the training goes on; 0 at its beginning.
        verbose: let them print what they do.

    Raises:
        ConfigError: a package is missing, or MLflow or Weights & Biases cannot be reached.
    """
    check_installed(config)
    loggers: list[Logger] = []
    if config.csv:
        # A file for each time that the training went on: the logger begins anew, and deletes.
        part = f"{_PART}{first_step:09}" if first_step else ""
        loggers.append(CSVLogger(run, name="csv", version=part, flush_logs_every_n_steps=1))
    if config.tensorboard:
        # Its table of settings is written once, with the figures of the test.
        board = TensorBoardLogger(run, name="tensorboard", version="", default_hp_metric=False)
        loggers.append(board)
    try:
        if config.mlflow:
            loggers.append(_open_mlflow(config.mlflow, run, verbose))
        if config.wandb:
            loggers.append(_open_wandb(config.wandb, run, verbose))
    except BaseException:
        _finish(loggers, "FAILED")
        raise
    return loggers


def join_curves(run: Path) -> None:
    """Make one file, `CURVES`, of what the CSV logger wrote each time that the training went on.

    Args:
        run: folder of the run.
    """
    whole = run / CURVES
    parts = sorted(whole.parent.glob(f"{_PART}*"))
    if not parts:
        return
    curves = pd.DataFrame({"step": []})
    for path in (whole, *(part / whole.name for part in parts)):
        if not path.exists() or not path.stat().st_size:  # nothing was logged, or a power cut
            continue
        curve = pd.read_csv(path)
        before = curves[curves["step"] < curve["step"].min()]  # the rest was done once more
        curves = pd.concat([before, curve], ignore_index=True) if len(before) else curve
    write_atomically(whole, curves.to_csv(index=False))
    for part in parts:
        shutil.rmtree(part)


def log_test(loggers: Sequence[Logger], metrics: Mapping[str, Any]) -> None:
    """Log the figures of the test, at the step whose weights were tested.

    Args:
        loggers: what `open_loggers` gave; the CSV file is left out, as metrics.json stands beside.
        metrics: what metrics.json holds.
    """
    own = {**metrics["test"]["tsformer"], **metrics["test_quantiles"].get("tsformer", {})}
    figures = flatten({"objective": metrics["objective"], "test": own}, "/")
    figures = {name: value for name, value in figures.items() if math.isfinite(value)}
    for logger in loggers:
        if isinstance(logger, TensorBoardLogger):
            logger.log_hyperparams(dict(logger.hparams), figures, step=metrics["best_step"])
        elif not isinstance(logger, CSVLogger):
            logger.log_metrics(figures, step=metrics["best_step"])


def _open_mlflow(config: MLflowConfig, run: Path, verbose: bool) -> Logger:
    from mlflow.exceptions import MlflowException

    set_levels(verbose)
    uri = config.tracking_uri
    is_file = uri.startswith(_SQLITE)
    file = Path(uri.removeprefix(_SQLITE))
    if is_file:
        file.parent.mkdir(parents=True, exist_ok=True)
    # The jobs of a sweep must not make the tables of one file at the same time.
    lock = alone(file.with_name(f".{file.name}.lock")) if is_file else nullcontext()
    environment = dict(os.environ)
    # Of a server that is not there, five minutes of tries would tell no more.
    os.environ.setdefault(_RETRIES, "2")
    try:
        with lock:
            logger = MLFlowLogger(
                config.experiment,
                run_name=_name(run),
                tracking_uri=uri,
                run_id=_read_id(run, "mlflow"),
            )
            known = _keep_id(run, "mlflow", lambda: str(logger.run_id))
            logger.experiment.update_run(known, status="RUNNING")  # which it was not if it goes on
    except MlflowException as error:
        raise ConfigError(f"logger.mlflow.tracking_uri={uri}: {error}") from error
    finally:  # MLflow tells its place to all that comes later, such as a sweep's next job
        for name in ("MLFLOW_TRACKING_URI", _RETRIES):
            _restore(name, environment)
    return logger


def _open_wandb(config: WandbConfig, run: Path, verbose: bool) -> Logger:
    import wandb

    set_levels(verbose)
    run.mkdir(parents=True, exist_ok=True)
    try:
        # Lightning's own call names settings that wandb warns of, and takes a run that is open.
        experiment = wandb.init(
            name=_name(run),
            dir=run,
            id=_keep_id(run, "wandb", lambda: uuid4().hex[:8]),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(silent=not verbose, console="off"),
            **config.model_dump(),
        )
    except wandb.errors.Error as error:
        raise ConfigError(f"logger.wandb: {error} Or set logger.wandb.mode=offline.") from error
    experiment.define_metric("trainer/global_step")
    experiment.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    return WandbLogger(experiment=experiment)


def _finish(loggers: Sequence[Logger], status: str) -> None:
    for logger in loggers:
        if isinstance(logger, MLFlowLogger):
            logger.finalize(status)
        elif isinstance(logger, WandbLogger):
            logger.experiment.finish(exit_code=0 if status == "FINISHED" else 1)
        elif isinstance(logger, TensorBoardLogger):
            logger.finalize("success")  # closes the file


def _restore(variable: str, environment: Mapping[str, str]) -> None:
    if variable in environment:
        os.environ[variable] = environment[variable]
    else:
        os.environ.pop(variable, None)


def _name(run: Path) -> str:
    """Return what a run is called: its dataset and time, or its sweep and number."""
    return "/".join(run.absolute().parts[-2:])


def _read_id(run: Path, service: str) -> str | None:
    """Return which of a service's runs this one is, if it was one before it was resumed."""
    file = run / f"{service}.id"
    return file.read_text().strip() if file.exists() else None


def _keep_id(run: Path, service: str, make: Callable[[], str]) -> str:
    known = _read_id(run, service)
    if known is None:
        known = make()
        run.mkdir(parents=True, exist_ok=True)
        write_atomically(run / f"{service}.id", known)
    return known
