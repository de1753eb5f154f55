"""Files of Parquet, whole or not there."""

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import pandas as pd
import pyarrow as pa
from pyarrow import parquet


def write_parquet(
    frame: pd.DataFrame | pa.Table, path: Path, metadata: Mapping[bytes, bytes] | None = None
) -> None:
    """Write a table, under a temporary name `.NAME-*` until it is on disk.

    Args:
        frame: any; the index of a pandas frame is left out.
        path: of the file; an existing one is replaced.
        metadata: further pairs for the footer.

    Raises:
        OSError: it cannot be written.
    """
    table = frame
    if isinstance(frame, pd.DataFrame):
        table = pa.Table.from_pandas(frame, preserve_index=False)
    if metadata:
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})
    partial = path.with_name(f".{path.name}-{uuid4().hex[:8]}")
    try:
        with partial.open("wb") as file:
            parquet.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
