"""Write a model as one file: `python scripts/export.py model=runs/.../model output=my.onnx`."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import model_validator

from tsformer.cli import CONF_FITTED, loading, run_script
from tsformer.settings import Config, parse


class ExportConfig(Config):
    """Which model to export, and the file."""

    model: str
    format: Literal["onnx", "torch_export"]
    output: str

    @model_validator(mode="after")
    def _check_suffix(self) -> Self:
        suffix = {"onnx": ".onnx", "torch_export": ".pt2"}[self.format]
        if not self.output.endswith(suffix):
            raise ValueError(
                f"output={self.output!r}: a file of format={self.format} must end in {suffix}"
            )
        return self


def main(settings: dict[str, Any]) -> None:
    """Export the network, check it, and say where it is."""
    config = parse(ExportConfig, settings)  # tells mistakes before torch is loaded
    with loading():
        from tsformer.export import export
        from tsformer.forecaster import Forecaster

    forecaster = Forecaster.load(config.model)
    export(forecaster, Path(config.output), config.format)
    without = ", except for the calibration of its intervals" if forecaster.conformal else ""
    print(f"{config.output}: gives the same forecasts as {config.model}{without}.")


def run() -> None:
    """Run the command with the arguments of this process."""
    run_script("export", main, CONF_FITTED)
