"""Tables of other libraries as pandas frames, whole or some rows at a time."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa

from tsformer.errors import DataError

# A frame of pandas or Polars, or a table of Arrow.
Table: TypeAlias = Any


def as_table(table: Any) -> Table:
    """Return a table of any library as one of pandas, Polars or Arrow, columns named by text.

    No values are copied, unless a library does so when it gives them to Arrow by the C stream
    interface; so the libraries need not be imported here. A lazy frame is computed.

    Args:
        table: pandas frame, Polars DataFrame or LazyFrame, pyarrow Table or RecordBatch, or any
            object with `__arrow_c_stream__`.

    Raises:
        DataError: it is none of these, or has two columns of one name.
    """
    # Polars and Narwhals name it so; a `collect` alone means other things elsewhere.
    if type(table).__name__ == "LazyFrame":
        table = table.collect()
    if isinstance(table, pd.DataFrame):
        if not all(isinstance(column, str) for column in table.columns):
            table = table.copy(deep=False)
            table.columns = [str(column) for column in table.columns]
    elif not _is_polars(table):
        name = f"{type(table).__module__}.{type(table).__qualname__}"
        if not hasattr(table, "__arrow_c_stream__"):
            raise DataError(
                f"an object of type {name} is not a table. Give a pandas frame, a Polars DataFrame "
                "or LazyFrame, a pyarrow Table, an object with __arrow_c_stream__, or the path of "
                "a file."
            )
        with _naming(f"an object of type {name} is not a table"):
            table = pa.table(table)
    names = pd.Index(column_names(table))
    if not names.is_unique:
        raise DataError(f"the table has two columns {names[names.duplicated()][0]!r}. Rename one.")
    return table


def column_names(table: Table) -> list[str]:
    """Return the names of what `as_table` returned."""
    return table.column_names if isinstance(table, pa.Table) else list(table.columns)


def as_pandas(table: Any) -> pd.DataFrame:
    """Return a table of any library as a pandas frame, which is not copied if it is one.

    Raises:
        DataError: see `as_table`; or a column cannot be converted.
    """
    table = as_table(table)
    return table if isinstance(table, pd.DataFrame) else _convert(table, column_names(table))


def table_chunks(
    table: Table, names: list[str], rows: int, encoded: Collection[str] = ()
) -> Iterator[pd.DataFrame]:
    """Yield columns of a table so many rows at a time; nothing else of it is converted.

    Args:
        table: what `as_table` returned.
        names: columns to return, in their order.
        rows: of a frame, at most.
        encoded: see `arrow_to_pandas`.

    Raises:
        DataError: a column cannot be converted.
    """
    for first in range(0, len(table), rows):
        if isinstance(table, pd.DataFrame):
            yield table.iloc[first : first + rows][names]  # only then: this may copy
        else:
            yield _convert(table.slice(first, rows), names, encoded)


def _convert(table: Table, names: list[str], encoded: Collection[str] = ()) -> pd.DataFrame:
    with _naming("the table cannot be converted to pandas"):
        return arrow_to_pandas(pa.table(table).select(names), encoded)


def arrow_to_pandas(table: pa.Table, encoded: Collection[str] = ()) -> pd.DataFrame:
    """Return an Arrow table as a frame of plain types: decimals are float64, no categories.

    Args:
        table: any.
        encoded: columns that become categories if they hold text, which is quicker to convert
            and to factorize; not every category need occur.
    """
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_decimal(field.type):
            column = column.cast(pa.float64())
        elif field.name in encoded:
            column = _encode(column)
        elif pa.types.is_dictionary(field.type):
            column = _decode(column)
        if column.type != field.type:
            table = table.set_column(position, field.name, column)
    # The pandas metadata would turn columns into an index, where nobody looks for the times.
    return table.to_pandas(ignore_metadata=True, date_as_object=False)


def _encode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of texts with the dictionary that pandas takes as categories."""
    if pa.types.is_dictionary(column.type):
        if is_text(column.type.value_type):
            column = column.unify_dictionaries()
            if all(_is_distinct(chunk.dictionary) for chunk in column.chunks[:1]):
                return column
        column = _decode(column)
    if pa.types.is_string_view(column.type):
        chunks = [_without_views(chunk) for chunk in column.chunks]
        column = pa.chunked_array(chunks, type=pa.large_string())
    return column.dictionary_encode() if is_text(column.type) else column


def _decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow's own cast lacks Polars' string views, and its way to pandas loses time zones.
    type = column.type.value_type
    if pa.types.is_string_view(type):
        type = pa.large_string()
    chunks = [_without_views(chunk.dictionary).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=type)


def _without_views(values: pa.Array) -> pa.Array:
    """Return values with Polars' string views, which Arrow can do little with, as plain strings."""
    if not pa.types.is_string_view(values.type):
        return values
    try:
        return values.cast(pa.large_string())
    except pa.ArrowNotImplementedError:  # older versions of Arrow
        return pa.array(values.to_pylist(), pa.large_string())


def is_text(type: pa.DataType) -> bool:
    """Tell whether values of a type are text that pandas can take as categories."""
    return pa.types.is_string(type) or pa.types.is_large_string(type)


def _is_distinct(values: pa.Array) -> bool:
    return values.null_count == 0 and len(values.unique()) == len(values)


def _is_polars(table: Any) -> bool:
    return type(table).__module__.startswith("polars.") and type(table).__name__ == "DataFrame"


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise DataError(f"{what} ({error}).") from error
