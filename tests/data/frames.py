"""Small frames, and slow plain views of a SeriesStore to check it with."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.testing import assert_array_equal

from tsformer.data.store import SeriesStore
from tsformer.data.table import SeriesTable


def hours(count: int, start: str = "2024-01-01") -> pd.DatetimeIndex:
    return pd.date_range(start, periods=count, freq="h")


def store_of(frame: Any, **options: Any) -> SeriesStore:
    return SeriesTable.from_(frame, **options).store


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


def stamps_of(store: SeriesStore, id: str) -> pd.DatetimeIndex:
    series = store.ids.index(id)
    return store.stamps(np.arange(store.starts[series], store.ends[series]))


def target_of(store: SeriesStore, id: str) -> pd.Series:
    series = store.ids.index(id)
    values = store.values(series, store.starts[series], store.ends[series])
    return pd.Series(values, index=stamps_of(store, id))


def covariates_of(store: SeriesStore, id: str) -> pd.DataFrame:
    series = store.ids.index(id)
    base = store.covariate_base[series]
    rows = store.covariates[base + store.starts[series] : base + store.ends[series]]
    return pd.DataFrame(rows, index=stamps_of(store, id))


def assert_same_store(left: SeriesStore, right: SeriesStore) -> None:
    for name in ("table_ids", "targets"):
        assert getattr(left, name) == getattr(right, name), name
    assert_array_equal(left.covariate_base, right.covariate_base)
    assert_array_equal(left.covariates, right.covariates)
    assert_same_series(left, right)


def assert_same_series(left: SeriesStore, right: SeriesStore) -> None:
    """Compare all but how ids, target columns and covariates are laid out."""
    for name in ("ids", "freq", "time_zone", "categories"):
        assert getattr(left, name) == getattr(right, name), name
    assert left.grid.equals(right.grid)
    for name in ("starts", "offsets", "centers", "target", "static"):
        assert_array_equal(getattr(left, name), getattr(right, name), err_msg=name)
    assert (left.weights is None) == (right.weights is None)
    if left.weights is not None:
        assert_array_equal(left.weights, right.weights)
    for id in left.ids:
        pd.testing.assert_frame_equal(covariates_of(left, id), covariates_of(right, id))


def ramp(count: int, first: float = 0.0) -> np.ndarray:
    return first + np.arange(count, dtype=float)
