"""Second pass over a table: every value goes to its row of a SeriesStore."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from tsformer.data.columns import Columns
from tsformer.data.findings import Finding, Findings, Level
from tsformer.data.parsing import category_text, parse_numbers, parse_texts, shown
from tsformer.data.placement import Placement, lay_out
from tsformer.data.scanning import Reader, Rows, Scan, scan
from tsformer.data.sources import Chunk, Source
from tsformer.data.store import BLOCK_ROWS, SeriesStore
from tsformer.data.types import BoolArray, Float32Array, FloatArray, IntArray
from tsformer.errors import DataError

# Makes a large array: its name, its length and width, and its type; zeros.
Allocate = Callable[[str, tuple[int, ...], type], np.ndarray]


def build_store(
    source: Source,
    columns: Columns,
    findings: Findings,
    *,
    freq: str | None = None,
    regular: bool = True,
    duplicates: str = "error",
    time_zone: str | None = None,
    allocate: Allocate = lambda name, shape, dtype: np.zeros(shape, dtype),
) -> SeriesStore:
    """Validate a table and lay its series on a regular grid, in memory that its size does not need.

    Args:
        source: long or wide table, as `columns` says; rows in any order.
        columns: parts of the columns.
        findings: receives all that is found out.
        freq: step between rows, a pandas offset alias; inferred when None.
        regular: rows stand where their time stamp says, and absent stamps become missing values.
            False takes the rows as consecutive steps in the order they come, whatever their
            stamps, as published benchmarks do; such a table must be wide.
        duplicates: what to do with rows of one id and time: `error`, take the `first`, or the
            `mean` or `sum` of the target (of covariates the mean, of categories the first).
        time_zone: whose midnights part the days of steps of a day and longer, where stamps have a
            zone or an offset; None: the stamps' own.
        allocate: makes the large arrays.

    Raises:
        DataError: lists every fault that was found, with series, column, row, and remedy.
    """
    if not regular and columns.id is not None:
        raise DataError("dataset.regular=false takes a wide table, without an id column.")
    freq = freq or None  # an empty setting is none
    reader = Reader(source, columns)
    found = scan(reader, findings)
    if not found.count.all() or not len(found.count):
        findings.refuse()  # of some ids no row has a time
        raise DataError("the table has no rows.")
    try:
        place = lay_out(reader, found, freq, regular, time_zone)
    except DataError as error:
        findings.add(Finding("error", "no grid", str(error).removesuffix(".")))
        findings.refuse()
        raise
    return _fill(reader, found, place, findings, duplicates, allocate)


def _fill(
    reader: Reader,
    found: Scan,
    place: Placement,
    findings: Findings,
    duplicates: str,
    allocate: Allocate,
) -> SeriesStore:
    columns = reader.columns
    num_ids, num_targets = found.low.shape
    num_rows = int(place.offsets[-1])
    offsets = np.concatenate([[0], np.cumsum(np.repeat(place.lengths, num_targets))])  # (S+1,)
    centers = _centers(found.low, found.high)  # (I, C)
    target = allocate("target", (num_rows * num_targets,), np.float32)
    covariates = allocate("covariates", (num_rows, len(columns.covariates)), np.float64)
    target[:] = np.nan
    covariates[:] = np.nan
    adds_up = duplicates in ("mean", "sum")
    sums = _Sums(allocate, len(target), covariates.shape) if adds_up else None
    filled = np.zeros(num_rows, dtype=bool)
    num_filled = np.zeros(num_ids, dtype=np.int64)
    per_id = _PerId(reader, findings, num_ids)
    num_before, num_repeated = 0, 0

    for chunk, rows in reader.chunks(columns.names):
        position = place.positions(rows, num_before)
        num_before += len(chunk.frame)
        if (position < 0).any():
            findings.add(_off_grid(reader, chunk, rows, position, place))
            rows = rows.where(position >= 0)
            position = position[position >= 0]
        step = position - place.starts[rows.id]
        row = place.offsets[rows.id] + step  # of covariates, (N,)
        again = filled[row]
        if not (np.diff(row) > 0).all():
            again |= pd.Series(row).duplicated().to_numpy()
        filled[row] = True
        np.add.at(num_filled, rows.id[~again], 1)
        if again.any():
            if duplicates == "error" and not num_repeated:
                findings.add(_repeated(reader, rows, int(np.argmax(again)), place))
            num_repeated += int(again.sum())
        silent = Findings()  # what is wrong in the values, the scan has told
        values = rows.of(parse_numbers(chunk.frame, columns.target, silent))
        features = rows.of(_features(chunk, columns.covariates, found.categories, columns))
        per_id.add(chunk, rows, found.categories)

        cells = (num_targets * place.offsets[rows.id] + step)[:, None]  # of the target, (N, C)
        cells = cells + np.arange(num_targets) * place.lengths[rows.id][:, None]
        fresh = ~again if again.any() else slice(None)
        if sums is not None:
            sums.add(cells, values, row, features)
        else:
            target[cells[fresh]] = values[fresh] - centers[rows.id[fresh]]
        covariates[row[fresh]] = features[fresh]

    _tell_repeated(findings, duplicates, num_repeated)
    static, weights = per_id.finish(list(found.ids))
    findings.refuse()
    if sums is not None:
        is_number = np.array([name not in columns.categorical for name in columns.covariates], bool)
        mean = duplicates == "mean"
        centers = sums.write(target, offsets, covariates, is_number, mean=mean)
    store = SeriesStore(
        table_ids=tuple(found.ids),
        targets=columns.target,
        grid=place.grid,
        freq=place.freq,
        time_zone=place.time_zone,
        starts=np.repeat(place.starts, num_targets),
        offsets=offsets,
        centers=centers.ravel(),
        target=target,
        covariate_base=np.repeat(place.offsets[:-1] - place.starts, num_targets),
        covariates=covariates,
        static=np.repeat(static, num_targets, axis=0),
        weights=None if weights is None else np.repeat(weights, num_targets),
        categories=found.categories,
    )
    if len(set(store.ids)) < len(store.ids):
        double = pd.Index(store.ids)[pd.Index(store.ids).duplicated()][0]
        raise DataError(
            f"two series would be called {double!r}, an id and a target column. Rename one."
        )
    _tell_missing(findings, found, store.ids, place, num_filled)
    return store


@dataclass
class _PerId:
    """Static covariates and weights, one value an id, met on its rows."""

    reader: Reader
    findings: Findings
    num_ids: int

    def __post_init__(self) -> None:
        columns = self.reader.columns
        self.names = (*columns.static_covariates, *([columns.weight] if columns.weight else []))
        self.values = np.full((self.num_ids, len(self.names)), np.nan)

    def add(self, chunk: Chunk, rows: Rows, categories: Mapping[str, Sequence[str]]) -> None:
        if not self.names:
            return
        values = rows.of(_features(chunk, self.names, categories, self.reader.columns))
        for column, name in enumerate(self.names):
            given = ~np.isnan(values[:, column])
            known = self.values[:, column]
            new = given & np.isnan(known[rows.id])
            known[rows.id[new][::-1]] = values[new, column][::-1]  # the first of several stays
            differs = given & (values[:, column] != known[rows.id])
            if differs.any():
                row = int(rows.index[np.argmax(differs)])
                self.findings.add(
                    Finding(
                        "error",
                        "changing static covariate",
                        f"{self.reader.place(chunk)(name, row)}: "
                        f"{shown(chunk.frame[name].iloc[row])} differs from rows before",
                        "Give each series one value, or name the column in "
                        "dataset.past_covariates or future_covariates.",
                        int(differs.sum()),
                    ),
                    name,
                )

    def finish(self, ids: Sequence[str]) -> tuple[FloatArray, FloatArray | None]:
        """Return static covariates (I, Fs) and weights (I,)."""
        weight = self.reader.columns.weight
        if weight is None:
            return self.values, None
        weights = self.values[:, -1]
        wrong = ~(weights >= 0)  # also where none is given
        if wrong.any() or not weights.sum() > 0:
            example = f"column {weight!r}: all weights are 0"
            if wrong.any():
                number = int(np.argmax(wrong))
                value = "is not given" if np.isnan(weights[number]) else f"is {weights[number]:g}"
                example = f"series {ids[number]!r}, column {weight!r}: the weight {value}"
            self.findings.add(
                Finding(
                    "error",
                    "wrong weights",
                    example,
                    "Give each series a number from 0 up, and at least one above 0.",
                    max(int(wrong.sum()), 1),
                )
            )
        return self.values[:, :-1], weights


class _Sums:
    """Sums in double precision of the values of rows that come several times."""

    def __init__(self, allocate: Allocate, num_values: int, shape: tuple[int, ...]) -> None:
        self.target = allocate("target_sum", (num_values,), np.float64)
        self.target_count = allocate("target_count", (num_values,), np.int32)
        self.covariates = allocate("covariate_sum", shape, np.float64)
        self.covariate_count = allocate("covariate_count", shape, np.int32)

    def add(self, cells: IntArray, values: FloatArray, row: IntArray, features: FloatArray) -> None:
        for sums, counts, place, added in (
            (self.target, self.target_count, cells, values),
            (self.covariates, self.covariate_count, row, features),
        ):
            np.add.at(sums, place, np.nan_to_num(added))
            np.add.at(counts, place, ~np.isnan(added))

    def write(
        self,
        target: Float32Array,
        offsets: IntArray,
        covariates: FloatArray,
        is_number: BoolArray,
        *,
        mean: bool,
    ) -> FloatArray:
        """Write the mean or the sum of the target, and the mean of numeric covariates.

        Args:
            target: rows of the series, (R,).
            offsets: bounds of each series' rows, (S+1,).
            covariates: (R', F).
            is_number: which covariates are not categories, (F,).
            mean: write the mean of the target, not the sum.

        Returns:
            The centers of the series, (S,).
        """
        for begin in range(0, len(target), BLOCK_ROWS):
            block = slice(begin, begin + BLOCK_ROWS)
            count = self.target_count[block]
            self.target[block] /= np.where(count > 0, count if mean else 1, np.nan)
        bounds = offsets[:-1]
        centers = _centers(*(f.reduceat(self.target, bounds) for f in (np.fmin, np.fmax)))
        for series, (begin, end) in enumerate(pairwise(offsets)):
            target[begin:end] = self.target[begin:end] - centers[series]
        for column in np.flatnonzero(is_number):
            count = self.covariate_count[:, column]
            divisor = np.where(count > 0, count, np.nan)
            covariates[:, column] = self.covariates[:, column] / divisor
        return centers


def _features(
    chunk: Chunk,
    names: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    columns: Columns,
) -> FloatArray:
    """Return numbers, and codes of categories, (N, F)."""
    values = np.empty((len(chunk.frame), len(names)))
    for number, name in enumerate(names):
        if name in columns.categorical:
            texts, codes = parse_texts(chunk.frame[name], name, category_text)
            known = pd.Index(categories[name]).get_indexer(pd.Index(texts, dtype=object))
            values[:, number] = np.array([*known, np.nan])[codes]
        else:
            values[:, number] = parse_numbers(chunk.frame, [name], Findings())[:, 0]
    return values


def _centers(low: FloatArray, high: FloatArray) -> FloatArray:
    """Return what to subtract so that float32, of 24 bits, tells the values of a series apart."""
    with np.errstate(invalid="ignore", over="ignore"):
        middle, half_range = (low + high) / 2, (high - low) / 2
        return np.where(half_range < np.abs(middle) / 16, middle, 0.0)


def _series(columns: Columns, id: str) -> str:
    """Name an id; in a wide table its first series stands for all."""
    return f"series {id if columns.id else columns.target[0]!r}"


def _off_grid(
    reader: Reader, chunk: Chunk, rows: Rows, position: IntArray, place: Placement
) -> Finding:
    row = int(np.argmax(position < 0))
    id = list(reader.ids)[rows.id[row]]
    return Finding(
        "error",
        "irregular step",
        f"{_series(reader.columns, id)}: the time {place.stamp(rows.time[row])} "
        f"({reader.row_name(chunk, rows.index[row])}) is not on the grid of freq={place.freq!r} "
        f"that starts at {place.begin}",
        "Correct the stamp, or give another dataset.freq.",
        int((position < 0).sum()),
    )


def _repeated(reader: Reader, rows: Rows, row: int, place: Placement) -> Finding:
    """Name the first two rows of this id and time; that takes another look at the table."""
    id, time = rows.id[row], rows.time[row]
    names = (
        reader.row_name(chunk, index)
        for chunk, them in reader.chunks()
        for index in them.index[(them.id == id) & (them.time == time)]
    )
    first, second = next(names), next(names)
    return Finding(
        "error",
        "duplicate rows",
        f"{_series(reader.columns, list(reader.ids)[id])} has the time {place.stamp(time)} twice, "
        f"in {first} and {second}",
        "Remove one. In a fit, dataset.duplicates=first, mean or sum says which value to use, and "
        "dataset.id_column names the column of the series ids.",
    )


def _tell_repeated(findings: Findings, duplicates: str, count: int) -> None:
    for finding in findings.of("error"):
        if finding.kind == "duplicate rows":
            finding.count = count
    if count and duplicates != "error":
        done = {"first": "the first is taken", "mean": "their mean is taken", "sum": "summed"}
        example = f"rows of the same series and time: {done[duplicates]} (dataset.duplicates)"
        findings.add(Finding("warning", "duplicate rows", example, "", count))


def _tell_missing(
    findings: Findings, found: Scan, names: Sequence[str], place: Placement, num_filled: IntArray
) -> None:
    """Tell gaps, empty cells, and series with no value or one value throughout."""
    gaps = place.lengths - num_filled
    gaps = gaps if place.regular else np.zeros_like(gaps)
    many = np.where(gaps > 9 * num_filled, gaps, 0)  # as of a stamp with the wrong year
    empty = found.count[:, None] - found.observed
    nothing = found.observed == 0
    constant = (found.low == found.high) & (found.observed > 1)
    peculiar: list[tuple[Level, str, IntArray, str, str]] = [
        (
            "warning",
            "mostly gaps",
            many,
            "no rows at {:,} steps, more than nine in ten",
            "They are filled in as missing. Check its first and last time, and dataset.freq.",
        ),
        ("note", "gaps", gaps - many, "no rows at {:,} steps", "They are filled in as missing."),
        ("note", "empty target", empty * ~nothing, "{:,} rows without a value", ""),
        ("warning", "no value at all", nothing, "no value", "Remove such series."),
        ("note", "constant series", constant, "one value only", "Its scale is taken as 1."),
    ]
    for level, kind, counts, text, remedy in peculiar:
        if counts.any():
            number = int(np.argmax(counts))
            name = names[number * (len(names) // counts.size)]
            several = int((counts > 0).sum())
            text = f"series {name!r}: {text.format(counts.ravel()[number])}"
            if several > 1:
                text += f"; so in {several:,} of {counts.size:,} series"
            count = int(counts.sum())
            findings.add(Finding(level, kind, text, remedy, count))
