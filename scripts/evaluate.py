"""Test a model on a table's past: `python scripts/evaluate.py model=... dataset=...`."""

from tsformer.commands.evaluate import run

if __name__ == "__main__":
    run()
