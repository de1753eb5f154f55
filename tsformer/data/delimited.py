"""CSV files and their relatives: delimiter, encoding and decimal sign are found out."""

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import pandas as pd
import pyarrow as pa

from tsformer.data.decimals import Decimals
from tsformer.errors import DataError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
# Of two that are equally frequent in a header, the first: commas stand in names, tabs do not.
_DELIMITERS = ("\t", ";", ",")
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_BLOCK = 1 << 20  # bytes that are looked at together
# What pandas takes as missing by default.
_MISSING = [
    *("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
]
_FIRST_ROWS = 100  # of a file, that show whether it has decimal commas
_EXCESS = ""  # name of a column after the last; no other is called so


class Dialect(NamedTuple):
    """How a delimited file is written.

    Attributes:
        delimiter: between the fields of a row.
        encoding: of the text, as Python names it.
        may_have_decimal_commas: fields may hold commas, and the delimiter is a semicolon.
    """

    delimiter: str
    encoding: str
    may_have_decimal_commas: bool


def find_dialect(path: Path) -> Dialect:
    """Find out how a file is written; all of it is looked at, a block at a time.

    It is UTF-16 if it begins with a byte order mark that says so, else UTF-8, with or without one,
    or else Latin-1.

    Raises:
        OSError: it cannot be opened or decompressed.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_utf_8, has_commas = True, False
    with _open(path) as stream:
        start = block = stream.read(_BLOCK)
        while block:
            has_commas = has_commas or b"," in block
            is_utf_8 = is_utf_8 and _decodes(decoder, block)
            block = stream.read(_BLOCK)
    is_utf_8 = is_utf_8 and _decodes(decoder, b"", final=True)
    encoding = _MARKS.get(start[:2]) or ("utf-8-sig" if is_utf_8 else "latin-1")
    text = start.decode(encoding, errors="replace").lstrip("\r\n")
    header = re.sub(r'"[^"]*"', "", text).split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=header.count)
    return Dialect(delimiter, encoding, delimiter == ";" and has_commas)


def delimited_names(path: Path, dialect: Dialect) -> list[str]:
    """Return the column names of a delimited file.

    Raises:
        DataError: the first row is longer than the header.
        ValueError: there is no header.
        OSError: the file cannot be opened or decompressed.
    """
    with _open_text(path, dialect) as stream:
        rows = csv.reader(stream, delimiter=dialect.delimiter)
        names = _read_header(rows)
        first: list[str] = []
        with contextlib.suppress(csv.Error):  # a text too long for this reader, not for pandas
            first = next(filter(None, rows), first)
    if len(first) > len(names):
        raise DataError(
            f"{path}: its rows have more fields than its header. Name every column in the header, "
            "and remove delimiters at the ends of rows."
        )
    return _without_index(names)


def delimited_chunks(
    path: Path, dialect: Dialect, needed: list[str], text: Collection[str], rows: int
) -> Iterator[pd.DataFrame]:
    """Read a delimited file so many rows at a time.

    The type of a column is found out in each chunk anew.

    Args:
        path: the file, plain or compressed.
        dialect: what `find_dialect` found.
        needed: columns to return, in their order.
        text: columns that are text whatever they look like, if they are there.
        rows: of a frame, at most.

    Raises:
        DataError: a row has more fields than the header, or it is not clear whether commas or
            points in numbers are decimal; this may show only at the end of the file.
        ValueError: pandas cannot parse it.
        OSError: it cannot be opened or decompressed.
    """
    if not dialect.may_have_decimal_commas:
        yield from _parse(path, dialect, needed, text, rows)
        return
    # All columns show what a comma means. Only texts do, but once it is known they are slow.
    names = delimited_names(path, dialect)
    decimals = Decimals(path, text, needed)
    for frame in _parse(path, dialect, names, text, _FIRST_ROWS, dtype=str):
        decimals.convert(frame)
        break
    options: dict[str, Any] = {"decimal": ","} if decimals.certain else {"dtype": str}
    for frame in _parse(path, dialect, names, text, rows, **options):
        yield decimals.convert(frame)
    decimals.refuse_thousands()


def _parse(
    path: Path,
    dialect: Dialect,
    needed: list[str],
    text: Collection[str],
    rows: int,
    **options: Any,
) -> Iterator[pd.DataFrame]:
    """Yield the needed columns, so many rows at a time; refuse rows longer than the header."""
    with _open_text(path, dialect) as stream:
        header = csv.reader(stream, delimiter=dialect.delimiter)
        names = _read_header(header)
        numbers = [name for name in names if name not in text]
        options = {
            "sep": dialect.delimiter,
            "header": None,
            # All columns and one more: pandas lets rows with too many fields pass where it reads
            # some columns alone, and pandas 2 where a chunk begins.
            "names": [*names, _EXCESS],
            # As categories, texts such as 007 would be taken for numbers by pandas 3.
            "dtype": dict.fromkeys(text, str),
            "keep_default_na": False,  # the id NA may be Namibia
            "na_values": dict.fromkeys(numbers, _MISSING) | {_EXCESS: [""]},
            "chunksize": rows,
            "low_memory": False,  # piece by piece, a column's type could change within a chunk
        } | options
        first_row = 0
        try:
            for frame in pd.read_csv(stream, **options):
                excess = frame[_EXCESS].notna().to_numpy()
                if excess.any():
                    raise _long_row(path, f"row {first_row + int(excess.argmax())}")
                first_row += len(frame)
                yield frame[needed]
        except pd.errors.ParserError as error:
            long = re.search(r"fields in line (\d+)", str(error))
            if long is None:
                raise
            raise _long_row(path, f"line {int(long[1]) + header.line_num}") from error


def _read_header(rows: Iterator[list[str]]) -> list[str]:
    """Return the names in the first row that is not blank; nameless columns get pandas' names."""
    header = next((row for row in rows if len(row) > 1 or "".join(row).strip()), None)
    if header is None:
        raise ValueError("there is no header")
    taken = set(header)  # a file saved with row numbers twice has such a name already
    nameless = (f"Unnamed: {position}" for position in range(len(header)))
    defaults = [f"{name}.1" if name in taken else name for name in nameless]
    return [name or default for name, default in zip(header, defaults, strict=True)]


def _without_index(names: list[str]) -> list[str]:
    """Leave out a first column without a name: row numbers, which `DataFrame.to_csv` writes."""
    return names[1:] if names[0] in ("Unnamed: 0", "Unnamed: 0.1") else names


def _long_row(path: Path, place: str) -> DataError:
    return DataError(
        f"{path}: {place} has more fields than the header. Remove what is too much, or put quotes "
        "around text that holds a delimiter."
    )


def _open(path: Path) -> IO[bytes]:
    codec = COMPRESSIONS.get(path.suffix.lower())
    # Arrow's codecs, since pandas needs a further package for zstd.
    return pa.input_stream(str(path), compression=codec) if codec else path.open("rb")


def _open_text(path: Path, dialect: Dialect) -> io.TextIOWrapper:
    return io.TextIOWrapper(_open(path), encoding=dialect.encoding, newline="")


def _decodes(decoder: codecs.IncrementalDecoder, block: bytes, final: bool = False) -> bool:
    try:
        pending, _ = decoder.getstate()
        if pending or not block.isascii():
            decoder.decode(block, final)
    except UnicodeDecodeError:
        return False
    return True
