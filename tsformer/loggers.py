"""Logs that a training writes into its run folder."""

from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from tsformer.config import LoggerConfig


def build_loggers(config: LoggerConfig, run: Path) -> list[Logger]:
    """Return the loggers that the settings name, for one run.

    Args:
        config: which there are.
        run: folder that receives them.
    """
    loggers: list[Logger] = []
    if config.csv:
        loggers.append(CSVLogger(run, name="csv", version=""))
    if config.tensorboard:
        loggers.append(TensorBoardLogger(run, name="tensorboard", version=""))
    return loggers
