"""Test a model on a table's past: `python scripts/evaluate.py model=... dataset=...`."""

from typing import Any

from tsformer.cli import CONF_FITTED, loading, run_script
from tsformer.evaluation.config import EvaluateConfig
from tsformer.settings import parse


def main(settings: dict[str, Any]) -> None:
    """Backtest, print the scores, and write them with a report."""
    parse(EvaluateConfig, settings)  # tells mistakes before torch is loaded, which takes seconds
    with loading():
        from tsformer.evaluating import evaluate

    evaluate(settings)


def run() -> None:
    """Run the command with the arguments of this process."""
    run_script("evaluate", main, CONF_FITTED, groups=("dataset", "paths"))
