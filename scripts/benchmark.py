"""Measure speed, memory and accuracy: `python scripts/benchmark.py speed`; see `--help`."""

from tsformer.commands.benchmark import run

if __name__ == "__main__":
    run()
