"""What a report page shows, as plain data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

Cell = str | float | None


@dataclass(frozen=True)
class Figures:
    """A table of figures.

    Attributes:
        title: above it.
        columns: headings; the first column names the rows.
        rows: cells of each row; None where there is no figure.
        note: what the figures mean, below it.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True)
class WindowView:
    """One forecast beside its truth; values are indexed by time.

    Attributes:
        series: name of the series.
        cutoff: the last time seen.
        context: values seen, at least their end.
        truth: of the horizon, NaN where missing.
        forecasts: by method, the model's first; of the horizon.
        intervals: of the model, nominal coverage such as 0.9 -> lower and upper ends.
    """

    series: str
    cutoff: pd.Timestamp
    context: pd.Series
    truth: pd.Series
    forecasts: Mapping[str, pd.Series]
    intervals: Mapping[float, tuple[pd.Series, pd.Series]] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """All of a page; parts that are empty or None are left out.

    Attributes:
        title: what was forecast.
        subtitle: how, in one line.
        headline: the tables on top.
        windows: forecasts to look at, of some series, several of each.
        error_by: heading such as `horizon step`, `hour`, `weekday` or `month` -> error, groups
            (index, in their order) x methods, the model's first.
        error: what the error is.
        calibration: fraction of truths below, levels of quantiles (index) x methods.
        series: error, series (index) x methods, of all of them or of the worst and
            the best.
        curves: columns `step`, `train/loss`, `val/mae`, `lr-...`, as the CSV logger writes them.
        best_step: step of the checkpoint chosen.
        data: what the table holds, by name.
        settings: of the run, YAML.
        how_to_load: Python that loads the model and forecasts.
        notes: what a reader has to know, such as what is a sample.
        unit: of the target.
    """

    title: str
    subtitle: str
    headline: Sequence[Figures]
    windows: Sequence[WindowView] = ()
    error_by: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    error: str = "mean absolute error"
    calibration: pd.DataFrame | None = None
    series: pd.DataFrame | None = None
    curves: pd.DataFrame | None = None
    best_step: int | None = None
    data: Mapping[str, Cell] = field(default_factory=dict)
    settings: str = ""
    how_to_load: str = ""
    notes: Sequence[str] = ()
    unit: str | None = None
