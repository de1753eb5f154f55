"""Small frames, and slow plain views of a SeriesTable to check it with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.testing import assert_array_equal

from tsformer.data.columns import find_columns
from tsformer.data.table import SeriesTable, build_table


def hours(count: int, start: str = "2024-01-01") -> pd.DatetimeIndex:
    return pd.date_range(start, periods=count, freq="h")


def table_of(
    frame: pd.DataFrame, *, freq: str | None = None, regular: bool = True, **parts: Any
) -> SeriesTable:
    return build_table(frame, find_columns(frame, **parts), freq=freq, regular=regular)


def long_frame(
    series: Mapping[Any, Sequence[float]], starts: Mapping[Any, int] | None = None
) -> pd.DataFrame:
    """Hourly series one below the other; `starts` shifts one by so many hours."""
    grid = hours(10_000)
    parts = [
        pd.DataFrame({"unique_id": id, "ds": grid[start : start + len(values)], "y": values})
        for id, values in series.items()
        for start in [(starts or {}).get(id, 0)]
    ]
    return pd.concat(parts, ignore_index=True)


def rows_of(table: SeriesTable, id: str) -> slice:
    series = table.ids.index(id)
    return slice(table.offsets[series], table.offsets[series + 1])


def stamps_of(table: SeriesTable, id: str) -> pd.DatetimeIndex:
    return table.stamps(table.row_positions[rows_of(table, id)])


def target_of(table: SeriesTable, id: str) -> pd.Series:
    return pd.Series(table.target[rows_of(table, id), 0], index=stamps_of(table, id))


def covariates_of(table: SeriesTable, id: str) -> pd.DataFrame:
    return pd.DataFrame(table.covariates[rows_of(table, id)], index=stamps_of(table, id))


def assert_same_table(left: SeriesTable, right: SeriesTable) -> None:
    assert left.ids == right.ids
    assert left.freq == right.freq
    assert left.time_zone == right.time_zone
    assert left.grid.equals(right.grid)
    for name in ("starts", "offsets", "target", "covariates"):
        assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)


def ramp(count: int, first: float = 0.0) -> np.ndarray:
    return first + np.arange(count, dtype=float)
