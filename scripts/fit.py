"""Fit a forecaster: `python scripts/fit.py dataset=electricity`; see `--help`."""

from tsformer.commands.fit import run

if __name__ == "__main__":
    run()
