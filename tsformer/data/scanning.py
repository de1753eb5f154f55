"""First pass over a table: which series there are, when they begin and end, what is wrong."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tsformer.data.columns import Columns
from tsformer.data.findings import Finding, Findings
from tsformer.data.parsing import (
    Place,
    category_text,
    day_and_month,
    find_day_first,
    is_text,
    parse_ids,
    parse_numbers,
    parse_stamps,
    parse_texts,
    shown,
)
from tsformer.data.sources import Chunk, Source
from tsformer.data.types import BoolArray, FloatArray, IntArray

_AS_MEAN = "Its mean over the train rows is used instead."
# Of so many rows, the ids and times of the first pass are kept for the second (24 bytes a row).
_MOST_KNOWN_ROWS = 4_000_000
_NEVER = np.iinfo(np.int64).max


@dataclass
class Rows:
    """Rows of a chunk that have an id and a time.

    Attributes:
        index: of each row in the chunk, (N,).
        id: number of each row's id, (N,).
        time: of each row in microseconds since 1970, (N,); in UTC or naive.
        num_all: rows of the chunk, these and others.
    """

    index: IntArray
    id: IntArray
    time: IntArray
    num_all: int

    def of(self, values: FloatArray) -> FloatArray:
        """Return these rows of all the chunk's, (num_all, F)."""
        return values if len(self.index) == self.num_all else values[self.index]

    def where(self, keep: BoolArray) -> "Rows":
        """Return some of the rows."""
        return Rows(self.index[keep], self.id[keep], self.time[keep], self.num_all)


@dataclass
class Scan:
    """What the first pass found out, by id (I ids) and target column (C).

    A wide table is one id, the empty text.

    Attributes:
        ids: in order of appearance, with their number.
        count: rows, (I,).
        observed: rows with a value, (I, C).
        unsorted: whether rows come after a later one, (I,).
        first: earliest time, microseconds since 1970, (I,).
        last: latest time, (I,).
        low: smallest value, inf where there is none, (I, C).
        high: largest value, -inf where there is none, (I, C).
        categories: texts of each categorical column, sorted.
        time_zone: of the stamps; None when naive.
    """

    ids: dict[str, int]
    count: IntArray
    observed: IntArray
    unsorted: BoolArray
    first: IntArray
    last: IntArray
    low: FloatArray
    high: FloatArray
    categories: dict[str, tuple[str, ...]]
    time_zone: str | None


@dataclass
class Reader:
    """Reads the ids and times of a source's rows, alike in every pass.

    Attributes:
        source: the table.
        columns: parts of its columns.
        ids: those met so far, with their number.
        zones: time zones met so far.
    """

    source: Source
    columns: Columns
    ids: dict[str, int] = field(default_factory=dict)
    zones: dict[str | None, None] = field(default_factory=dict)  # a set that keeps its order
    day_first: bool | None = None  # of dates such as 31/01/2024, found out when there are any
    _known: dict[tuple[str, ...], list[Rows]] = field(default_factory=dict)

    def chunks(
        self, names: tuple[str, ...] = (), findings: Findings | None = None
    ) -> Iterator[tuple[Chunk, Rows]]:
        """Yield the chunks with these columns, and their rows that have an id and a time.

        Args:
            names: of columns besides the id and the time.
            findings: receives which rows have none.
        """
        keys = (*([self.columns.id] if self.columns.id else []), self.columns.time)
        wanted = tuple(dict.fromkeys((*keys, *names)))
        known = self._known.setdefault(wanted, [])
        for number, chunk in enumerate(self.source.chunks(wanted)):
            if number < len(known):
                rows = known[number]
            else:
                rows = self._rows(chunk, Findings() if findings is None else findings)
                if sum(len(each.id) for each in known) < _MOST_KNOWN_ROWS:
                    known.append(rows)
            yield chunk, rows

    def place(self, chunk: Chunk) -> Place:
        """Return what names a cell of the chunk."""

        def name(column: str, row: int) -> str:
            id = self.columns.id
            if not id or id == column:
                return f"column {column!r}, {self.row_name(chunk, row)}"
            series = shown(str(chunk.frame[id].iloc[row]))
            return f"series {series}, column {column!r}, {self.row_name(chunk, row)}"

        return name

    def row_name(self, chunk: Chunk, row: int) -> str:
        """Name a row of the chunk: its number, and its file if there are several."""
        file = f" of {chunk.file.name}" if chunk.file and len(self.source.files) > 1 else ""
        return f"row {chunk.first_row + row}{file}"

    def _rows(self, chunk: Chunk, findings: Findings) -> Rows:
        frame, columns = chunk.frame, self.columns
        if self.day_first is None and len(day_and_month(_distinct(frame[columns.time]))):
            pieces = (each.frame[columns.time] for each in self.source.chunks([columns.time]))
            self.day_first = find_day_first(map(_distinct, pieces), columns.time)
        stamps, zone = parse_stamps(
            frame[columns.time], columns.time, findings, self.place(chunk), bool(self.day_first)
        )
        if stamps.notna().any():
            self.zones[zone] = None
        valid = stamps.notna()
        id = np.zeros(len(frame), dtype=np.int64)
        if columns.id is not None:
            texts, codes = parse_ids(frame[columns.id], columns.id)
            numbers = [self.ids.setdefault(text, len(self.ids)) for text in texts]
            id = np.array([*numbers, -1], dtype=np.int64)[codes]
            if (id < 0).any():
                example = f"{self.place(chunk)(columns.id, int(np.argmax(id < 0)))}"
                findings.add(
                    Finding(
                        "error",
                        "no id",
                        f"{example}: no series id is given",
                        "Fill it in, or remove the row.",
                        int((id < 0).sum()),
                    )
                )
                valid &= id >= 0
        else:
            self.ids.setdefault("", 0)
        index = np.flatnonzero(valid)
        return Rows(index, id[index], stamps.asi8[index], len(frame))


def scan(reader: Reader, findings: Findings) -> Scan:
    """Look at every cell once.

    Rows without an id or a time are left out.
    """
    columns, num_targets = reader.columns, len(reader.columns.target)
    numeric = [
        name
        for name in (*columns.covariates, *columns.static_covariates)
        if name not in columns.categorical
    ]
    numeric += [columns.weight] if columns.weight else []
    texts: dict[str, set[str]] = {name: set() for name in columns.categorical}
    none, no_values = np.empty(0, np.int64), np.empty((0, num_targets))
    observed = np.empty((0, num_targets), np.int64)
    found = Scan({}, none, observed, none > 0, none, none, no_values, no_values, {}, None)
    for chunk, rows in reader.chunks(columns.names, findings):
        place = reader.place(chunk)
        covariates = parse_numbers(chunk.frame, numeric, findings, place)
        for name, empty in zip(numeric, np.isnan(covariates).sum(axis=0), strict=True):
            if empty:
                text = f"column {name!r}: no value"
                findings.add(Finding("note", "empty covariate", text, _AS_MEAN, int(empty)), name)
        for name, values in texts.items():
            values.update(parse_texts(chunk.frame[name], name, category_text)[0])
        targets = rows.of(parse_numbers(chunk.frame, columns.target, findings, place))
        _grow(found, len(reader.ids))
        found.unsorted[_find_unsorted(rows, found.last)] = True
        np.add.at(found.count, rows.id, 1)
        np.minimum.at(found.first, rows.id, rows.time)
        np.maximum.at(found.last, rows.id, rows.time)
        for column in range(num_targets):
            given = ~np.isnan(targets[:, column])
            id, value = rows.id[given], targets[given, column]
            np.add.at(found.observed[:, column], id, 1)
            np.minimum.at(found.low[:, column], id, value)
            np.maximum.at(found.high[:, column], id, value)
    if found.unsorted.any():
        name = list(reader.ids)[int(np.argmax(found.unsorted))] or "the table"
        text = f"rows of {name!r} are not in order of time"
        count = int(found.unsorted.sum())
        findings.add(Finding("note", "unsorted rows", text, "They are sorted.", count))
    found.ids = reader.ids
    found.categories = {name: tuple(sorted(values)) for name, values in texts.items()}
    found.time_zone = _common_zone(reader, findings)
    return found


def _distinct(column: pd.Series) -> pd.Series:
    return column.drop_duplicates() if is_text(column) else column


def _grow(scan: Scan, size: int) -> None:
    """Make room for ids met for the first time."""
    more = size - len(scan.count)
    if more:
        num_targets = scan.low.shape[1]
        scan.count = np.append(scan.count, np.zeros(more, np.int64))
        scan.observed = np.vstack([scan.observed, np.zeros((more, num_targets), np.int64)])
        scan.unsorted = np.append(scan.unsorted, np.zeros(more, bool))
        scan.first = np.append(scan.first, np.full(more, _NEVER))
        scan.last = np.append(scan.last, np.full(more, -_NEVER))
        scan.low = np.vstack([scan.low, np.full((more, num_targets), np.inf)])
        scan.high = np.vstack([scan.high, np.full((more, num_targets), -np.inf)])


def _find_unsorted(rows: Rows, last: IntArray) -> IntArray:
    """Return ids of which a row comes after a later one; `last` is of the chunks before."""
    id, time = rows.id, rows.time
    if (np.diff(id) < 0).any() and (np.diff(time) < 0).any():
        order = np.argsort(id, kind="stable")
        id, time = id[order], time[order]
    backwards = (np.diff(time) < 0) & (np.diff(id) == 0)
    begins = np.flatnonzero(np.diff(id, prepend=-1))
    return np.concatenate([id[1:][backwards], id[begins][time[begins] < last[id[begins]]]])


def _common_zone(reader: Reader, findings: Findings) -> str | None:
    zones = list(reader.zones) or [None]
    if None in zones and len(zones) > 1:
        findings.add(
            Finding(
                "error",
                "mixed time zones",
                f"column {reader.columns.time!r}: some times have a time zone "
                f"({next(zone for zone in zones if zone)}), others have none",
                "Give all of them a zone, or none.",
            )
        )
        findings.refuse()  # times cannot be compared
    return zones[0] if len(zones) == 1 else "UTC"


def find_unnamed_ids(source: Source, columns: Columns) -> Finding | None:
    """Find a long table whose ids are not named, and which therefore counts as a wide one.

    Its times come again and again, but never with the same text of one of its columns.

    Args:
        source: the table, of which the first chunk is looked at.
        columns: as of a wide table.
    """
    frame = next(iter(source.chunks(source.names))).frame
    times = frame[columns.time]
    if not times.duplicated().any():
        return None
    others = [name for name in source.names if name != columns.time]
    texts = [name for name in others if not _has_numbers(frame[name])]
    ids = next((x for x in texts if not frame.duplicated([columns.time, x]).any()), None)
    if ids is None:
        return None
    if frame[ids].astype(str).str.match(r"\d{1,2}:\d\d").all():
        return Finding(
            "error",
            "two time columns",
            f"the date {shown(times[times.duplicated()].iloc[0])} comes several times, each with "
            f"another time of day in column {ids!r}",
            f"Write {columns.time!r} and {ids!r} into one column, such as 2024-01-31 13:00.",
        )
    target = next((name for name in columns.target if name not in texts), "...")
    return Finding(
        "error",
        "long table",
        f"the time {shown(times[times.duplicated()].iloc[0])} comes several times, each with "
        f"another {ids!r}, so that the table seems to be long, with a row for each series and time",
        f"Name the column of the series ids and what to forecast, dataset.id_column={ids} "
        f"dataset.target={target}; other columns can be covariates.",
    )


def _has_numbers(column: pd.Series) -> bool:
    return bool(np.isfinite(parse_numbers(column.to_frame(), [column.name], Findings())).any())
