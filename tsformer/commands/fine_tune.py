"""Go on training a model: `python scripts/fine_tune.py model=runs/.../model input=my.csv`."""

import logging
from inspect import signature
from typing import Any

from tsformer.cli import CONF_FITTED, loading, run_script
from tsformer.errors import ConfigError
from tsformer.settings import tell_unknown

log = logging.getLogger(__name__)


def main(settings: dict[str, Any]) -> None:
    """Fine-tune, and tell where the model lies."""
    with loading():
        from tsformer import Forecaster

    arguments = signature(Forecaster.fine_tune).parameters.keys() - {"self", "frame"}
    known = {"model", "input", "device", *arguments}
    if unknown := sorted(settings.keys() - known):
        raise ConfigError(tell_unknown(unknown[0], sorted(known)))
    if not settings["output"]:
        raise ConfigError("output: give a folder to write the model to")
    model, source, device = (settings.pop(name) for name in ("model", "input", "device"))
    Forecaster.load(model, device).fine_tune(source, **settings)
    log.info("Model folder: %s/model", settings["output"])


def run() -> None:
    """Run the command with the arguments of this process."""
    run_script("fine_tune", main, CONF_FITTED)
