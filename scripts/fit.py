"""Fit a forecaster: `python scripts/fit.py dataset=electricity`; see `--help`."""

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


if __name__ == "__main__":
    run_script("fit", main)
