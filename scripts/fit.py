"""Fit a forecaster: `python scripts/fit.py dataset=electricity`; see `--help`."""

import os
from pathlib import Path
from typing import Any

from tsformer.cli import run_script
from tsformer.config import parse_fit
from tsformer.errors import ConfigError


def main(settings: dict[str, Any]) -> float | None:
    """Fit, and return the validation error that a sweep minimises."""
    search = settings.pop("sweep", None)
    if settings["trial"] is not None:
        from tsformer.sweep.trial import fit_trial

        return fit_trial(settings)
    if search is not None:
        raise ConfigError("sweep=... searches settings over many fits: add -m, for multirun")
    parse_fit(settings)  # tells mistakes before torch is loaded, which takes seconds
    from tsformer.training import fit

    return fit(settings).objective


def settle_folder(arguments: list[str]) -> list[str]:
    """Return arguments that keep Hydra from making a folder where there is to be none.

    Raises:
        ConfigError: the arguments do not go together.
    """
    swept = not {"-m", "--multirun"}.isdisjoint(arguments)
    resumed = [a.removeprefix("resume=") for a in arguments if a.startswith("resume=")]
    if resumed:
        from tsformer.run_folder import read_settings

        if swept or len(arguments) > 1:
            raise ConfigError("resume=RUN goes on with the settings of that run: leave out others")
        read_settings(Path(resumed[0]))
        return [f"hydra.run.dir='{resumed[0]}'", "hydra.output_subdir=null"]
    if "RANK" in os.environ or "SLURM_STEP_NUM_TASKS" in os.environ:
        from tsformer.ranks import find_world

        world = find_world()
        if world and swept:
            raise ConfigError("-m starts the processes of each job itself: leave out torchrun")
        if world and not world.is_first:  # the first one's folder is that of all
            return ["hydra.run.dir=.", "hydra.output_subdir=null", "hydra/job_logging=stdout"]
    return []


if __name__ == "__main__":
    run_script("fit", main, more=settle_folder)
