"""Small stores, made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tsformer.data.columns import Columns
from tsformer.data.store import SeriesStore


def columns_of(
    *, past: Sequence[str] = (), future: Sequence[str] = (), static=(), categorical=()
) -> Columns:
    return Columns(
        "id", "ds", ("y",), tuple(past), tuple(future), tuple(static), tuple(categorical)
    )


def store_of(
    series: Mapping[str, Sequence[float]],
    starts: Mapping[str, int] | None = None,
    *,
    covariates: Mapping[str, Any] | None = None,
    shared: Any = None,
    static: Any = None,
    num_targets: int = 1,
    weights: Sequence[float] | None = None,
    categories: Mapping[str, tuple[str, ...]] | None = None,
    centers: Mapping[str, float] | None = None,
    length: int | None = None,
    start: str = "2024-01-01",
    freq: str = "h",
    time_zone: str | None = None,
) -> SeriesStore:
    """Return a store of series on one grid.

    Args:
        series: values by id, NaN where missing.
        starts: grid position of each series' first row, 0 if not given.
        covariates: (rows, F) of each id, by its first series.
        shared: (G, F) for all series, instead.
        static: (S, Fs).
        num_targets: series of one id.
        weights: of the series.
        categories: texts of the codes, by column.
        centers: what is subtracted from each series in float32.
        length: steps of the grid; as far as the series go if not given.
        start: first stamp of the grid, local time.
        freq: step.
        time_zone: zone of the stamps; the grid is then in UTC.
    """
    ids = tuple(series)
    lengths = np.array([len(values) for values in series.values()])
    begins = np.array([(starts or {}).get(id, 0) for id in ids])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    center = np.array([(centers or {}).get(id, 0.0) for id in ids])
    target = [np.asarray(series[id], np.float64) - c for id, c in zip(ids, center, strict=True)]
    base = np.zeros(len(ids), dtype=np.int64)
    if shared is not None:
        rows = np.asarray(shared, np.float32)
    elif covariates is not None:
        blocks = [np.asarray(covariates[id], np.float32) for id in ids[::num_targets]]
        firsts = np.cumsum([0] + [len(block) for block in blocks])[:-1]
        base = np.repeat(firsts, num_targets) - begins
        rows = np.concatenate(blocks)
    else:
        rows = np.empty((offsets[-1], 0), np.float32)
    grid = pd.date_range(start, periods=length or (begins + lengths).max(), freq=freq, tz=time_zone)
    return SeriesStore(
        table_ids=ids[::num_targets],
        targets=("y",) if num_targets == 1 else tuple(f"y{c}" for c in range(num_targets)),
        grid=grid.tz_convert("UTC") if time_zone else grid,
        freq=freq,
        time_zone=time_zone,
        starts=begins,
        offsets=offsets,
        centers=center,
        target=np.concatenate(target).astype(np.float32),
        covariate_base=base,
        covariates=rows,
        static=np.empty((len(ids), 0), np.float32) if static is None else np.float32(static),
        weights=None if weights is None else np.asarray(weights, np.float64),
        categories=categories or {},
    )
