"""Covariates over the horizon, given beside the history."""

import numpy as np
import pandas as pd

from tsformer.data.columns import Columns
from tsformer.data.parsing import (
    category_text,
    grid_stamps,
    parse_ids,
    parse_numbers,
    parse_stamps,
    parse_texts,
    shown,
)
from tsformer.data.store import SeriesStore
from tsformer.data.types import FloatArray, IntArray
from tsformer.errors import DataError


def read_future(
    future: pd.DataFrame | None,
    columns: Columns,
    store: SeriesStore,
    groups: IntArray,
    horizon: int,
) -> tuple[FloatArray, dict[str, tuple[str, ...]]]:
    """Return the future covariates over the horizon after each group of series.

    Args:
        future: covariates by series and time; rows outside the horizons are ignored. Only needed
            when there are future covariates.
        columns: parts of the columns; `future` need not have the target.
        store: the history, its grid extended by the horizon.
        groups: series that are forecast together, (N, C).
        horizon: steps, H.

    Returns:
        Values, (N, H, F), with codes in categorical columns, and the texts that these stand for.

    Raises:
        DataError: a column or a value is missing, or a static covariate, which need not be there,
            is unlike that of the history; names series and times.
    """
    names = columns.future_covariates
    if not names:
        return np.empty((len(groups), horizon, 0)), {}
    if future is None:
        raise DataError(
            f"the model uses the future covariates {list(names)}: give their values over the "
            f"{horizon} steps of the horizon as the second argument, predict(frame, future)."
        )
    needed = [*([columns.id] if columns.id else []), columns.time, *names]
    missing = [name for name in needed if name not in future.columns]
    if missing:
        raise DataError(f"future: no column {missing[0]!r}; it needs {needed}.")

    ends = store.ends[groups].max(axis=1)  # grid position after each history, (N,)
    try:
        values, categories = _values(future, columns)
        group, position = _locate(store, groups, future, columns, int(ends.min()))
    except DataError as error:
        raise DataError(f"future: {error}") from error
    step = position - ends[group]
    row, column = np.nonzero((group >= 0) & (position >= 0) & (step >= 0) & (step < horizon))
    group, step = group[row, column], step[row, column]
    _check_static(future.iloc[row], columns, store, groups[group, 0])
    ahead = np.full((len(groups), horizon, len(names)), np.nan)
    ahead[group, step] = values[row]
    if not np.array_equal(ahead[group, step], values[row], equal_nan=True):
        raise DataError(
            "future: has different values for the same series and time. Keep one row for each; "
            "series that are forecast together share their covariates."
        )
    numeric = [place for place, name in enumerate(names) if name not in columns.categorical]
    absent = np.isnan(ahead[:, :, numeric]).any(axis=2)  # (N, H); a category may be empty
    given = np.zeros_like(absent)
    given[group, step] = True
    absent |= ~given
    if absent.any():
        lacking = np.any(absent, axis=1)
        first = int(np.argmax(lacking))
        times = store.stamps(ends[first] + np.flatnonzero(absent[first]))
        last = store.stamps(ends[[first]] - 1)[0]
        raise DataError(
            f"future: no value of {list(names)} for series {store.ids[groups[first, 0]]!r} at "
            f"{times[0]}{f' to {times[-1]}' if len(times) > 1 else ''} ({len(times)} of {horizon} "
            f"steps; {lacking.sum()} of {len(groups)} series lack some). Its history ends at "
            f"{last}: give a row for each of the {horizon} steps after it, or leave the series "
            "out of the history."
        )
    return ahead, categories


def _values(
    future: pd.DataFrame, columns: Columns
) -> tuple[FloatArray, dict[str, tuple[str, ...]]]:
    values = np.empty((len(future), len(columns.future_covariates)))
    categories: dict[str, tuple[str, ...]] = {}
    for number, name in enumerate(columns.future_covariates):
        if name in columns.categorical:
            texts, codes = parse_texts(future[name], name, category_text)
            categories[name] = tuple(texts)
            values[:, number] = np.where(codes >= 0, codes, np.nan)
        else:
            values[:, number] = parse_numbers(future, [name])[:, 0]
    return values, categories


def _check_static(
    future: pd.DataFrame, columns: Columns, store: SeriesStore, series: IntArray
) -> None:
    """Refuse rows, of these series, (R,), whose static covariates are not those of the history."""
    for number, name in enumerate(columns.static_covariates):
        if name not in future:
            continue
        if name in columns.categorical:
            texts, codes = parse_texts(future[name], name, category_text)
            known = pd.Index(store.categories[name], dtype=object).get_indexer(texts)
            values = np.array([*known, np.nan])[codes]
        else:
            values = parse_numbers(future, [name])[:, 0]
        own = store.static[series, number]
        # One of the tables may hold single precision.
        differs = ~np.isnan(values) & ~np.isclose(values, own, rtol=1e-6, atol=0)
        if differs.any():
            row = int(np.argmax(differs))
            raise DataError(
                f"future: column {name!r}: {shown(future[name].iloc[row])} for series "
                f"{store.ids[series[row]]!r} differs from its history ({differs.sum():,} rows). "
                "Static covariates are those of the history: correct one of them, or leave the "
                "column out of the future."
            )


def _locate(
    store: SeriesStore, groups: IntArray, future: pd.DataFrame, columns: Columns, begin: int
) -> tuple[IntArray, IntArray]:
    """Return the groups (R, K) that each row is of, -1 for none, and its grid position, (R, 1).

    The rows of a wide table, which has no ids, are of every group.
    """
    stamps, time_zone = parse_stamps(future[columns.time], columns.time)
    if (time_zone is None) != (store.time_zone is None):
        raise DataError(
            f"column {columns.time!r} has {'no' if time_zone is None else 'a'} time zone, "
            "unlike the history. Give both the same."
        )
    # Before the first horizon, a grid taken as it came may hold a stamp twice.
    position = store.grid[begin:].get_indexer(grid_stamps(stamps, store.time_zone, store.freq))
    position = np.where(position >= 0, position + begin, -1)[:, None]
    if columns.id is None:
        return np.tile(np.arange(len(groups)), (len(future), 1)), position
    group_of = np.empty(groups.size, dtype=np.int64)
    group_of[groups.ravel()] = np.repeat(np.arange(len(groups)), groups.shape[1])
    texts, codes = parse_ids(future[columns.id], columns.id)
    number = {id: number for number, id in enumerate(store.table_ids)}
    id = np.array([*(number.get(text, -1) for text in texts), -1])[codes][:, None]
    series = id * store.num_targets + np.arange(store.num_targets)
    return np.where(id >= 0, group_of[series], -1), position
