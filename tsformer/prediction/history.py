"""The table that a model forecasts from: read, checked, and named in forecasts."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tsformer.data.building import build_store
from tsformer.data.checks import check_counts, check_transform, listed
from tsformer.data.columns import Columns
from tsformer.data.findings import Findings
from tsformer.data.groups import group_series
from tsformer.data.parsing import parse_ids
from tsformer.data.sources import Source, errors_naming, open_source
from tsformer.data.store import SeriesStore
from tsformer.data.types import FloatArray, IntArray
from tsformer.errors import DataError
from tsformer.model.config import ForecasterConfig

_FEWEST_VALUES = 8  # of a series that tell of its step


@dataclass(frozen=True)
class History:
    """Series up to now.

    Attributes:
        rows: the table.
        columns: parts of its columns.
        store: its series.
        groups: series that are forecast together, (N, C).
    """

    rows: Source
    columns: Columns
    store: SeriesStore
    groups: IntArray


class WindowForecasts(NamedTuple):
    """Forecasts of W windows of one series each.

    Attributes:
        series: of each window, (W,).
        origins: grid position of each window's first step, (W,).
        columns: forecasts by column, in units of the table, (W, H).
    """

    series: IntArray
    origins: IntArray
    columns: dict[str, FloatArray]


def read_history(frame: Any, config: ForecasterConfig) -> History:
    """Read a table as a model takes it.

    Args:
        frame: a table with the columns of the training data, or a long one with `unique_id, ds, y`
            and the covariates; see `tsformer.data.sources`.
        config: of the model.

    Raises:
        DataError: the table cannot be used.
    """
    with errors_naming(frame):
        rows = open_source(frame, text_columns(config))
        columns = columns_of(rows.names, config)
        store = build_store(
            rows,
            columns,
            Findings(),
            freq=config.freq,
            regular=config.regular,
            duplicates=config.duplicates,
            time_zone=config.time_zone,
        )
        store, groups = group_series(store, columns, config.model.channels, config.channels)
        _refuse_unusable(store, groups, config)
    _warn_of_numbers(store.ids, config)
    _warn_of_step(store)
    return History(rows, columns, store, groups)


def _warn_of_numbers(ids: Sequence[str], config: ForecasterConfig) -> None:
    """Tell of ids such as 7 where the model knows 007: they count as series that are new to it."""
    known = set(config.scaler.ids)
    if config.scaler.per != "series" or not known.isdisjoint(ids):
        return
    by_number = {id.lstrip("0") or "0": id for id in known if id.isdigit() and id[0] == "0"}
    for id in ids:
        if id in by_number:
            warnings.warn(
                f"series {id!r} and the others are new to the model, which knows "
                f"{by_number[id]!r}: if they are the same, read the ids as text.",
                stacklevel=4,
            )
            return


def _warn_of_step(store: SeriesStore) -> None:
    """Tell of a table of days, say, for a model of hours: of the steps nearly all are missing."""
    least, most = np.iinfo(np.int64).max, 0
    for series, values in store.blocks():
        seen = np.flatnonzero(~np.isnan(values))
        own = series[seen]
        gaps = np.diff(seen)[own[1:] == own[:-1]]
        least = min(least, int(gaps.min(initial=least)))
        if least == 1:
            return
        most = max(most, int(np.bincount(own).max(initial=0)))
    if most >= _FEWEST_VALUES:
        warnings.warn(
            f"the model takes steps of freq={store.freq!r}, but the table has values {least} or "
            "more steps apart, nowhere two in a row: it seems to be of a longer step, for which "
            "this model is not made.",
            stacklevel=4,
        )


def text_columns(config: ForecasterConfig) -> list[str]:
    """Return the columns that are read from text as text."""
    return [*filter(None, [config.columns.id]), *config.columns.categorical]


def columns_of(names: Sequence[str], config: ForecasterConfig) -> Columns:
    """Return the parts of a table's columns: those of the training data, or of a long table.

    Args:
        names: of all columns.
        config: of the model.

    Raises:
        DataError: a column is missing.
    """
    own = config.columns
    long = replace(own, id="unique_id", time="ds", target=("y",))
    for columns in (own, long):
        if set(columns.names) <= set(names):
            return columns
    shown = f"{list(names[:20])}{' and others' if len(names) > 20 else ''}"
    wanted = " or ".join(str(list(each)) for each in dict.fromkeys((own.names, long.names)))
    raise DataError(f"the table needs the columns {wanted}, but has {shown}.")


def by_series(
    groups: IntArray, origins: IntArray, values: FloatArray, names: Sequence[str]
) -> WindowForecasts:
    """Return forecasts of windows of groups as those of each series.

    Args:
        groups: series of each window, (N, C).
        origins: grid position of each window's first step, (N,).
        values: one item a column, (N, H, C, K), in units of the table.
        names: of the columns, (K,).
    """
    columns = values.transpose(3, 0, 2, 1).reshape(values.shape[-1], -1, values.shape[1])
    return WindowForecasts(
        groups.ravel(),
        np.repeat(origins, groups.shape[1]),
        dict(zip(names, columns, strict=True)),
    )


def window_frame(
    store: SeriesStore,
    forecasts: WindowForecasts,
    names: Mapping[str, Any] | None = None,
    *,
    with_truth: bool = True,
) -> pd.DataFrame:
    """Return forecasts of windows as a table, by series and then by time.

    Args:
        store: the series; its grid reaches as far as the windows.
        forecasts: of windows.
        names: what names each series, by column, (S,); its name in `unique_id` when None.
        with_truth: beside them, `cutoff`, the time before the first step, and `y`, what the table
            has at each step, NaN where it has nothing.
    """
    order = np.lexsort([forecasts.origins, forecasts.series])
    series, origins = forecasts.series[order], forecasts.origins[order]
    steps = next(iter(forecasts.columns.values())).shape[1]
    positions = origins[:, None] + np.arange(steps)
    names = {"unique_id": pd.Index(store.ids)} if names is None else names
    columns: dict[str, Any] = {
        name: np.repeat(values[series], steps) for name, values in names.items()
    }
    columns["ds"] = store.stamps(positions.ravel())
    if with_truth:
        columns["cutoff"] = np.repeat(store.stamps(origins - 1), steps)
        columns["y"] = store.at(series[:, None], positions).ravel()
    columns |= {name: values[order].ravel() for name, values in forecasts.columns.items()}
    return pd.DataFrame(columns)


def _refuse_unusable(store: SeriesStore, groups: IntArray, config: ForecasterConfig) -> None:
    findings = Findings()
    check_transform(store, config.scaler.transform, findings)
    check_counts(store, config.model.head, findings)
    findings.refuse()
    observed = np.zeros(len(store.ids), dtype=np.int64)
    for series, values in store.blocks():
        observed += np.bincount(series, ~np.isnan(values), len(observed)).astype(np.int64)
    empty = groups[observed[groups].sum(axis=1) == 0, 0]
    if len(empty):
        names = listed([store.ids[series] for series in empty])
        raise DataError(
            f"{names}: no observed value, so no forecast is possible ({len(empty)} of "
            f"{len(groups)} series). Remove such series from the table."
        )


def series_names(history: History) -> dict[str, Any]:
    """Return what names each series, by column, (S,); ids as they are in the table."""
    rows, columns, store = history.rows, history.columns, history.store
    if columns.id is None:
        return {"unique_id": pd.Index(store.ids)}
    parts = [chunk.frame[columns.id].drop_duplicates() for chunk in rows.chunks([columns.id])]
    values = pd.concat(parts, ignore_index=True)
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    _, codes = parse_ids(values, columns.id)
    ids = pd.Index(values)[~pd.Series(codes).duplicated()]
    if store.num_targets == 1:
        return {"unique_id": ids}
    return {
        "unique_id": ids.repeat(store.num_targets),
        "target": np.tile(store.targets, len(ids)),
    }
