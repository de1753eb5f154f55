"""Tables of other libraries as pandas frames."""

from typing import Any

import pandas as pd
import pyarrow as pa

from tsformer.errors import DataError


def as_pandas(table: Any) -> pd.DataFrame:
    """Return a table of any library as a pandas frame whose columns are named by text.

    A pandas frame is not copied. Others come through the Arrow C stream interface, so that their
    libraries need not be imported here; a lazy frame is computed.

    Args:
        table: pandas frame, Polars DataFrame or LazyFrame, pyarrow Table or RecordBatch, or any
            object with `__arrow_c_stream__`.

    Raises:
        DataError: it is none of these, cannot be converted, or has two columns of one name.
    """
    if isinstance(table, pd.DataFrame):
        frame = table
    else:
        # Polars and Narwhals name it so; a `collect` alone means other things elsewhere.
        if type(table).__name__ == "LazyFrame":
            table = table.collect()
        name = f"{type(table).__module__}.{type(table).__qualname__}"
        if not hasattr(table, "__arrow_c_stream__"):
            raise DataError(
                f"an object of type {name} is no table. Give a pandas frame, a Polars DataFrame "
                "or LazyFrame, a pyarrow Table, an object with __arrow_c_stream__, or the path of "
                "a file."
            )
        try:
            frame = arrow_to_pandas(pa.table(table))
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise DataError(f"an object of type {name} is no table ({error}).") from error
    if not all(isinstance(column, str) for column in frame.columns):
        frame = frame.set_axis([str(column) for column in frame.columns], axis=1)
    if not frame.columns.is_unique:
        double = frame.columns[frame.columns.duplicated()][0]
        raise DataError(f"the table has two columns {double!r}. Rename one.")
    return frame


def arrow_to_pandas(table: pa.Table) -> pd.DataFrame:
    """Return an Arrow table as a frame of plain types: decimals are float64, no categories."""
    for position, field in enumerate(table.schema):
        column = table.column(position)
        if pa.types.is_decimal(field.type):
            table = table.set_column(position, field.name, column.cast(pa.float64()))
        elif pa.types.is_dictionary(field.type):
            table = table.set_column(position, field.name, _decode(column))
    # The pandas metadata would turn columns into an index, where nobody looks for the times.
    return table.to_pandas(ignore_metadata=True, date_as_object=False)


def _decode(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow's own cast lacks Polars' string views, and its way to pandas loses time zones.
    type = column.type.value_type
    if pa.types.is_string_view(type):
        type = pa.large_string()
    chunks = [chunk.dictionary.cast(type).take(chunk.indices) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=type)
