"""Any table - a frame, a file, a folder, a pattern of files - read some rows at a time."""

import functools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from tsformer.data.files import chunk_rows, file_chunks, find_layout, list_files, root_of
from tsformer.data.frames import as_pandas, as_table, column_names, table_chunks
from tsformer.errors import DataError
from tsformer.places import expand

# Values of a chunk, at most: a million rows of four columns.
CHUNK_VALUES = 1 << 22


class Chunk(NamedTuple):
    """Some rows of a table.

    Attributes:
        frame: the columns asked for, with an index from 0; a column of ids may be categories, of
            which not all need occur.
        file: that the rows are in; None in memory.
        first_row: number of the first one within its file, or within the table in memory.
    """

    frame: pd.DataFrame
    file: Path | None
    first_row: int


class Span(NamedTuple):
    """Rows of a file.

    Attributes:
        file: that the rows are in.
        rows: the first one, and the one after the last; of Parquet files alone. None: all.
    """

    file: Path
    rows: tuple[int, int] | None = None


@dataclass
class Source:
    """A table that can be read again and again, in chunks and always in the same order.

    A table that fits into one chunk is kept once it has been read.

    Attributes:
        names: of all columns, also those that folders' names hold, as in `shop=7/part-0.parquet`.
        files: that hold the table; none in memory.
        read: yields the chunks, given columns in the order of `names`.
        chunk_values: rows times columns of a chunk, at most.
        root: folder that all files are in; None in memory.
    """

    names: list[str]
    files: list[Path]
    read: Callable[[list[str]], Iterator[Chunk]]
    chunk_values: int
    root: Path | None = None
    _kept: tuple[list[str], list[Chunk]] | None = None

    def chunks(self, names: Collection[str]) -> Iterator[Chunk]:
        """Yield all rows of the named columns, which come in the order of the table.

        Raises:
            DataError: a file cannot be read, files have different columns, or there are no rows.
        """
        asked = set(names)
        if unknown := asked - set(self.names):
            raise DataError(f"no column {min(unknown)!r} in the table; it has {self.names}.")
        wanted = [name for name in self.names if name in asked]
        if self._kept is None or not asked <= set(self._kept[0]):
            yield from self._read_keeping(wanted)
        else:
            for chunk in self._kept[1]:
                yield chunk._replace(frame=chunk.frame[wanted])

    def _read_keeping(self, names: list[str]) -> Iterator[Chunk]:
        kept: list[Chunk] | None = []
        values = 0
        for chunk in self.read(names):
            values += chunk.frame.size
            if kept is not None and values <= self.chunk_values:
                kept.append(chunk)
                chunk = chunk._replace(frame=chunk.frame.copy())  # which may be changed
            else:
                kept = None
            yield chunk
        if kept is not None:
            self._kept = names, kept


def open_source(
    source: Any, text_columns: Collection[str] = (), *, chunk_values: int = CHUNK_VALUES
) -> Source:
    """Return any table as one that can be read in chunks; no rows are read yet.

    Args:
        source: a table as `as_table` takes it; or a path, as text or Path: of a file, of a folder
            of files of one kind, where `shop=7` in the name of a folder is a column too, or a
            pattern such as `data/part-*.parquet`. A `Source` is returned as it is.
        text_columns: columns that are read from text as text, so that the id 007 stays 007, as
            the column `unique_id` always is.
        chunk_values: rows times columns of a chunk, at most, where few columns count as four.

    Raises:
        DataError: there is no such file, it cannot be read, or `source` is no table.
    """
    if isinstance(source, Source):
        return source
    text = {"unique_id", *text_columns}
    if isinstance(source, str) and not source:
        raise DataError("an empty path names no file. Give the path of a file or a folder.")
    if _is_path(source):
        path = expand(source)
        return _open_files(path, [Span(file) for file in list_files(path)], text, chunk_values)
    return _open_table(source, text, chunk_values)


def open_spans(path: Path, spans: Sequence[Span], text_columns: Collection[str] = ()) -> Source:
    """Return some rows of the files that a path stands for.

    Args:
        path: what `list_files` was given.
        spans: rows of some of the files that it returned, in the order to read them.
        text_columns: see `open_source`.

    Raises:
        DataError: see `open_source`.
    """
    return _open_files(path, spans, {"unique_id", *text_columns}, CHUNK_VALUES)


def read_frame(source: Any, text_columns: Collection[str] = ()) -> pd.DataFrame:
    """Read a small table at once; the arguments are those of `open_source`.

    Raises:
        DataError: the table is missing, cannot be read or has no rows.
    """
    if not _is_path(source) and not isinstance(source, Source):
        frame = as_pandas(source)
        if not len(frame):
            raise DataError("the table has no rows.")
        return frame
    opened = open_source(source, text_columns)
    frames = [chunk.frame for chunk in opened.chunks(opened.names)]
    return decoded(frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True))


@contextmanager
def errors_naming(source: Any) -> Iterator[None]:
    """Put the path of a table, or another name for it, before the message of a DataError."""
    try:
        yield
    except DataError as error:
        if _is_path(source) and not str(error).startswith(str(source)):
            raise DataError(f"{source}: {error}") from error
        raise


def _open_files(path: Path, spans: Sequence[Span], text: set[str], chunk_values: int) -> Source:
    files = [span.file for span in spans]
    layout_of = functools.cache(functools.partial(find_layout, path))
    before = {file: _state(file) for file in files}
    all_names = layout_of(files[0]).all_names

    def read(names: list[str]) -> Iterator[Chunk]:
        empty = True
        for file, rows in spans:
            layout = layout_of(file)
            if differing := sorted(set(layout.all_names) ^ set(all_names)):
                raise DataError(
                    f"{path}: the files differ in their columns: only one of {files[0]} and {file} "
                    f"has {', '.join(map(repr, differing))}."
                )
            first_row = rows[0] if rows else 0
            for frame in file_chunks(layout, names, text, chunk_values, rows):
                if len(frame):  # pandas gives a frame of a file without rows too
                    empty = False
                    yield _chunk(frame, file, first_row)
                    first_row += len(frame)
            if _state(file) != before[file]:  # since the table was opened: it is read twice
                raise DataError(
                    f"{file}: changed while it was being read. Run the same again when nothing "
                    "writes to it."
                )
        if empty:
            raise DataError(f"{path}: the table has no rows.")

    return Source(all_names, files, read, chunk_values, root_of(path))


def _state(file: Path) -> tuple[int, int] | None:
    """Return a file's size and time, which change with what it holds; None if it is gone."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _open_table(source: Any, text: set[str], chunk_values: int) -> Source:
    table = as_table(source)

    def read(names: list[str]) -> Iterator[Chunk]:
        if not len(table):
            raise DataError("the table has no rows.")
        rows = chunk_rows(chunk_values, len(names))
        for number, frame in enumerate(table_chunks(table, names, rows, text)):
            yield _chunk(frame, None, number * rows)

    return Source(column_names(table), [], read, chunk_values)


def _chunk(frame: pd.DataFrame, file: Path | None, first_row: int) -> Chunk:
    frame.index = pd.RangeIndex(len(frame))
    return Chunk(frame, file, first_row)


def decoded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame without categories."""
    encoded = frame.select_dtypes("category")
    return frame.astype({name: encoded[name].cat.categories.dtype for name in encoded})


def _is_path(source: Any) -> bool:
    return isinstance(source, (str, os.PathLike))
