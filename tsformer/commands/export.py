"""Write a model as one file: `python scripts/export.py model=runs/.../model output=my.onnx`."""

from pathlib import Path
from typing import Any

from tsformer.cli import CONF_FITTED, run_script
from tsformer.config import ExportConfig, parse


def main(settings: dict[str, Any]) -> None:
    """Export the network, check it, and say where it is."""
    config = parse(ExportConfig, settings)  # tells mistakes before torch is loaded
    from tsformer.export import export
    from tsformer.forecaster import Forecaster

    forecaster = Forecaster.load(config.model)
    export(forecaster, Path(config.output), config.format)
    without = " but for the calibration of its intervals" if forecaster.conformal else ""
    print(f"{config.output}: forecasts as {config.model} does{without}.")


def run() -> None:
    """Run the command with the arguments of this process."""
    run_script("export", main, CONF_FITTED)
