"""Where on a grid of time the rows of a table go."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from tsformer.data.calendar import step_of
from tsformer.data.columns import Columns
from tsformer.data.parsing import check_freq, grid_stamps, infer_freq
from tsformer.data.scanning import Reader, Rows, Scan
from tsformer.data.types import IntArray
from tsformer.errors import DataError

# A table that grows by more than this through its gaps holds a wrong stamp or a wrong freq.
_MAX_GAP_RATIO = 50
_LARGEST_SMALL_TABLE = 1_000_000


@dataclass(frozen=True)
class Placement:
    """Where the rows of an id go, I ids with C target columns.

    Attributes:
        grid: time stamps, (G,).
        begin: earliest time, which is the grid's first if that is on the grid.
        freq: its step.
        time_zone: of the stamps as they came.
        regular: see `build_store`.
        starts: position of each id's first row, (I,).
        lengths: rows of each id, (I,).
    """

    grid: pd.DatetimeIndex
    begin: pd.Timestamp
    freq: str
    time_zone: str | None
    regular: bool
    starts: IntArray
    lengths: IntArray

    @cached_property
    def offsets(self) -> IntArray:
        """Bounds of each id's rows, (I+1,)."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def stamp(self, time: int) -> pd.Timestamp:
        """Return a row's time as a stamp."""
        return as_index(np.array([time]), self.time_zone)[0]

    def positions(self, rows: Rows, num_before: int) -> IntArray:
        """Return the position on the grid of each row, -1 where it is not on it, (N,).

        Args:
            rows: of one chunk.
            num_before: rows of the chunks before.
        """
        if not self.regular:
            return num_before + rows.index
        codes, times = pd.factorize(rows.time)
        stamps = grid_stamps(as_index(times, self.time_zone), self.time_zone, self.freq)
        return self.grid.get_indexer(stamps)[codes]


def lay_out(
    reader: Reader, found: Scan, freq: str | None, regular: bool, time_zone: str | None
) -> Placement:
    """Return where the rows go; the freq is that of the id with the most rows if not given.

    Args:
        reader: reads the table again.
        found: what the first pass found out.
        freq: see `build_store`.
        regular: see `build_store`.
        time_zone: see `build_store`.

    Raises:
        DataError: there is no freq, or the stamps do not fit it.
    """
    zone = found.time_zone
    if zone is not None and time_zone is not None and _is_daily(found, freq):
        zone = found.time_zone = time_zone
    if freq is None or not regular:
        times = _times_of(int(np.argmax(found.count)), reader, found)
        stamps = as_index(times, zone)
    freq = check_freq(freq) if freq else infer_freq(stamps.sort_values().unique(), zone)
    if regular:
        ends = (as_index(x, zone) for x in (found.first, found.last))
        first, last = (grid_stamps(x, zone, freq) for x in ends)
        _refuse_wild_spans(first, last, found, reader.columns, freq)
        grid = pd.date_range(first.min(), last.max(), freq=freq).as_unit("us")
        starts, stops = grid.searchsorted(first), grid.searchsorted(last)
        lengths = np.maximum(stops, starts) - starts + 1
        return Placement(grid, first.min(), freq, zone, regular, starts, lengths)
    if times[-1] < times[0]:
        raise DataError(
            f"the first row's time {stamps[0]} comes after the last row's, {stamps[-1]}. Put "
            "the oldest row first, or set dataset.regular=true."
        )
    grid = grid_stamps(stamps, zone, freq)
    if pd.date_range(grid[-1], periods=1, freq=freq)[0] != grid[-1]:  # as weeks from W-SUN
        raise DataError(
            f"the last time {grid[-1]} is not on the grid of freq={freq!r}. Give a dataset.freq "
            "whose grid it is on."
        )
    starts, lengths = np.zeros(1, np.int64), np.array([len(grid)])
    return Placement(grid, grid.min(), freq, zone, regular, starts, lengths)


def _is_daily(found: Scan, freq: str | None) -> bool:
    """Tell steps of days and longer, by the freq or by the id with the most rows."""
    if freq is not None:
        return step_of(freq) >= pd.Timedelta(days=1)
    longest = int(np.argmax(found.count))
    steps = max(found.count[longest] - 1, 1)
    return bool((found.last[longest] - found.first[longest]) / steps >= 23 * 3_600_000_000)


def _times_of(id: int, reader: Reader, found: Scan) -> IntArray:
    """Return the times of an id's rows, reading no further than they go."""
    parts: list[IntArray] = []
    for _, rows in reader.chunks():
        parts.append(rows.time[rows.id == id])
        if sum(map(len, parts)) == found.count[id]:
            break
    return np.concatenate(parts)


def _refuse_wild_spans(
    first: pd.DatetimeIndex, last: pd.DatetimeIndex, found: Scan, columns: Columns, freq: str
) -> None:
    """Refuse a grid, or series on it, far longer than the table, before they are laid out."""
    ids = list(found.ids) if columns.id else [columns.target[0]]
    spans = ((last - first) / step_of(freq)).to_numpy()
    limit = _LARGEST_SMALL_TABLE + _MAX_GAP_RATIO * found.count.sum()
    if spans.sum() > limit:
        widest = int(np.argmax(spans))
        raise DataError(
            f"series {ids[widest]!r} spans about {spans[widest]:,.0f} steps of freq={freq!r}, from "
            f"{first[widest]} to {last[widest]}, but has only {found.count[widest]:,} rows. "
            "Correct the stamps, or give a longer dataset.freq."
        )
    if (last.max() - first.min()) / step_of(freq) > limit:
        raise DataError(
            f"the table spans {first.min()} (series {ids[first.argmin()]!r}) to {last.max()} "
            f"(series {ids[last.argmax()]!r}), far more steps of freq={freq!r} than it has rows. "
            "Correct the stamps, or give a longer dataset.freq."
        )


def as_index(times: IntArray, time_zone: str | None) -> pd.DatetimeIndex:
    """Return microseconds since 1970 as stamps: naive, or in UTC if there is a time zone."""
    stamps = pd.DatetimeIndex(np.asarray(times, dtype="datetime64[us]"))
    return stamps if time_zone is None else stamps.tz_localize("UTC")
