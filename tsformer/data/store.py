"""SeriesStore: all series of a table as contiguous float32 arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from tsformer.data.types import Float32Array, FloatArray, IntArray

# Rows that are worked on at once where a whole array need not be held in double precision.
BLOCK_ROWS = 1 << 22


@dataclass(frozen=True)
class SeriesStore:
    """S series on one grid of time, one after the other.

    Series s begins at grid position `starts[s]`; its value at position t lies in row
    `offsets[s] + t - starts[s]` of `target`. A table's id with C target columns gives C series,
    next to each other; they share their covariates.

    Attributes:
        table_ids: ids of the table, in order of appearance, (I,); one empty text in a wide table.
        targets: target columns of the table, (C,); series i * C + c is column c of id i.
        grid: time stamps that the series share, (G,); local and naive, or in UTC.
        freq: step of the grid, a pandas offset alias.
        time_zone: zone of the stamps as they came, None when naive.
        starts: position on the grid of each series' first row, (S,).
        offsets: bounds of each series' rows in `target`, (S+1,).
        centers: what was subtracted from each series so that float32 keeps its digits, (S,);
            0 unless its values are far from 0 and near to each other.
        target: values less their center, (R,); NaN where missing.
        covariate_base: row of `covariates` at grid position 0 of each series, (S,); the row at
            position t is `covariate_base[s] + t`, within the series' own rows.
        covariates: (R', F), in the order of `Columns.covariates`; NaN where missing; codes of
            `categories` in categorical columns.
        static: static covariates of each series, (S, Fs); NaN and codes as in `covariates`.
        weights: how often windows of each series are drawn, relative to others, (S,); None: alike.
        categories: texts that the codes of a categorical column stand for, by column.
    """

    table_ids: tuple[str, ...]
    targets: tuple[str, ...]
    grid: pd.DatetimeIndex
    freq: str
    time_zone: str | None
    starts: IntArray
    offsets: IntArray
    centers: FloatArray
    target: Float32Array
    covariate_base: IntArray
    covariates: FloatArray
    static: FloatArray
    weights: FloatArray | None
    categories: Mapping[str, tuple[str, ...]]

    @property
    def num_targets(self) -> int:
        """Target columns of the table, C."""
        return len(self.targets)

    @property
    def has_target_columns(self) -> bool:
        """Whether it is of a long table with several target columns, whose units may differ."""
        return self.table_ids != ("",) and self.num_targets > 1

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Name of each series, (S,).

        It is the id; the target column in a wide table; `id/column` where a long table has
        several target columns.
        """
        if self.has_target_columns:
            return tuple(f"{id}/{name}" for id in self.table_ids for name in self.targets)
        return self.targets if self.table_ids == ("",) else self.table_ids

    @cached_property
    def lengths(self) -> IntArray:
        """Rows of each series, (S,)."""
        return np.diff(self.offsets)

    @cached_property
    def ends(self) -> IntArray:
        """Position on the grid after each series' last row, (S,)."""
        return self.starts + self.lengths

    def values(self, series: int, begin: int, end: int) -> FloatArray:
        """Return a series' target at grid positions begin <= t < end, NaN where it has no row."""
        values = np.full(max(end - begin, 0), np.nan)
        first, last = max(begin, self.starts[series]), min(end, self.ends[series])
        if first < last:
            shift = self.offsets[series] - self.starts[series]
            rows = self.target[first + shift : last + shift]
            values[first - begin : last - begin] = rows.astype(np.float64) + self.centers[series]
        return values

    def at(self, series: IntArray, positions: IntArray) -> FloatArray:
        """Return the target of series at grid positions, which broadcast; NaN where none is."""
        inside = (positions >= self.starts[series]) & (positions < self.ends[series])
        rows = self.offsets[series] + positions - self.starts[series]
        values = self.target[np.where(inside, rows, 0)].astype(np.float64) + self.centers[series]
        return np.where(inside, values, np.nan)

    def blocks(self, end: int | None = None) -> Iterator[tuple[IntArray, FloatArray]]:
        """Yield all values a block of whole series at a time, in double precision.

        Args:
            end: leave out rows at this grid position and later.

        Yields:
            The series of each row and its value, both (N,), in order; NaN where missing.
        """
        first = 0
        while first < len(self.starts):
            limit = self.offsets[first] + BLOCK_ROWS
            last = max(int(np.searchsorted(self.offsets, limit, side="right")) - 1, first + 1)
            rows = slice(self.offsets[first], self.offsets[last])
            series = np.repeat(np.arange(first, last), self.lengths[first:last])
            values = self.target[rows].astype(np.float64) + self.centers[series]
            if end is not None:
                position = np.arange(rows.start, rows.stop)
                keep = position - self.offsets[series] + self.starts[series] < end
                series, values = series[keep], values[keep]
            yield series, values
            first = last

    def stamps(self, positions: IntArray) -> pd.DatetimeIndex:
        """Return the time stamps at positions of the grid, in the zone they came in."""
        stamps = self.grid[positions]
        if self.time_zone is None:
            return stamps
        if stamps.tz is None:
            return stamps.tz_localize(self.time_zone, ambiguous=True, nonexistent="shift_forward")
        return stamps.tz_convert(self.time_zone)

    def until(self, ends: IntArray | int) -> "SeriesStore":
        """Return the store without the rows at grid position `ends`, (S,) or one, and after it.

        Series may lose all their rows. Covariates keep theirs, which no series reaches any more.
        """
        lengths = np.clip(ends - self.starts, 0, self.lengths)
        row_of_series = np.arange(len(self.target)) - np.repeat(self.offsets[:-1], self.lengths)
        return replace(
            self,
            grid=self.grid[: max(int(np.max(ends)), 1)],
            offsets=np.concatenate([[0], np.cumsum(lengths)]),
            target=self.target[row_of_series < np.repeat(lengths, self.lengths)],
        )

    def extended(self, horizon: int) -> "SeriesStore":
        """Return the store with a grid that goes on for `horizon` steps; no row is added."""
        later = pd.date_range(self.grid[-1], periods=horizon + 1, freq=self.freq)[1:]
        return replace(self, grid=self.grid.append(later.as_unit(self.grid.unit)))
