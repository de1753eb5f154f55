"""SeriesTable: any frame or file, validated and laid on a regular grid of time.

Every complaint about input data is made here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from tsformer.data.calendar import step_of
from tsformer.data.columns import Columns
from tsformer.data.parsing import (
    check_freq,
    grid_stamps,
    infer_freq,
    parse_ids,
    parse_numbers,
    parse_stamps,
)
from tsformer.data.types import FloatArray, IntArray
from tsformer.errors import DataError

# A table that grows by more than this through its gaps holds a wrong stamp or a wrong freq.
_MAX_GAP_RATIO = 50
_LARGEST_SMALL_TABLE = 1_000_000


@dataclass(frozen=True)
class SeriesTable:
    """S series on one grid of time; row r of series s stands at `offsets[s] <= r < offsets[s+1]`.

    Attributes:
        ids: the S series, in order of appearance.
        grid: time stamps that the series share, (G,); local and naive, or in UTC.
        freq: step of the grid, a pandas offset alias.
        starts: position on the grid of each series' first row, (S,).
        offsets: bounds of each series' rows, (S+1,).
        target: values, (R, C); NaN where missing. C is 1 unless series were joined as channels.
        covariates: (R, F), in the order of `Columns.covariates`; NaN where missing.
        time_zone: zone of the stamps as they came, None when naive.
    """

    ids: tuple[str, ...]
    grid: pd.DatetimeIndex
    freq: str
    starts: IntArray
    offsets: IntArray
    target: FloatArray
    covariates: FloatArray
    time_zone: str | None = None

    @property
    def lengths(self) -> IntArray:
        """Rows of each series, (S,)."""
        return np.diff(self.offsets)

    @property
    def row_series(self) -> IntArray:
        """Series that each row belongs to, (R,)."""
        return np.repeat(np.arange(len(self.starts)), self.lengths)

    @property
    def row_positions(self) -> IntArray:
        """Position on the grid of each row, (R,)."""
        return np.arange(self.offsets[-1]) + (self.starts - self.offsets[:-1])[self.row_series]

    def stamps(self, positions: IntArray) -> pd.DatetimeIndex:
        """Return the time stamps at positions of the grid, in the zone they came in."""
        stamps = self.grid[positions]
        if self.time_zone is None:
            return stamps
        if stamps.tz is None:
            return stamps.tz_localize(self.time_zone, ambiguous=True, nonexistent="shift_forward")
        return stamps.tz_convert(self.time_zone)

    def joined(self, channels: Sequence[str] | None = None) -> "SeriesTable":
        """Return one series whose channels are the S series, for `channels: joint`.

        Args:
            channels: ids in the order of the channels; as they are when None.

        Raises:
            DataError: covariates differ between series, or the ids are not `channels`.
        """
        channels = tuple(channels or self.ids)
        if set(channels) != set(self.ids):
            raise DataError(
                f"the model forecasts the series {list(channels)} together, so it needs exactly "
                f"these, but the table has {list(self.ids)}."
            )
        length = len(self.grid)
        series, position = self.row_series, self.row_positions
        channel = pd.Index(channels).get_indexer(pd.Index(self.ids))[series]
        target = np.full((length, len(self.ids)), np.nan)
        target[position, channel] = self.target[:, 0]
        covariates = np.full((length, self.covariates.shape[1]), np.nan)
        covariates[position] = self.covariates
        if not np.array_equal(covariates[position], self.covariates, equal_nan=True):
            raise DataError(
                "model.channels=joint puts all series into one sample, so they must share their "
                "covariates, but these differ between series. Drop the covariates, or set "
                "model.channels=independent."
            )
        return replace(
            self,
            ids=channels,
            starts=np.zeros(1, dtype=np.int64),
            offsets=np.array([0, length]),
            target=target,
            covariates=covariates,
        )

    def extended(self, horizon: int) -> "SeriesTable":
        """Return the table with `horizon` missing rows behind each series."""
        lengths = self.lengths + horizon
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows = np.arange(self.offsets[-1]) + (offsets - self.offsets)[:-1][self.row_series]
        later = pd.date_range(self.grid[-1], periods=horizon + 1, freq=self.freq)[1:]
        return replace(
            self,
            grid=self.grid.append(later.as_unit(self.grid.unit)),
            offsets=offsets,
            target=_place(self.target, rows, offsets[-1]),
            covariates=_place(self.covariates, rows, offsets[-1]),
        )


def build_table(
    frame: pd.DataFrame,
    columns: Columns,
    *,
    freq: str | None = None,
    regular: bool = True,
) -> SeriesTable:
    """Validate a frame and lay its series on a regular grid.

    Args:
        frame: long or wide table, as `columns` says; rows in any order.
        columns: parts of the columns.
        freq: step between rows, a pandas offset alias; inferred when None.
        regular: rows stand where their time stamp says, and absent stamps become missing values.
            False takes the rows as consecutive steps in the order they come, whatever their
            stamps, as published benchmarks do; such a table must be wide.

    Raises:
        DataError: see the message: it names the column, series and row, and a remedy.
    """
    if frame.empty:
        raise DataError("the table has no rows.")
    covariates = parse_numbers(frame, columns.covariates)
    targets = parse_numbers(frame, columns.target)
    stamps, time_zone = parse_stamps(frame[columns.time], columns.time)
    if columns.id is None:
        ids: tuple[str, ...] = columns.target
        series = np.repeat(np.arange(len(ids)), len(frame))
        stamps = stamps.take(np.tile(np.arange(len(frame)), len(ids)))
        target = targets.T.reshape(-1, 1)
        covariates = np.tile(covariates, (len(ids), 1))
    else:
        ids, series = parse_ids(frame[columns.id], columns.id)
        target = targets

    if not regular:
        if columns.id is not None:
            raise DataError("dataset.regular=false takes a wide table, without an id column.")
        length = len(frame)
        stamps = stamps[:length]
        freq = check_freq(freq) if freq else infer_freq(stamps.sort_values().unique(), time_zone)
        if stamps[-1] < stamps[0]:
            raise DataError(
                f"the first row's time {stamps[0]} comes after the last row's, {stamps[-1]}. Put "
                "the oldest row first, or set dataset.regular=true."
            )
        _refuse_other_anchor(grid_stamps(stamps, time_zone, freq)[-1], freq)
        return SeriesTable(
            ids=ids,
            grid=grid_stamps(stamps, time_zone, freq),
            freq=freq,
            starts=np.zeros(len(ids), dtype=np.int64),
            offsets=np.arange(len(ids) + 1) * length,
            target=target,
            covariates=covariates,
            time_zone=time_zone,
        )

    order = np.lexsort((stamps.asi8, series))
    stamps, series = stamps[order], series[order]
    _refuse_duplicates(stamps, series, ids, order, len(frame))
    if freq is None:
        longest = series == np.argmax(np.bincount(series))
        freq = infer_freq(stamps[longest], time_zone)
    freq = check_freq(freq)
    stamps = grid_stamps(stamps, time_zone, freq)
    _refuse_wild_spans(stamps, series, ids, freq)
    grid = pd.date_range(stamps.min(), stamps.max(), freq=freq)
    position = grid.get_indexer(stamps)
    if (position < 0).any():
        row = int(np.argmax(position < 0))
        raise DataError(
            f"series {ids[series[row]]!r}: the time {stamps[row]} (row {order[row] % len(frame)}) "
            f"is not on the grid of freq={freq!r} that starts at {stamps.min()}. "
            "Correct the stamp, or give another dataset.freq."
        )
    first = np.searchsorted(series, np.arange(len(ids)), side="left")
    last = np.searchsorted(series, np.arange(len(ids)), side="right") - 1
    starts = position[first]
    offsets = np.concatenate([[0], np.cumsum(position[last] - starts + 1)])
    rows = offsets[series] + position - starts[series]
    return SeriesTable(
        ids=ids,
        grid=grid,
        freq=freq,
        starts=starts,
        offsets=offsets,
        target=_place(target[order], rows, offsets[-1]),
        covariates=_place(covariates[order], rows, offsets[-1]),
        time_zone=time_zone,
    )


def _refuse_duplicates(
    stamps: pd.DatetimeIndex,
    series: IntArray,
    ids: Sequence[str],
    order: IntArray,
    num_rows: int,
) -> None:
    double = (np.diff(stamps.asi8) == 0) & (np.diff(series) == 0)
    if double.any():
        row = int(np.argmax(double))
        first, second = sorted(order[row : row + 2] % num_rows)
        raise DataError(
            f"series {ids[series[row]]!r} has the time {stamps[row]} twice, in rows {first} and "
            f"{second} ({int(double.sum())} such rows in all). Remove one; if several series lie "
            "in one file, name their column with dataset.id_column."
        )


def _refuse_other_anchor(last: pd.Timestamp, freq: str) -> None:
    """Refuse a freq that the horizon could not follow from the last stamp, as weeks from W-SUN."""
    if pd.date_range(last, periods=1, freq=freq)[0] != last:
        raise DataError(
            f"the last time {last} is not one of freq={freq!r}. Give the dataset.freq that goes "
            "on from it."
        )


def _refuse_wild_spans(
    stamps: pd.DatetimeIndex, series: IntArray, ids: Sequence[str], freq: str
) -> None:
    """Refuse a grid, or series on it, far longer than the table, before they are laid out."""
    first = np.flatnonzero(np.diff(series, prepend=-1))
    last = np.append(first[1:], len(series)) - 1
    spans = (stamps[last] - stamps[first]) / step_of(freq)
    limit = _LARGEST_SMALL_TABLE + _MAX_GAP_RATIO * len(stamps)
    if spans.to_numpy().sum() > limit:
        widest = int(np.argmax(spans))
        raise DataError(
            f"series {ids[widest]!r} spans about {spans[widest]:,.0f} steps of freq={freq!r}, from "
            f"{stamps[first[widest]]} to {stamps[last[widest]]}, but has only "
            f"{last[widest] - first[widest] + 1:,} rows. Correct the stamps, or give a longer "
            "dataset.freq."
        )
    if (stamps.max() - stamps.min()) / step_of(freq) > limit:
        early, late = (ids[series[row]] for row in (stamps.argmin(), stamps.argmax()))
        raise DataError(
            f"the table spans {stamps.min()} (series {early!r}) to {stamps.max()} (series "
            f"{late!r}), far more steps of freq={freq!r} than it has rows. Correct the stamps, or "
            "give a longer dataset.freq."
        )


def _place(values: FloatArray, rows: IntArray, num_rows: int) -> FloatArray:
    placed = np.full((num_rows, values.shape[1]), np.nan)
    placed[rows] = values
    return placed
