"""Scores of forecasts beside their truth, in all and by group, by utilsforecast's formulas."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from utilsforecast import losses

from tsformer.errors import ConfigError, DataError
from tsformer.evaluation.frames import (
    GROUPS,
    interval_columns,
    point_columns,
    quantile_columns,
    read_forecasts,
    require_columns,
    with_groups,
)

_GROUP = "(group)"  # no name of a method


class Scales(NamedTuple):
    """What a series' errors are measured by, in its train rows; NaN where there is nothing.

    Attributes:
        absolute: mean |y[t] - y[t - season]| by series, the unit of MASE and MSIS.
        squared: root of the mean (y[t] - y[t - season])^2 by series, the unit of RMSSE.
    """

    absolute: pd.Series
    squared: pd.Series


def comparable(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows on which methods can be compared: with a truth, and a forecast of each.

    Methods without any forecast are left out.

    Raises:
        DataError: there is no such row.
    """
    seen = frame[frame["y"].notna()]
    if seen.empty:
        raise DataError(
            "no step that was forecast has a truth: all are missing. Give a table that has values "
            "after the cutoffs."
        )
    none = [name for name in point_columns(seen) if seen[name].isna().all()]
    quantiles = [column for name in none for column in quantile_columns(seen, name).values()]
    seen = seen.drop(columns=[*none, *quantiles])
    rows = seen[seen[point_columns(seen)].notna().all(axis=1)]
    if rows.empty:
        raise DataError(
            "no step has a forecast of each method. Remove some baselines, or all of them."
        )
    return rows


def score(frame: Any, by: str | None = None, *, scales: Scales | None = None) -> pd.DataFrame:
    """Return the scores of each method, over all rows alike or within groups of them.

    Args:
        frame: `unique_id, ds, y` and forecasts, one column of numbers, `METHOD`, a method, and its
            quantiles `METHOD-lo-90, METHOD-hi-90` or `METHOD-q-0.1`; rows without a truth, or
            without a forecast of each method, are ignored (see `comparable`). A pandas or
            Polars frame, or a pyarrow table.
        by: column whose groups are scored each, also `horizon step`, `hour`, `weekday` or `month`,
            as `with_groups` tells them; None: all rows together.
        scales: of the series; without them MASE, RMSSE and MSIS are left out, and series without
            a scale do not count in them.

    Returns:
        One row for each group and method: `by`, `method`, `rows` (that count), `MAE, MSE, RMSE`,
        `MAPE` (as a fraction, steps of truth 0 left out), `sMAPE` (0 to 2: 2 |e| / (|y| +
        |forecast|), Makridakis et al. 2020), `bias` (mean of forecast less truth), `MASE`, `RMSSE`
        (Hyndman & Koehler 2006; Makridakis et al. 2022). Of distributions `pinball` (mean over
        levels), `scaled CRPS` (see `QuantileErrors.scaled_crps`), and of each central interval
        `coverage-90`, `width-90` and `MSIS-90` (Gneiting & Raftery 2007; Makridakis et al. 2020).

    Raises:
        DataError: there is no row to score, or see `read_forecasts`.
        ConfigError: the frame lacks a column.
    """
    frame = read_forecasts(frame)
    if by in GROUPS and by not in frame:
        frame = with_groups(frame)
    require_columns(frame, filter(None, ("unique_id", "ds", "y", by)))
    if not point_columns(frame):
        raise ConfigError(f"no column holds forecasts; there are {list(frame)}.")
    rows, group = comparable(frame), _GROUP
    rows = rows.assign(**{group: rows[by] if by else 0}).drop(columns="cutoff", errors="ignore")
    methods = point_columns(rows, [group])
    scores = {"rows": _repeated(rows.groupby(group, observed=True).size(), methods)}
    for name, loss in _POINT_LOSSES.items():
        scores[name] = _by_method(loss, rows, methods, group)
    scores["sMAPE"] *= 2  # utilsforecast's is half of what the M competitions call so
    scaled = None
    if scales is not None:
        scaled = _divided(rows, methods, scales.absolute)
        scores["MASE"] = _by_method(losses.mae, scaled, methods, group)
        squared = _divided(rows, methods, scales.squared)
        scores["RMSSE"] = _by_method(losses.rmse, squared, methods, group)
    for method in methods:
        for name, values in _quantile_scores(rows, method, group, scaled).items():
            one = pd.concat({method: values}, names=["method"]).swaplevel()
            scores[name] = one.combine_first(scores[name]) if name in scores else one
    table = pd.DataFrame(scores)
    table.index.names = [by or group, "method"]
    order = pd.CategoricalDtype(methods, ordered=True)
    table = table.reset_index().astype({"method": order, "rows": int})
    table = table.sort_values([by or group, "method"], kind="stable", ignore_index=True)
    table["method"] = table["method"].astype(str)
    return table.drop(columns=[] if by else group)


def mean_over_series(by_series: pd.DataFrame, weights: pd.Series | None = None) -> pd.DataFrame:
    """Return the mean of each score over series, weighted if weights are given.

    Args:
        by_series: of `score(frame, "unique_id")`.
        weights: by series, at least 0; None: all alike.

    Returns:
        One row a method; series whose score is NaN are ignored.
    """
    weight = np.ones(len(by_series))
    if weights is not None:
        weight = by_series["unique_id"].map(weights).to_numpy(float)
    values = by_series.drop(columns=["unique_id", "method", "rows"])
    known = values.notna().to_numpy() * weight[:, None]
    sums = pd.DataFrame(values.fillna(0).to_numpy() * weight[:, None], columns=values.columns)
    group = by_series["method"]
    total = pd.DataFrame(known, columns=values.columns).groupby(group, sort=False).sum()
    means = sums.groupby(group, sort=False).sum() / total.where(total > 0)
    series = by_series.groupby("method", sort=False)["unique_id"].nunique()
    means.insert(0, "series", series)
    return means.reset_index()


def fraction_below(frame: Any) -> pd.DataFrame | None:
    """Return the fraction of truths at most each quantile, levels x methods; ideally the levels.

    None where no method has quantiles. The frame is that of `score`, and so are the errors.
    """
    frame = read_forecasts(frame)
    require_columns(frame, ["y"])
    rows = comparable(frame)
    fractions = {}
    for method in point_columns(rows):
        columns = quantile_columns(rows, method)
        if columns:
            below = {level: (rows["y"] <= rows[name]).mean() for level, name in columns.items()}
            fractions[method] = pd.Series(below)
    return pd.DataFrame(fractions).rename_axis("level") if fractions else None


Loss = Callable[..., pd.DataFrame]
_POINT_LOSSES: dict[str, Loss] = {
    "MAE": losses.mae,
    "MSE": losses.mse,
    "RMSE": losses.rmse,
    "MAPE": losses.mape,
    "sMAPE": losses.smape,
    "bias": losses.bias,
}


def _by_method(loss: Loss, rows: pd.DataFrame, methods: Sequence[str], group: str) -> pd.Series:
    """Return a loss of utilsforecast by group and method."""
    found = loss(rows, models=list(methods), id_col=group).set_index(group)
    return found.rename_axis(columns="method").unstack().swaplevel()


def _quantile_scores(
    rows: pd.DataFrame, method: str, group: str, scaled: pd.DataFrame | None
) -> dict[str, pd.Series]:
    """Return the scores of a method's distribution by group; none if it has no quantiles."""
    columns = quantile_columns(rows, method)
    if not columns:
        return {}
    levels = list(columns)
    models = {method: list(columns.values())}

    def by_group(loss: Loss, frame: pd.DataFrame, **given: Any) -> pd.Series:
        return loss(frame, id_col=group, **given).set_index(group)[method]

    pinball = by_group(losses.mqloss, rows, models=models, quantiles=np.array(levels))
    magnitude = rows["y"].abs().groupby(rows[group], observed=True).mean()
    # utilsforecast's divides by 2e-16 where the truth is 0, and by too much where it is tiny.
    scores = {"pinball": pinball, "scaled CRPS": 2 * pinball / magnitude.where(magnitude > 0)}
    for nominal, (lower, upper) in interval_columns(rows, method).items():
        percent = f"{100 * nominal:g}"
        ends = {lower: f"{method}-lo-{percent}", upper: f"{method}-hi-{percent}"}
        # The level is a part of the names that utilsforecast looks for.
        asked = {"models": [method], "level": float(percent) if "." in percent else int(percent)}
        parts = [group, "y", lower, upper]
        scores[f"coverage-{percent}"] = by_group(
            losses.coverage, rows[parts].rename(columns=ends), **asked
        )
        width = (rows[upper] - rows[lower]).groupby(rows[group], observed=True).mean()
        scores[f"width-{percent}"] = width
        if scaled is not None:
            scores[f"MSIS-{percent}"] = by_group(
                losses.winkler_score, scaled[parts].rename(columns=ends), **asked
            )
    return scores


def _divided(rows: pd.DataFrame, methods: Sequence[str], scale: pd.Series) -> pd.DataFrame:
    """Return the rows of series that have a scale, with truth and forecasts in units of it."""
    unit = rows["unique_id"].map(scale)
    rows = rows[unit.notna()]
    values = ["y", *methods]
    for method in methods:
        values += quantile_columns(rows, method).values()
    return rows.assign(**rows[values].div(unit[unit.notna()], axis=0))


def _repeated(values: pd.Series, methods: Sequence[str]) -> pd.Series:
    return pd.concat(dict.fromkeys(methods, values), names=["method"]).swaplevel()
