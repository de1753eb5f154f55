"""Fit a forecaster: `python scripts/fit.py dataset=electricity`; see `--help`."""

from typing import Any

from tsformer.cli import run_script


def main(settings: dict[str, Any]) -> float:
    """Fit, and return the validation error that a sweep minimises."""
    from tsformer.training import fit  # here, so that --help need not load torch

    return fit(settings).objective


if __name__ == "__main__":
    run_script("fit", main)
