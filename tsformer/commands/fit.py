"""Fit a forecaster: `python scripts/fit.py dataset=electricity`; see `--help`."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.types import Quote, QuotedString

from tsformer.cli import loading, run_script
from tsformer.config import parse_fit
from tsformer.data.catalog import find_file
from tsformer.errors import ConfigError

if TYPE_CHECKING:
    from tsformer.training import FitResult


def main(settings: dict[str, Any]) -> float | None:
    """Fit, and return the validation error that a sweep minimises."""
    search = settings.pop("sweep", None)
    if settings["trial"] is not None:
        from tsformer.sweep.trial import fit_trial

        return fit_trial(settings, fit)
    if search is not None:
        raise ConfigError("sweep=... searches settings over many fits: add -m, for multirun")
    config = parse_fit(settings)  # tells mistakes before torch is loaded, which takes seconds
    if config.resume is None and not config.paths.download:
        find_file(config.dataset, config.paths.data)
    return fit(settings).objective


def fit(settings: Mapping[str, Any]) -> "FitResult":
    """Fit; see `tsformer.training.fit`, which is loaded, and torch with it, when it is called."""
    with loading():
        from tsformer import training

    return training.fit(settings)


def settle_folder(arguments: list[str]) -> list[str]:
    """Keep Hydra from making a folder where there is to be none.

    Raises:
        ConfigError: the arguments do not go together.
    """
    swept = not {"-m", "--multirun"}.isdisjoint(arguments)
    resumed = [match[1] for a in arguments if (match := re.fullmatch(r"\+{0,2}resume=(.+)", a))]
    if resumed and resumed[0] != "null":
        if swept or len(arguments) > 1:
            raise ConfigError("resume=RUN uses the settings of that run: leave out all others")
        with loading():
            from tsformer.trainer.run_folder import read_settings

        run = re.sub(r"""^(['"])(.*)\1$""", r"\2", resumed[0])  # Hydra's quotes
        read_settings(Path(run))
        quoted = QuotedString(run.replace("${", "\\${"), Quote.single).with_quotes()
        return [f"resume={quoted}", f"hydra.run.dir={quoted}", "hydra.output_subdir=null"]
    if "RANK" in os.environ or "SLURM_STEP_NUM_TASKS" in os.environ:
        from tsformer.ranks import find_world

        world = find_world()
        if world and swept:
            raise ConfigError("-m starts the processes of each job itself: leave out torchrun")
        if world and not world.is_first:  # the first one's folder is that of all
            stay = ["hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=stdout"]
            return [*arguments, *stay]
    return arguments


def run() -> None:
    """Run the command with the arguments of this process."""
    run_script("fit", main, more=settle_folder)
