"""Forecast all series of a table: `python scripts/forecast.py model=... input=... output=...`."""

from tsformer.commands.forecast import run

if __name__ == "__main__":
    run()
