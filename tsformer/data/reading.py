"""Any table - a frame, a file, a folder, a pattern of files - as a SeriesTable."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from tsformer.data.columns import Columns, find_columns
from tsformer.data.files import column_names, list_files, read_files
from tsformer.data.frames import as_pandas
from tsformer.data.table import SeriesTable, build_table
from tsformer.errors import DataError

# A table as `as_pandas` takes it; or a path, as text or Path: of a file, of a folder of files of
# one kind, where `shop=7` in the name of a folder is a column too, or a pattern such as
# `data/part-*.parquet`.
Source = Any


def read_table(
    source: Source,
    *,
    id: str | None = None,
    time: str | None = None,
    target: Sequence[str] | None = None,
    past_covariates: Sequence[str] = (),
    future_covariates: Sequence[str] = (),
    freq: str | None = None,
    regular: bool = True,
) -> tuple[SeriesTable, Columns]:
    """Read and validate a table of series.

    Args:
        source: the table or its path, see `Source`.
        id: column of the series' ids; see `find_columns` for what is found when it and the
            following are not given.
        time: column of the time stamps.
        target: columns to forecast.
        past_covariates: columns known up to now.
        future_covariates: columns known over the horizon too.
        freq: step between rows, a pandas offset alias; inferred when None.
        regular: see `build_table`.

    Returns:
        The table, and the parts of its columns.

    Raises:
        DataError: there is no such file, or its content cannot be used; names the path.
    """

    def choose(names: list[str]) -> Columns:
        return find_columns(
            names,
            id=id,
            time=time,
            target=target,
            past_covariates=past_covariates,
            future_covariates=future_covariates,
        )

    frame, columns = read_columns(source, choose)
    with errors_naming(source):
        return build_table(frame, columns, freq=freq, regular=regular), columns


def read_columns(
    source: Source, choose: Callable[[list[str]], Columns]
) -> tuple[pd.DataFrame, Columns]:
    """Read what is needed of a table, and no more where its files allow that.

    Args:
        source: the table or its path, see `Source`.
        choose: returns the parts of the columns, given the names of all.

    Returns:
        A frame that has at least these columns, and what `choose` returned.

    Raises:
        DataError: the table is missing, cannot be read or has no rows; or `choose` refuses it.
    """
    if not _is_path(source):
        frame = read_frame(source)
        return frame, choose(list(frame))
    path = Path(source).expanduser()
    files = list_files(path)
    names = column_names(path, files[0])
    with errors_naming(source):
        columns = choose(names)
    return read_files(path, files, columns.names, columns.id), columns


def read_frame(source: Source, id_column: str | None = None) -> pd.DataFrame:
    """Read all columns of a table.

    Args:
        source: the table or its path, see `Source`.
        id_column: column of a text file that is read as text, as `unique_id` always is.

    Raises:
        DataError: the table is missing, cannot be read or has no rows.
    """
    if _is_path(source):
        path = Path(source).expanduser()
        return read_files(path, list_files(path), id_column=id_column)
    frame = as_pandas(source)
    if not len(frame):
        raise DataError("the table has no rows.")
    return frame


@contextmanager
def errors_naming(source: Source) -> Iterator[None]:
    """Put the path of a table, or another name for it, before the message of a DataError."""
    try:
        yield
    except DataError as error:
        if _is_path(source):
            raise DataError(f"{source}: {error}") from error
        raise


def _is_path(source: Source) -> bool:
    return isinstance(source, (str, os.PathLike))
