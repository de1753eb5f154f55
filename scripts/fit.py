"""Fit a forecaster: `python scripts/fit.py dataset=electricity`; see `--help`."""

from typing import Any

from tsformer.cli import run_script
from tsformer.config import parse_fit


def main(settings: dict[str, Any]) -> float:
    """Fit, and return the validation error that a sweep minimises."""
    parse_fit(settings)  # tells mistakes before torch is loaded, which takes seconds
    from tsformer.training import fit

    return fit(settings).objective


if __name__ == "__main__":
    run_script("fit", main)
