"""Forecast all series of a table: `python scripts/forecast.py model=... input=... output=...`."""

from typing import Any

from tsformer.batch.config import parse_batch
from tsformer.cli import CONF_FITTED, loading, run_script


def main(settings: dict[str, Any]) -> None:
    """Forecast, and print what was written."""
    parse_batch(settings)  # tells mistakes before torch is loaded, which takes seconds
    with loading():
        from tsformer.batch.run import forecast_files

    if summary := forecast_files(settings):
        print(summary)


def run() -> None:
    """Run the command with the arguments of this process."""
    run_script("forecast", main, CONF_FITTED)
