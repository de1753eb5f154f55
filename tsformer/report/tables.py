"""Figures of a test or a backtest, as tables for the terminal and the page."""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tsformer.data.forecast_data import ForecastData
from tsformer.evaluation.testing import MODEL, Evaluation
from tsformer.metrics import central_intervals
from tsformer.report.content import Cell, Figures


def metrics_figures(
    data: ForecastData, metrics: Mapping[str, Mapping[str, float]], target: str | None = None
) -> Figures:
    """Return the figures of a fit's test.

    (z) marks scaled units; the last column says by how much the forecaster's MAE (z) is below, on
    the steps that both forecast.
    """
    title = f"Test: {len(data.test):,} windows of {data.config.horizon} steps"
    if target is not None:
        title += f", target {target}"
    if data.config.dataset.unit:
        title += f", MAE and RMSE in {data.config.dataset.unit}"
    names = ("mae", "rmse", "mase", "scaled_mae", "scaled_mse")
    rows: list[list[Cell]] = []
    for method, row in metrics.items():
        less = row.get("improvement", np.nan)  # scaled, as series of different units count alike
        cut = f"{less:.1%}" if np.isfinite(less) else None
        rows.append([method, *_known(row[name] for name in names), cut])
    return Figures(title, ["", "MAE", "RMSE", "MASE", "MAE (z)", "MSE (z)", "(z) cut"], rows)


def coverage_figures(
    data: ForecastData, evaluations: Mapping[str, Evaluation], target: str | None = None
) -> Figures:
    """Return how often intervals hold the truth.

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
    rows: list[list[Cell]] = []
    for method, evaluation in evaluations.items():
        if (errors := evaluation.quantiles) is None:
            continue
        for place, nominal in enumerate(central_intervals(errors.levels)):
            covered, width = errors.coverage(nominal), errors.width(nominal)
            crps = f"{errors.scaled_crps():.4f}" if not place else None
            name = method if not place else ""
            rows.append([name, f"{100 * nominal:g}%", f"{covered:.1%}", width, crps])
    return Figures(title, ["", "Nominal", "Covered", "Width", "Scaled CRPS"], rows)


def score_figures(scores: pd.DataFrame, title: str, note: str = "") -> list[Figures]:
    """Return scores, one row a method, as one table of points and one of intervals.

    Scores that no method has are left out, and so is the second table if it has none.
    """
    scores = scores.dropna(axis=1, how="all")
    points = [name for name in _OF_POINTS if name in scores]
    tables = [Figures(title, ["", *points], _rows(scores[["method", *points]]), note)]
    percents = [name.removeprefix("coverage-") for name in scores if name.startswith("coverage-")]
    rows: list[list[Cell]] = []
    for row in scores.to_dict("records") if percents else []:
        if np.isnan(row["scaled CRPS"]):
            continue
        for place, percent in enumerate(percents):
            covered, width = row[f"coverage-{percent}"], row[f"width-{percent}"]
            msis, first = row.get(f"MSIS-{percent}", np.nan), place == 0
            name, crps = (row["method"], f"{row['scaled CRPS']:.4f}") if first else ("", None)
            rows.append([name, f"{percent}%", f"{covered:.1%}", *_known([width, msis]), crps])
    if rows:
        columns = ["", "Nominal", "Covered", "Width", "MSIS", "Scaled CRPS"]
        tables.append(Figures("Their intervals", columns, rows))
    return tables


# The MSE is the square of the RMSE, and a terminal 80 columns wide.
_OF_POINTS = ("MAE", "RMSE", "MAPE", "sMAPE", "bias", "MASE", "RMSSE")


def comparison_figures(comparison: pd.DataFrame, loss: str, *, is_scaled: bool) -> Figures:
    """Return paired comparisons with baselines.

    Args:
        comparison: see `tsformer.evaluation.comparison.compare`.
        loss: `mae` or `mse`.
        is_scaled: whether each series' losses are in units of the scale of MASE.
    """
    rows: list[list[Cell]] = []
    for row in comparison.to_dict("records"):
        # A baseline without any error leaves nothing to be less than.
        less = f"{row['improvement']:.1%}" if np.isfinite(row["improvement"]) else None
        interval = f"{row['low']:.1%} to {row['high']:.1%}" if np.isfinite(row["low"]) else None
        p_value = f"{row['p_value']:.2g}" if np.isfinite(row["p_value"]) else None
        rows.append([row["baseline"], less, interval, p_value, f"{row['num_cutoffs']:,}"])
    name = {"mae": "MASE", "mse": "Scaled MSE"}[loss] if is_scaled else loss.upper()
    note = (
        f"How much lower its {name} is, all steps weighted equally. The interval is from a "
        "bootstrap, p from the Diebold-Mariano test over cutoffs: below 0.05 the difference is "
        "more than chance."
    )
    for reason in dict.fromkeys(filter(None, comparison.get("note", ()))):
        note += f" Not given: {reason}."
    columns = ["", f"{name} less by", "95 % interval", "p", "Cutoffs"]
    return Figures(f"How much better {MODEL} is than", columns, rows, note)


def figures_table(figures: Figures) -> Table:
    """Return figures as a table for the terminal."""
    table = Table(
        title=figures.title,
        caption=figures.note or None,
        caption_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column(figures.columns[0], no_wrap=True)
    for name in figures.columns[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in figures.rows:
        table.add_row(*map(_text, row))
    return table


def _text(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    return "" if cell is None else f"{cell:,.4g}"


def _rows(table: pd.DataFrame) -> list[list[Cell]]:
    return [_known(row) for row in table.itertuples(index=False, name=None)]


def _known(row: Iterable[Cell]) -> list[Cell]:
    return [None if isinstance(x, float) and np.isnan(x) else x for x in row]
