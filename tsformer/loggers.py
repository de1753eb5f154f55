"""Logs that a training writes into its run folder."""

from pathlib import Path

import pandas as pd
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from tsformer.config import LoggerConfig


def build_loggers(config: LoggerConfig, run: Path, first_step: int = 0) -> list[Logger]:
    """Return the loggers that the settings name, for one run.

    Args:
        config: which there are.
        run: folder that receives them.
        first_step: where the training goes on; 0 at its beginning.
    """
    loggers: list[Logger] = []
    if config.csv:
        # A file for each time that the training went on: the logger begins anew, and deletes.
        part = f"from_step_{first_step:09}" if first_step else ""
        loggers.append(CSVLogger(run, name="csv", version=part, flush_logs_every_n_steps=1))
    if config.tensorboard:
        loggers.append(TensorBoardLogger(run, name="tensorboard", version=""))
    return loggers


def read_curves(run: Path) -> pd.DataFrame:
    """Return what the CSV logger wrote, of a training that may have been stopped and gone on.

    Args:
        run: folder of the run.

    Returns:
        A row for each time that something was logged, with the column `step`.
    """
    curves = pd.DataFrame({"step": []})
    for path in sorted((run / "csv").rglob("metrics.csv"), key=lambda path: path.parent.name):
        part = pd.read_csv(path)
        before = curves[curves["step"] < part["step"].min()]  # the rest was done once more
        curves = pd.concat([before, part], ignore_index=True) if len(before) else part
    return curves
