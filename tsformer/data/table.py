"""SeriesTable: any frame or file, validated and laid on a regular grid of time.

Every complaint about input data is made here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsformer.data.calendar import step_of
from tsformer.errors import DataError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TIME_NAMES = ("ds", "date", "datetime", "timestamp", "time")


@dataclass(frozen=True)
class Columns:
    """Which column plays which part.

    A *long* table has an `id` column and one target; a *wide* one has no `id` and one target
    column for each series, which is named by it.
    """

    id: str | None
    time: str
    target: tuple[str, ...]
    past_covariates: tuple[str, ...] = ()
    future_covariates: tuple[str, ...] = ()

    @property
    def covariates(self) -> tuple[str, ...]:
        """All covariates, those known over the horizon first."""
        return self.future_covariates + self.past_covariates

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*([self.id] if self.id else []), self.time, *self.target, *self.covariates)


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
        return np.repeat(np.arange(len(self.ids)), self.lengths)

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
        target = np.full((length, len(self.ids)), np.nan)
        target[position, np.array([channels.index(id) for id in self.ids])[series]] = self.target[:, 0]
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

    def with_future(
        self, future: pd.DataFrame, columns: Columns, horizon: int
    ) -> "SeriesTable":
        """Return an extended table with the future covariates of its last `horizon` rows filled in.

        Args:
            future: covariates by series and time; rows outside the horizons are ignored.
            columns: parts of the columns; the target need not be there.
            horizon: rows behind the history of each series, H.

        Raises:
            DataError: a column or a value is missing; names series and times.
        """
        names = columns.future_covariates
        needed = [*([columns.id] if columns.id else []), columns.time, *names]
        missing = [name for name in needed if name not in future.columns]
        if missing:
            raise DataError(f"future: no column {missing[0]!r}; it needs {needed}.")
        values = _numbers(future, names)
        stamps, time_zone = _stamps(future[columns.time], columns.time)
        if (time_zone is None) != (self.time_zone is None):
            raise DataError("future: its times have a time zone and those of the history none, "
                            "or the other way round. Give both the same.")
        stamps = _grid_stamps(stamps, self.time_zone, self.freq)
        ends = self.starts + self.lengths - horizon  # grid position behind each history
        position = self.grid[ends.min() :].get_indexer(stamps) + ends.min()
        if columns.id is None:
            series = np.repeat(np.arange(len(self.ids)), len(future))
            position, values = np.tile(position, len(self.ids)), np.tile(values, (len(self.ids), 1))
        else:
            series = pd.Index(self.ids).get_indexer(future[columns.id].astype(str))
        step = position - ends[series]
        keep = (series >= 0) & (position >= ends.min()) & (step >= 0) & (step < horizon)
        rows = (self.offsets[1:] - horizon)[series[keep]] + step[keep]
        if len(np.unique(rows)) < len(rows):
            raise DataError("future: some series has the same time twice.")
        covariates = self.covariates.copy()
        covariates[rows, : len(names)] = values[keep]
        ahead = (self.offsets[1:] - horizon)[:, None] + np.arange(horizon)  # (S, H)
        absent = np.isnan(covariates[ahead, : len(names)]).any(axis=2)
        if absent.any():
            first = int(np.argmax(absent.any(axis=1)))
            times = self.stamps(ends[first] + np.flatnonzero(absent[first]))
            raise DataError(
                f"future: no value of {list(names)} for series {self.ids[first]!r} at {times[0]}"
                f"{f' to {times[-1]}' if len(times) > 1 else ''} ({len(times)} of {horizon} steps; "
                f"{int(absent.any(axis=1).sum())} of {len(self.ids)} series lack some)."
            )
        return replace(self, covariates=covariates)


def read_frame(path: Path, id_column: str | None = None) -> pd.DataFrame:
    """Read a CSV or Parquet file.

    Args:
        path: the file; a CSV is UTF-8 or else Latin-1.
        id_column: column read as text, so that the id 007 stays 007; `unique_id` is always.

    Raises:
        DataError: the file is missing, empty, of another kind, or cannot be parsed.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Give a CSV or Parquet file.")
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        raise DataError(f"{path}: the ending {suffix!r} is neither .csv nor .parquet.")
    try:
        frame = pd.read_parquet(path) if suffix == ".parquet" else _read_csv(path, id_column)
    except (ValueError, OSError) as error:  # pandas' and Arrow's parse errors are ValueErrors
        raise DataError(f"{path}: cannot be read as a table ({error}).") from error
    if frame.empty:
        raise DataError(f"{path}: the table has no rows.")
    return frame


def _read_csv(path: Path, id_column: str | None) -> pd.DataFrame:
    text = dict.fromkeys(["unique_id", *([id_column] if id_column else [])], str)
    try:
        return pd.read_csv(path, dtype=text)
    except UnicodeDecodeError:
        return pd.read_csv(path, dtype=text, encoding="latin-1")


def find_columns(
    frame: pd.DataFrame,
    *,
    id: str | None = None,
    time: str | None = None,
    target: Sequence[str] | None = None,
    past_covariates: Sequence[str] = (),
    future_covariates: Sequence[str] = (),
) -> Columns:
    """Settle the columns' parts, filling in what is not given.

    The time column is the first called ds, date, datetime, timestamp or time, in any case; the
    id column is `unique_id` if there is one; the target is `y` of a table that has it, else every
    column left.

    Raises:
        DataError: a column is missing or plays two parts.
    """
    names = [str(name) for name in frame.columns]
    if time is None:
        lowered = {name.lower(): name for name in reversed(names)}
        time = next((lowered[name] for name in _TIME_NAMES if name in lowered), None)
        if time is None:
            raise DataError(
                f"no time column among {names}: looked for {', '.join(_TIME_NAMES)}. "
                "Name it with dataset.time_column."
            )
    if id is None and "unique_id" in names:
        id = "unique_id"
    taken = {id, time, *past_covariates, *future_covariates}
    if not target:
        rest = [name for name in names if name not in taken]
        target = ["y"] if "y" in rest else rest
    columns = Columns(id, time, tuple(target), tuple(past_covariates), tuple(future_covariates))
    parts = columns.names
    missing = [name for name in parts if name not in names]
    if missing:
        raise DataError(f"no column {missing[0]!r} in the table; it has {names}.")
    if not target:
        raise DataError(f"no target column is left among {names}. Name it with dataset.target.")
    double = [name for name in parts if parts.count(name) > 1]
    if double:
        raise DataError(f"column {double[0]!r} cannot be used twice.")
    if id is not None and len(target) > 1:
        raise DataError(
            f"a table with the id column {id!r} has one target column, but {list(target)} were "
            "named or left over. Name one with dataset.target."
        )
    return columns


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
    covariates = _numbers(frame, columns.covariates)
    targets = _numbers(frame, columns.target)
    stamps, time_zone = _stamps(frame[columns.time], columns.time)
    if columns.id is None:
        ids: tuple[str, ...] = columns.target
        series = np.repeat(np.arange(len(ids)), len(frame))
        stamps = pd.DatetimeIndex(np.tile(stamps, len(ids)), tz=stamps.tz)
        target = targets.T.reshape(-1, 1)
        covariates = np.tile(covariates, (len(ids), 1))
    else:
        ids, series = _factorize(frame[columns.id], columns.id)
        target = targets

    if not regular:
        if columns.id is not None:
            raise DataError("dataset.regular=false takes a wide table, without an id column.")
        length = len(frame)
        grid = stamps[:length]
        return SeriesTable(
            ids=ids,
            grid=grid,
            freq=freq or infer_freq(grid.sort_values().unique()),
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
        freq = _infer_common_freq(stamps, series)
    stamps = _grid_stamps(stamps, time_zone, freq)
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


def infer_freq(stamps: pd.DatetimeIndex) -> str:
    """Return the offset alias of the commonest step between ordered, distinct stamps.

    Raises:
        DataError: fewer than two stamps.
    """
    if len(stamps) < 2:
        raise DataError("one time stamp alone has no step. Give dataset.freq.")
    if len(stamps) >= 3 and (alias := pd.infer_freq(stamps)) is not None:
        return alias
    steps, counts = np.unique(np.diff(stamps.to_numpy()), return_counts=True)
    commonest = pd.Timedelta(steps[np.argmax(counts)])
    if commonest >= pd.Timedelta(days=28):
        raise DataError(
            f"the steps between stamps vary around {commonest}: looks like months, quarters or "
            "years with gaps. Give dataset.freq, for example MS (month start)."
        )
    return pd.tseries.frequencies.to_offset(commonest).freqstr


def _infer_common_freq(stamps: pd.DatetimeIndex, series: IntArray) -> str:
    longest = np.argmax(np.bincount(series))
    return infer_freq(stamps[series == longest])


def _grid_stamps(stamps: pd.DatetimeIndex, time_zone: str | None, freq: str) -> pd.DatetimeIndex:
    """Return UTC stamps as they lie on a grid: days and longer follow the wall clock."""
    if time_zone is None or step_of(freq) < pd.Timedelta(days=1):
        return stamps
    return stamps.tz_convert(time_zone).tz_localize(None)


def _numbers(frame: pd.DataFrame, names: Sequence[str]) -> FloatArray:
    values = np.empty((len(frame), len(names)))
    for column, name in enumerate(names):
        numbers = pd.to_numeric(frame[name], errors="coerce")
        wrong = numbers.isna() & frame[name].notna()
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"column {name!r}, row {row}: {frame[name].iloc[row]!r} is not a number. "
                "Correct it, leave it empty if the value is missing, or do not use the column."
            )
        values[:, column] = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
        infinite = np.isinf(values[:, column])
        if infinite.any():
            raise DataError(
                f"column {name!r}, row {int(np.argmax(infinite))}: infinite. "
                "Correct it, or leave it empty if the value is missing."
            )
    return values


def _stamps(column: pd.Series, name: str) -> tuple[pd.DatetimeIndex, str | None]:
    if pd.api.types.is_numeric_dtype(column):
        raise DataError(
            f"column {name!r} holds numbers, not times; it has to hold dates such as 2024-01-31 "
            "or 2024-01-31 13:00. Convert it, or name another with dataset.time_column."
        )
    try:
        stamps = pd.DatetimeIndex(pd.to_datetime(column))
    except (ValueError, TypeError) as error:
        raise DataError(f"column {name!r} does not hold times: {error}.") from error
    if stamps.isna().any():
        raise DataError(f"column {name!r}, row {int(np.argmax(stamps.isna()))}: no time given.")
    stamps = stamps.as_unit("us")
    if stamps.tz is None:
        return stamps, None
    return stamps.tz_convert("UTC"), str(stamps.tz)


def _factorize(column: pd.Series, name: str) -> tuple[tuple[str, ...], IntArray]:
    codes, values = pd.factorize(column)
    if (codes < 0).any():
        raise DataError(f"column {name!r}, row {int(np.argmax(codes < 0))}: no series id given.")
    return tuple(str(value) for value in values), codes


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


def _place(values: FloatArray, rows: IntArray, num_rows: int) -> FloatArray:
    placed = np.full((num_rows, values.shape[1]), np.nan)
    placed[rows] = values
    return placed
