"""Files that are whole, or not there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from uuid import uuid4

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from matplotlib.figure import Figure

# No space, no space for this user, and a file larger than is allowed.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_parquet(
    frame: pd.DataFrame | pa.Table, path: Path, metadata: Mapping[bytes, bytes] | None = None
) -> None:
    """Write a table; see `replacing`.

    Args:
        frame: any; the index of a pandas frame is left out.
        path: of the file; an existing one is replaced.
        metadata: further pairs for the footer.

    Raises:
        OSError: it cannot be written.
    """
    import pandas as pd  # here, as they take a second and most scripts write other files
    import pyarrow as pa
    from pyarrow import parquet

    table = frame
    if isinstance(frame, pd.DataFrame):
        table = pa.Table.from_pandas(frame, preserve_index=False)
    if metadata:
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), **metadata})
    with replacing(path) as file:
        parquet.write_table(table, file)


def write_atomically(path: Path, text: str) -> None:
    """Write a text; see `replacing`."""
    with replacing(path) as file:
        file.write(text.encode())


def write_picture(figure: Figure, path: Path) -> None:
    """Write a figure as PNG; see `replacing`."""
    with replacing(path) as file:
        figure.savefig(file, dpi=120, format="png")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, whose name is `.NAME-*` until it is on disk.

    Raises:
        OSError: it cannot be written, such as to a full disk; names the file.
    """
    partial = path.with_name(f".{path.name}-{uuid4().hex[:8]}")
    try:
        with naming_full_disk(path):
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """Name what could not be written to a full disk, since of writes the system names no file.

    Raises:
        OSError: the disk is full; libraries may raise something else that came of it.
    """
    try:
        yield
    except Exception as error:
        full = full_disk(error)
        if full is None or (full is error and full.filename):
            raise
        name = full.filename or str(path)
        raise OSError(full.errno, os.strerror(full.errno or 0), name) from error


def full_disk(error: BaseException | None) -> OSError | None:
    """Return the error of a full disk that an error is or came of, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in FULL:
            return error
        error = error.__cause__ or error.__context__
    return None
