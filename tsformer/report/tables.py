"""Test figures as tables for the terminal."""

from collections.abc import Mapping

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tsformer.data.forecast_data import ForecastData
from tsformer.evaluation.testing import MODEL, Evaluation
from tsformer.metrics import central_intervals


def metrics_table(
    data: ForecastData, metrics: Mapping[str, Mapping[str, float]], target: str | None = None
) -> Table:
    """Return the test figures as a table for the terminal.

    (z) marks scaled units; the last column says by how much the forecaster's MAE (z) is below.
    """
    title = f"Test: {len(data.test):,} windows of {data.config.horizon} steps"
    if target is not None:
        title += f", target {target}"
    if data.config.dataset.unit:
        title += f", MAE and RMSE in {data.config.dataset.unit}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("MAE", "RMSE", "MASE", "MAE (z)", "MSE (z)", "MAE cut"):
        table.add_column(name, justify="right", no_wrap=True)
    ours = metrics[MODEL]["scaled_mae"]  # series of different units count alike
    for method, row in metrics.items():
        theirs = row["scaled_mae"]
        cut = "" if method == MODEL or not theirs > 0 else f"{1 - ours / theirs:.1%}"
        table.add_row(method, *(f"{value:,.4g}" for value in row.values()), cut)
    return table


def coverage_table(
    data: ForecastData, evaluations: Mapping[str, Evaluation], target: str | None = None
) -> Table:
    """Return how often intervals hold the truth, as a table for the terminal.

    Args:
        data: the table and its windows.
        evaluations: errors by method; those without quantiles are left out.
        target: column that it tells of, where there are several.
    """
    title = f"Intervals: {len(data.test):,} test windows"
    if target is not None:
        title += f", target {target}"
        number = data.store.targets.index(target)
        members = data.groups % data.store.num_targets == number  # (N, C)
        evaluations = {name: evaluation.of(members) for name, evaluation in evaluations.items()}
    if data.config.dataset.unit:
        title += f", mean width in {data.config.dataset.unit}"
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("Nominal", "Covered", "Width", "Scaled CRPS"):
        table.add_column(name, justify="right", no_wrap=True)
    for method, (_, _, errors) in evaluations.items():
        if errors is None:
            continue
        for place, nominal in enumerate(central_intervals(errors.levels)):
            covered, width = errors.coverage(nominal), errors.width(nominal)
            crps = f"{errors.scaled_crps():.4f}" if not place else ""
            name = method if not place else ""
            table.add_row(name, f"{100 * nominal:g}%", f"{covered:.1%}", f"{width:,.4g}", crps)
    return table
