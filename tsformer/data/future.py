"""Covariates over the horizon, given beside the history."""

from dataclasses import replace

import numpy as np
import pandas as pd

from tsformer.data.columns import Columns
from tsformer.data.parsing import grid_stamps, parse_numbers, parse_stamps
from tsformer.data.table import SeriesTable
from tsformer.data.types import IntArray
from tsformer.errors import DataError


def fill_future(
    table: SeriesTable, future: pd.DataFrame | None, columns: Columns, horizon: int
) -> SeriesTable:
    """Fill in the future covariates of the last `horizon` rows of each series.

    Args:
        table: history, extended by `horizon` rows.
        future: covariates by series and time; rows outside the horizons are ignored. Only needed
            when there are future covariates.
        columns: parts of the columns; `future` need not have the target.
        horizon: rows behind the history of each series, H.

    Raises:
        DataError: a column or a value is missing; names series and times.
    """
    names = columns.future_covariates
    if not names:
        return table
    if future is None:
        raise DataError(
            f"the model uses the future covariates {list(names)}: give their values over the "
            f"{horizon} steps of the horizon as the second argument, predict(frame, future)."
        )
    needed = [*([columns.id] if columns.id else []), columns.time, *names]
    missing = [name for name in needed if name not in future.columns]
    if missing:
        raise DataError(f"future: no column {missing[0]!r}; it needs {needed}.")

    try:
        values = parse_numbers(future, names)
        series, position = _locate(table, future, columns, horizon)
    except DataError as error:
        raise DataError(f"future: {error}") from error
    if columns.id is None:
        values = np.tile(values, (len(table.ids), 1))
    ends = table.starts + table.lengths - horizon  # grid position behind each history
    step = position - ends[series]
    keep = (series >= 0) & (position >= 0) & (step >= 0) & (step < horizon)
    first_rows = table.offsets[1:] - horizon
    rows = first_rows[series[keep]] + step[keep]
    if len(np.unique(rows)) < len(rows):
        raise DataError("future: a series has the same time twice. Keep one row of each.")
    covariates = table.covariates.copy()
    covariates[rows, : len(names)] = values[keep]

    ahead = covariates[first_rows[:, None] + np.arange(horizon), : len(names)]
    absent = np.any(np.isnan(ahead), axis=2)  # (S, H)
    if absent.any():
        lacking = np.any(absent, axis=1)
        first = int(np.argmax(lacking))
        times = table.stamps(ends[first] + np.flatnonzero(absent[first]))
        raise DataError(
            f"future: no value of {list(names)} for series {table.ids[first]!r} at {times[0]}"
            f"{f' to {times[-1]}' if len(times) > 1 else ''} ({len(times)} of {horizon} steps; "
            f"{lacking.sum()} of {len(table.ids)} series lack some)."
        )
    return replace(table, covariates=covariates)


def _locate(
    table: SeriesTable, future: pd.DataFrame, columns: Columns, horizon: int
) -> tuple[IntArray, IntArray]:
    """Return each row's series and position on the grid, -1 where it has none.

    The rows of a wide table stand for every series in turn.
    """
    stamps, time_zone = parse_stamps(future[columns.time], columns.time)
    if (time_zone is None) != (table.time_zone is None):
        raise DataError(
            f"column {columns.time!r} has {'no' if time_zone is None else 'a'} time zone, "
            "unlike the history. Give both the same."
        )
    # Before the first horizon, a grid taken as it came may hold a stamp twice.
    begin = int((table.starts + table.lengths - horizon).min())
    position = table.grid[begin:].get_indexer(grid_stamps(stamps, table.time_zone, table.freq))
    position = np.where(position >= 0, position + begin, -1)
    if columns.id is not None:
        return pd.Index(table.ids).get_indexer(future[columns.id].astype(str)), position
    series = np.repeat(np.arange(len(table.ids)), len(future))
    return series, np.tile(position, len(table.ids))
