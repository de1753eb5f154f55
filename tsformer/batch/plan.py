"""Which rows of the input make up each part: whole series, read in place wherever that goes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from tsformer.data.files import is_parquet
from tsformer.data.gathering import Hashes, hash_ids
from tsformer.data.sources import Source, Span
from tsformer.data.types import BoolArray, IntArray

# Where the rows of a part are: in the input, or, None, in a file that they are gathered in.
Place: TypeAlias = tuple[Span, ...] | None

# A run is some rows of one id, one behind the other, in one file. Of more runs than these (16
# bytes each), where each one stands is not kept: their rows are gathered.
_MOST_RUNS = 1 << 24
_MOST_SAMPLED = 1 << 20  # ids that are kept then


@dataclass
class Plan:
    """The parts of an input.

    Attributes:
        places: where the rows of each part are.
        part_of: from hashes of ids to the numbers of their parts, -1 for ids not in the input.
    """

    places: list[Place]
    part_of: Callable[[Hashes], IntArray]


def plan_parts(source: Source, id: str, *, max_rows: int, max_series: int, at_least: int) -> Plan:
    """Look at the ids of a table once, and lay out its parts.

    Where the rows of each series are together, in a Parquet file or at least in one small file,
    parts are read in place. Otherwise the rows have to be gathered by their ids.

    Args:
        source: a long table in files.
        id: column of the series' ids.
        max_rows: of a part, unless a single series has more.
        max_series: of a part.
        at_least: so many parts, if there are as many series.
    """
    runs = _find_runs(source, id)
    max_rows = max(min(max_rows, runs.num_rows // at_least), 1)
    max_series = max(min(max_series, runs.num_series // at_least), 1)
    if runs.starts is not None:
        may_end = runs.may_end(list(map(is_parquet, runs.files)))
        ends = _cut(runs, may_end, max_rows, max_series)
        if ends is not None:
            return _in_place(runs, ends)
    num_parts = max(-(-runs.num_rows // max_rows), -(-runs.num_series // max_series))
    return _gathered(runs.distinct, num_parts)


@dataclass
class _Runs:
    """The runs of a table, in its order; (R,) runs of (I,) ids.

    Attributes:
        files: that hold the table.
        file_starts: number of each file's first row, and of all rows at the end, (files + 1,).
        distinct: hashes of the ids, sorted, (I,); where there are too many, of some of them.
        num_series: distinct ids, about.
        starts: number of each run's first row, (R,); None where there are too many.
        id: of each run, its place among `distinct`, (R,).
    """

    files: Sequence[Path]
    file_starts: IntArray
    distinct: Hashes
    num_series: int
    starts: IntArray | None
    id: IntArray

    @property
    def num_rows(self) -> int:
        return int(self.file_starts[-1])

    def may_end(self, can_be_cut: Sequence[bool]) -> BoolArray:
        """Return behind which runs a part may end, (R,): no id comes both before and after."""
        assert self.starts is not None
        last = np.empty(len(self.distinct), dtype=np.int64)
        last[self.id] = np.arange(len(self.id))  # of several the last one stays
        may_end = np.maximum.accumulate(last[self.id]) == np.arange(len(self.id))
        file = np.searchsorted(self.file_starts, self.starts, side="right") - 1
        ends_file = np.append(np.diff(file) > 0, True)
        return may_end & (ends_file | np.array(can_be_cut)[file])


def _find_runs(source: Source, id: str) -> _Runs:
    starts: list[IntArray] = []
    hashes: list[Hashes] = []
    sample: _Sample | None = None
    lengths = dict.fromkeys(source.files, 0)
    num_rows = num_runs = 0
    for chunk in source.chunks([id]):
        assert chunk.file is not None
        distinct, codes = hash_ids(chunk.frame[id], id)
        if sample is None:
            begins = np.flatnonzero(np.diff(codes, prepend=codes[0] - 1))
            starts.append(num_rows + begins)
            hashes.append(distinct[codes[begins]])
            num_runs += len(begins)
            if num_runs > _MOST_RUNS:
                sample = _Sample(np.empty(0, np.uint64))
                for each in hashes:
                    sample.add(each)
                starts, hashes = [], []
        else:
            sample.add(distinct[np.unique(codes)])
        lengths[chunk.file] += len(codes)
        num_rows += len(codes)
    file_starts = np.concatenate([[0], np.cumsum(list(lengths.values()))])
    if sample is not None:
        number = len(sample.ids) * sample.rate
        return _Runs(source.files, file_starts, sample.ids, number, None, np.empty(0, np.int64))
    ids, numbers = np.unique(np.concatenate(hashes), return_inverse=True)
    return _Runs(source.files, file_starts, ids, len(ids), np.concatenate(starts), numbers)


@dataclass
class _Sample:
    """Distinct ids: all, or as they become too many, those whose hash `rate` divides."""

    ids: Hashes
    rate: int = 1

    def add(self, hashes: Hashes) -> None:
        self.ids = np.unique(np.concatenate([self.ids, hashes[hashes % np.uint64(self.rate) == 0]]))
        while len(self.ids) > _MOST_SAMPLED:
            self.rate *= 2
            self.ids = self.ids[self.ids % np.uint64(self.rate) == 0]


def _cut(runs: _Runs, may_end: BoolArray, max_rows: int, max_series: int) -> IntArray | None:
    """Return the runs that parts end before, or None if several series cannot be parted."""
    assert runs.starts is not None
    is_first = np.zeros(len(runs.id), dtype=bool)
    is_first[np.unique(runs.id, return_index=True)[1]] = True
    ends = np.concatenate([[0], np.flatnonzero(may_end) + 1])
    rows = np.append(runs.starts, runs.num_rows)[ends]  # before each end
    series = np.concatenate([[0], np.cumsum(is_first)])[ends]
    is_large = (np.diff(rows) > max_rows) | (np.diff(series) > max_series)
    if (is_large & (np.diff(series) > 1)).any():
        return None
    chosen = [0]
    while chosen[-1] < len(ends) - 1:
        now = chosen[-1]
        furthest = min(
            np.searchsorted(rows, rows[now] + max_rows, side="right"),
            np.searchsorted(series, series[now] + max_series, side="right"),
        )
        chosen.append(max(int(furthest) - 1, now + 1))
    return ends[chosen]


def _in_place(runs: _Runs, ends: IntArray) -> Plan:
    assert runs.starts is not None
    bounds = np.append(runs.starts, runs.num_rows)[ends]
    places: list[Place] = []
    for begin, end in pairwise(bounds):
        first = int(np.searchsorted(runs.file_starts, begin, side="right")) - 1
        spans = []
        for file in range(first, len(runs.files)):
            start, stop = runs.file_starts[file : file + 2]
            if start >= end:
                break
            if start < stop:
                whole = begin <= start and stop <= end
                rows = int(max(begin, start) - start), int(min(end, stop) - start)
                spans.append(Span(runs.files[file], None if whole else rows))
        places.append(tuple(spans))
    part = np.empty(len(runs.distinct), dtype=np.int64)
    part[runs.id] = np.searchsorted(ends, np.arange(len(runs.id)), side="right") - 1

    def part_of(hashes: Hashes) -> IntArray:
        place = np.minimum(np.searchsorted(runs.distinct, hashes), len(runs.distinct) - 1)
        return np.where(runs.distinct[place] == hashes, part[place], -1)

    return Plan(places, part_of)


def _gathered(distinct: Hashes, num_parts: int) -> Plan:
    """Give each part as many ids, next to each other in the order of their hashes."""
    num_parts = min(num_parts, len(distinct))
    lowest = distinct[np.arange(num_parts) * len(distinct) // num_parts]

    def part_of(hashes: Hashes) -> IntArray:
        return np.maximum(np.searchsorted(lowest, hashes, side="right") - 1, 0)

    return Plan([None] * num_parts, part_of)
