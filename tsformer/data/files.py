"""Files, folders and patterns of files as pandas frames, some rows at a time."""

import csv
import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from tsformer.data.delimited import (
    COMPRESSIONS,
    Dialect,
    delimited_chunks,
    delimited_names,
    find_dialect,
)
from tsformer.data.frames import arrow_to_pandas, is_text
from tsformer.errors import DataError

_KINDS = {
    ".csv": "text",
    ".tsv": "text",
    ".txt": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "feather",
    ".arrow": "feather",
}
_LARGE_BATCH = 1 << 26  # bytes
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # how Hive, Spark and Arrow name the folder of None


def list_files(path: Path) -> list[Path]:
    """Return the files that a path stands for, in the order of their paths.

    Args:
        path: a file; a folder, of which all files count, also those in folders below, but not
            those that begin with a dot or an underscore; or a pattern such as `part-*.csv`.

    Raises:
        DataError: there are none, or they are not all of one known kind.
    """
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = _files_within(path)
        if not files:
            raise DataError(f"{path}: the folder holds no files.")
    else:
        files = match_files(path)
        if not files and glob.has_magic(str(path)):
            raise DataError(f"{path}: no file matches this pattern.")
        if not files and path.exists():  # such as <(zcat my.csv.gz)
            raise DataError(
                f"{path}: neither a file nor a folder, and a table is read more than once. Write "
                "it to a file."
            )
        if not files:
            raise DataError(f"{path}: there is no such file or folder.")
    for file in files:
        if _kind_of(file) != _kind_of(files[0]):
            pattern = root_of(path) / "**" / f"*{files[0].suffix}"
            raise DataError(
                f"{path}: {files[0].name} and {file.name} are of different kinds. Keep one kind, "
                f"or give a pattern that matches one, such as '{pattern}'."
            )
    return files


def match_files(pattern: Path) -> list[Path]:
    """Return the files that a pattern matches, in the order of their paths."""
    # Unlike Path.glob, this leaves out hidden files and takes any use of **.
    matches = glob.glob(str(pattern), recursive=True)  # noqa: PTH207
    return [path for path in map(Path, sorted(matches)) if _is_file(path)]


def _files_within(folder: Path) -> list[Path]:
    """Return the files in a folder and those below, also through links, by their paths."""

    def refuse(error: OSError) -> None:
        raise DataError(f"{folder}: cannot be read ({error}).") from error

    files: list[Path] = []
    seen: set[str] = set()
    for below, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(below)
        if real in seen:  # links may lead to where the rows are read already, or to a folder above
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        files += [Path(below, name) for name in names if not name.startswith((".", "_"))]
    return [file for file in sorted(files) if _is_file(file)]


def _is_file(path: Path) -> bool:
    """Tell whether a path counts: a link to nowhere does, or else its rows would be missed."""
    return path.is_file() or (path.is_symlink() and not path.exists())


class Layout(NamedTuple):
    """What is known of a file before its rows are read.

    Attributes:
        file: its path.
        names: of the columns it holds.
        folders: values of the columns that names of folders hold, by column.
        dialect: of a file of text.
    """

    file: Path
    names: list[str]
    folders: dict[str, str | None]
    dialect: Dialect | None

    @property
    def all_names(self) -> list[str]:
        """Of all columns."""
        return [*self.names, *self.folders]


def find_layout(path: Path, file: Path) -> Layout:
    """Return what columns a file has, and how it is written.

    Args:
        path: what `list_files` was given.
        file: one of the files that it returned.

    Raises:
        DataError: the file cannot be read, or two of its columns have one name.
    """
    dialect = None
    with _naming(file):
        match _kind_of(file):
            case "text":
                dialect = find_dialect(file)
                names = delimited_names(file, dialect)
            case "parquet":
                names = _without_index(parquet.read_schema(file))
            case _:
                with pa.memory_map(str(file)) as source:
                    names = _without_index(pa.ipc.open_file(source).schema)
    index = pd.Index(names)
    if not index.is_unique:
        double = index[index.duplicated()][0]
        raise DataError(f"{file}: the table has two columns {double!r}. Rename one.")
    folders = _folder_columns(path, file)
    return Layout(file, names, {k: v for k, v in folders.items() if k not in names}, dialect)


def file_chunks(
    layout: Layout,
    names: list[str],
    text: Collection[str],
    values: int,
    span: tuple[int, int] | None = None,
) -> Iterator[pd.DataFrame]:
    """Read a file some rows at a time.

    Args:
        layout: of the file.
        names: columns to return, in their order; those of folders' names are text.
        text: columns that are read from text as text, so that the id 007 stays 007; of other
            files they become categories if they are text.
        values: of a frame, at most, see `chunk_rows`.
        span: first row to read, and the one after the last; of Parquet files alone. None: all.

    Raises:
        DataError: the file cannot be read.
    """
    added = {k: name for k, name in enumerate(names) if name in layout.folders}
    own = [name for name in names if name not in layout.folders]
    with _naming(layout.file):
        if layout.dialect:
            rows = chunk_rows(values, len(layout.names))  # all columns are parsed
            frames = delimited_chunks(layout.file, layout.dialect, own, text, rows)
        else:
            rows = chunk_rows(values, len(own))
            if _kind_of(layout.file) == "parquet":
                batches = _parquet_batches(layout.file, own, text, rows, span)
            else:
                batches = _feather_batches(layout.file, own)
            frames = (arrow_to_pandas(table, text) for table in regroup(batches, rows))
        for frame in frames:
            for position, name in added.items():
                value = _constant(layout.folders[name], frame.index, name in text)
                frame.insert(position, name, value)
            yield frame


def chunk_rows(values: int, num_columns: int) -> int:
    """Return how many rows hold so many values; a few columns count as four."""
    return max(values // max(num_columns, 4), 1)


def _parquet_batches(
    file: Path,
    names: list[str],
    text: Collection[str],
    rows: int,
    span: tuple[int, int] | None,
) -> Iterator[pa.RecordBatch]:
    # Buffered, since otherwise whole row groups are read, which may hold the whole table; the
    # buffers are small, as each column has one.
    options = {"pre_buffer": False, "buffer_size": 1 << 16}
    schema = parquet.read_schema(file)
    encoded = [name for name in names if name in text and is_text(schema.field(name).type)]
    with parquet.ParquetFile(file, read_dictionary=encoded, **options) as reader:
        groups, before, wanted = _row_groups(reader.metadata, span)
        for batch in reader.iter_batches(rows, row_groups=groups, columns=names):
            skipped = min(before, batch.num_rows)
            batch = batch.slice(skipped, wanted).select(names)
            before, wanted = before - skipped, wanted - batch.num_rows
            yield batch


def _row_groups(
    metadata: parquet.FileMetaData, span: tuple[int, int] | None
) -> tuple[list[int], int, int]:
    """Return the row groups that hold a span, the rows to skip in the first, those to read."""
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    begin, end = span or (0, sum(sizes))
    ends = np.cumsum(sizes)
    groups = np.flatnonzero((ends > begin) & (ends - sizes < end)).tolist()
    before = begin - (int(ends[groups[0]]) - sizes[groups[0]]) if groups else 0
    return groups, before, end - begin


def _feather_batches(file: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(file)) as source:
        reader = pa.ipc.open_file(source)
        # To leave columns out, Arrow copies a batch; a large one, which may be the whole table, is
        # better used where it lies in the file, which takes no memory if it is not compressed.
        if source.size() < _LARGE_BATCH * reader.num_record_batches:
            fields = [reader.schema.get_field_index(name) for name in names]
            # No fields would mean all.
            options = pa.ipc.IpcReadOptions(included_fields=fields or [0])
            reader = pa.ipc.open_file(source, options=options)
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(names)


def regroup(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Cut batches and put them together to tables of so many rows; the last one has the rest."""
    waiting: list[pa.RecordBatch] = []
    missing = rows
    for batch in batches:
        while batch.num_rows:
            waiting.append(batch.slice(0, missing))
            missing -= waiting[-1].num_rows
            batch = batch.slice(waiting[-1].num_rows)
            if not missing:
                yield pa.Table.from_batches(waiting)
                waiting, missing = [], rows
    if waiting:
        yield pa.Table.from_batches(waiting)


def _constant(value: str | None, index: pd.Index, encoded: bool) -> pd.Series:
    if not encoded:
        return pd.Series(value, index=index, dtype=str)
    codes = np.full(len(index), -1 if value is None else 0)
    return pd.Series(pd.Categorical.from_codes(codes, [value or ""]), index=index)


def _without_index(schema: pa.Schema) -> list[str]:
    # pandas writes a nameless index, which is row numbers, under such a name.
    return [name for name in schema.names if not re.match(r"__index_level_\d+__$", name)]


def _folder_columns(path: Path, file: Path) -> dict[str, str | None]:
    """Return the columns that names of folders hold, as in `shop=7/part-0.parquet`."""
    folders = file.relative_to(root_of(path)).parts[:-1]
    pairs = [folder.split("=", maxsplit=1) for folder in folders if "=" in folder]
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, value in pairs}


def root_of(path: Path) -> Path:
    """Return the folder itself, the folder of the file, or the one that the pattern starts in."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def is_parquet(file: Path) -> bool:
    """Tell whether a file is one of those of which a span of rows can be read."""
    return _kind_of(file) == "parquet"


def _kind_of(file: Path) -> str:
    ending = file.suffix.lower()
    compressed = ending in COMPRESSIONS
    kind = _KINDS.get(Path(file.stem).suffix.lower() if compressed else ending)
    if kind is None or (compressed and kind != "text"):
        raise DataError(
            f"{file}: tables of this ending are not read. Give a file that ends in "
            f"{', '.join(_KINDS)}; text may be compressed, as .csv.gz or .csv.zst."
        )
    return kind


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    try:
        yield
    # ValueErrors are pandas' and Unicode's too.
    except (ValueError, OSError, csv.Error, pa.ArrowException) as error:
        raise DataError(f"{file}: cannot be read as a table ({str(error).strip()}).") from error
