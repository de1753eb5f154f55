"""Bringing the rows of each series together: a table in any order becomes files of whole series."""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from tsformer.data.files import chunk_rows, regroup
from tsformer.data.frames import arrow_to_pandas
from tsformer.data.parsing import parse_ids
from tsformer.data.sources import CHUNK_VALUES, Chunk, Source, decoded
from tsformer.data.types import IntArray
from tsformer.errors import DataError

Hashes: TypeAlias = NDArray[np.uint64]
NO_ID = np.uint64(0)  # the hash of rows without an id
_MOST_BYTES = 1 << 27  # that wait in memory to be written


def hash_ids(column: pd.Series, name: str) -> tuple[Hashes, IntArray]:
    """Return the hashes of the distinct ids, and the number of each row's, (R,).

    The last hash is that of rows without an id, which have the number -1. An id has the same hash
    everywhere and always, be it a number or text.
    """
    texts, codes = parse_ids(column, name)
    hashes = pd.util.hash_array(np.array([*texts, ""], dtype=object), categorize=False)
    hashes[-1] = NO_ID
    return hashes, codes


def gather(
    source: Source,
    names: Collection[str],
    id: str,
    part_of: Callable[[Hashes], IntArray],
    file_of: Callable[[int], Path],
) -> None:
    """Write the rows of a table to a file for each part, in their order, a few at a time.

    Args:
        source: the table.
        names: columns to write.
        id: column of the series' ids.
        part_of: from hashes of ids to numbers of parts, -1 where rows shall be left out.
        file_of: from the number of a part to the file that its rows are added to.

    Raises:
        DataError: the table cannot be read.
        OSError: a file cannot be written.
    """
    waiting: dict[int, list[pa.Table]] = {}
    num_bytes = 0
    for chunk in source.chunks(names):
        hashes, codes = hash_ids(chunk.frame[id], id)
        part = part_of(hashes)[codes]
        order = np.argsort(part, kind="stable")
        table = pa.Table.from_pandas(decoded(chunk.frame), preserve_index=False).take(order)
        parts, first = np.unique(part[order], return_index=True)
        for number, begin, end in zip(parts, first, [*first[1:], len(order)], strict=True):
            if number >= 0:
                rows = table.slice(int(begin), int(end - begin))
                waiting.setdefault(int(number), []).append(rows)
        num_bytes += table.nbytes
        if num_bytes > _MOST_BYTES:
            _write(waiting, file_of)
            waiting, num_bytes = {}, 0
    _write(waiting, file_of)


def open_gathered(file: Path, text_columns: Collection[str] = ()) -> Source:
    """Return the rows that `gather` wrote to a file.

    Raises:
        DataError: the file is missing or damaged.
    """
    text = {"unique_id", *text_columns}

    def read(names: list[str]) -> Iterator[Chunk]:
        first_row = 0
        rows = chunk_rows(CHUNK_VALUES, len(names))
        batches = (batch.select(names) for batch in _batches(file))
        # The type of a column may differ from piece to piece, as in the file it came from.
        for _, alike in groupby(batches, key=lambda batch: batch.schema):
            for table in regroup(alike, rows):
                frame = arrow_to_pandas(table, text)
                yield Chunk(frame, None, first_row)
                first_row += len(frame)

    return Source(next(_batches(file)).schema.names, [], read, CHUNK_VALUES)


def _write(waiting: Mapping[int, list[pa.Table]], file_of: Callable[[int], Path]) -> None:
    for number, tables in waiting.items():
        # Streams one after the other: none has to stay open, however many parts there are.
        with file_of(number).open("ab") as file:
            for table in tables:
                with pa.ipc.new_stream(file, table.schema) as writer:
                    writer.write_table(table)


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    try:
        with pa.memory_map(str(file)) as source:
            while source.tell() < source.size():
                yield from pa.ipc.open_stream(source)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"{file}: the rows gathered there are missing or damaged ({error}). Start anew with "
            "resume=false."
        ) from error
