"""Which rows of the input make up each part: whole series, read in place wherever that goes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa

from tsformer.data.files import is_parquet
from tsformer.data.gathering import Hashes, hash_ids
from tsformer.data.sources import Source, Span
from tsformer.data.types import IntArray

# Where the rows of a part are: in the input, or, None, in a file that they are gathered in.
Place: TypeAlias = tuple[Span, ...] | None

# A run is some rows of one id, one after the other, in one file. Of more runs than these (16
# bytes each), where each one stands is not kept: their rows are gathered.
_MOST_RUNS = 1 << 24
_MOST_SAMPLED = 1 << 20  # ids that are kept then


@dataclass
class Plan:
    """The parts of an input.

    Attributes:
        places: where the rows of each part are.
        part_of: from hashes of ids to the numbers of their parts, -1 for ids not in the input.
        id_type: of the ids, whichever files they are in.
    """

    places: list[Place]
    part_of: Callable[[Hashes], IntArray]
    id_type: pa.DataType


def common_type(types: Collection[pa.DataType]) -> pa.DataType:
    """Return the type that ids of some types have in common: whole numbers, or else text."""
    if len(types) == 1:
        return next(iter(types))
    return pa.int64() if types and all(map(pa.types.is_integer, types)) else pa.string()


def type_of_ids(column: pd.Series) -> pa.DataType | None:
    """Return the type of a column of ids; None if it has none; text for numbers beside text."""
    values = column.dropna()
    if not len(values):
        return None
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    if values.dtype != object:  # whose values are all of one type
        values = values.iloc[:1]
    try:
        found = pa.array(values, from_pandas=True).type
    except pa.ArrowException:
        return pa.string()
    return pa.string() if found == pa.large_string() else found


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
    if runs.starts is None:
        num_parts = max(-(-runs.num_rows // max_rows), -(-runs.num_series // max_series))
        return _gathered_by_hash(runs, num_parts)
    ends = runs.ends(list(map(is_parquet, runs.files)))
    rows, series = runs.bounds[ends], runs.num_begun[ends]
    is_large = (np.diff(rows) > max_rows) | (np.diff(series) > max_series)
    if (is_large & (np.diff(series) > 1)).any():
        return _gathered(runs, max_rows, max_series)
    return _in_place(runs, ends[_cut(rows, series, max_rows, max_series)])


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
        first: run in which each id appears first, (I,).
        id_type: of the ids, whichever files they are in.
    """

    files: Sequence[Path]
    file_starts: IntArray
    distinct: Hashes
    num_series: int
    starts: IntArray | None
    id: IntArray
    first: IntArray
    id_type: pa.DataType

    @property
    def num_rows(self) -> int:
        return int(self.file_starts[-1])

    @property
    def bounds(self) -> IntArray:
        """First row of each run, and the number of all rows, (R + 1,)."""
        assert self.starts is not None
        return np.append(self.starts, self.num_rows)

    @property
    def num_begun(self) -> IntArray:
        """How many ids have appeared before each run, and in all, (R + 1,)."""
        appears = np.zeros(len(self.id) + 1, dtype=np.int64)
        appears[self.first + 1] = 1
        return np.cumsum(appears)

    def ends(self, can_be_cut: Sequence[bool]) -> IntArray:
        """Return the runs that a part may end before, from 0 to R: no id comes on both sides.

        Args:
            can_be_cut: of each file, whether some of its rows can be read.
        """
        numbers = np.arange(len(self.id))
        last = np.empty(len(self.distinct), dtype=np.int64)
        last[self.id] = numbers  # of several the last one stays
        may_end = np.maximum.accumulate(last[self.id]) == numbers
        file = np.searchsorted(self.file_starts, self.bounds[:-1], side="right") - 1
        ends_file = np.append(np.diff(file) > 0, True)
        may_end &= ends_file | np.array(can_be_cut)[file]
        return np.concatenate([[0], np.flatnonzero(may_end) + 1])

    def part_of(self, part: IntArray) -> Callable[[Hashes], IntArray]:
        """Return what tells the parts of hashes, given those of the distinct ids, (I,)."""
        distinct = self.distinct

        def part_of(hashes: Hashes) -> IntArray:
            place = np.minimum(np.searchsorted(distinct, hashes), len(distinct) - 1)
            return np.where(distinct[place] == hashes, part[place], -1)

        return part_of


def _find_runs(source: Source, id: str) -> _Runs:
    starts: list[IntArray] = []
    hashes: list[Hashes] = []
    sample: _Sample | None = None
    lengths = dict.fromkeys(source.files, 0)
    types: set[pa.DataType] = set()
    num_rows = num_runs = 0
    for chunk in source.chunks([id]):
        assert chunk.file is not None
        distinct, codes = hash_ids(chunk.frame[id], id)
        types |= {found for found in [type_of_ids(chunk.frame[id])] if found}
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
    kind = common_type(types)
    if sample is not None:
        number, none = len(sample.ids) * sample.rate, np.empty(0, np.int64)
        return _Runs(source.files, file_starts, sample.ids, number, None, none, none, kind)
    ids, first, numbers = np.unique(np.concatenate(hashes), return_index=True, return_inverse=True)
    all_starts = np.concatenate(starts)
    return _Runs(source.files, file_starts, ids, len(ids), all_starts, numbers, first, kind)


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


def _cut(rows: IntArray, series: IntArray, max_rows: int, max_series: int) -> IntArray:
    """Return which bounds to cut at, the first and the last among them.

    Args:
        rows: before each bound.
        series: before each bound.
        max_rows: between two cuts, unless no bound is in between.
        max_series: likewise.
    """
    chosen = [0]
    while chosen[-1] < len(rows) - 1:
        now = chosen[-1]
        furthest = min(
            np.searchsorted(rows, rows[now] + max_rows, side="right"),
            np.searchsorted(series, series[now] + max_series, side="right"),
        )
        chosen.append(max(int(furthest) - 1, now + 1))
    return np.array(chosen)


def _in_place(runs: _Runs, ends: IntArray) -> Plan:
    places: list[Place] = []
    for begin, end in pairwise(runs.bounds[ends]):
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
    part = np.searchsorted(ends, runs.first, side="right") - 1
    return Plan(places, runs.part_of(part), runs.id_type)


def _gathered(runs: _Runs, max_rows: int, max_series: int) -> Plan:
    """Part the ids in the order in which they appear."""
    num_ids = len(runs.distinct)
    order = np.argsort(runs.first)
    sizes = np.zeros(num_ids, dtype=np.int64)
    np.add.at(sizes, runs.id, np.diff(runs.bounds))
    rows = np.concatenate([[0], np.cumsum(sizes[order])])
    cuts = _cut(rows, np.arange(num_ids + 1), max_rows, max_series)
    part = np.empty(num_ids, dtype=np.int64)
    part[order] = np.searchsorted(cuts, np.arange(num_ids), side="right") - 1
    return Plan([None] * (len(cuts) - 1), runs.part_of(part), runs.id_type)


def _gathered_by_hash(runs: _Runs, num_parts: int) -> Plan:
    """Part the ids in the order of their hashes, so that each part has as many of the sample."""
    some = runs.distinct
    num_parts = min(num_parts, len(some))
    lowest = some[np.arange(num_parts) * len(some) // num_parts]

    def part_of(hashes: Hashes) -> IntArray:
        return np.maximum(np.searchsorted(lowest, hashes, side="right") - 1, 0)

    return Plan([None] * num_parts, part_of, runs.id_type)
