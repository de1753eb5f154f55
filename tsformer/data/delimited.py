"""CSV files and their relatives: delimiter, encoding and decimal sign are found out."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from tsformer.errors import DataError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
# Of two that are equally frequent in a header, the first: commas stand in names, tabs do not.
_DELIMITERS = ("\t", ";", ",")
# What pandas takes as missing by default.
_MISSING = [
    *("", "NA", "N/A", "n/a", "#NA", "#N/A", "#N/A N/A", "<NA>", "NULL", "null", "None"),
    *("NaN", "nan", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
]
_COMMA_NUMBER = r"\s*[+-]?\d*(,\d+)?([eE][+-]?\d+)?\s*"
_THOUSANDS = r"\s*[+-]?[1-9]\d{0,2},\d{3}\s*"


def delimited_names(path: Path) -> list[str]:
    """Return the column names of a delimited file.

    Raises:
        ValueError: pandas cannot parse it.
        OSError: it cannot be opened or decompressed.
    """
    delimiter = _find_delimiter(path)
    # pandas would rename the second of two equal names.
    header = _parse(path, delimiter, header=None, nrows=1, dtype=str).iloc[0].dropna()
    if header.duplicated().any():
        double = header[header.duplicated()].iloc[0]
        raise DataError(f"{path}: the table has two columns {double!r}. Rename one.")
    return _without_index(list(_parse(path, delimiter, nrows=0)))


def read_delimited(
    path: Path, needed: Collection[str] | None = None, text: Collection[str] = ()
) -> tuple[pd.DataFrame, list[str]]:
    """Read a delimited file: UTF-8, with or without byte order mark, or else Latin-1.

    A file with semicolons may have decimal commas.

    Args:
        path: the file, plain or compressed.
        needed: columns to return if they are there; None returns all.
        text: columns that are text whatever they look like, if they are there.

    Returns:
        The needed columns, and the names of all.

    Raises:
        DataError: rows have more fields than the header, or it is not clear whether commas in
            numbers are decimal.
        ValueError: pandas cannot parse it.
        OSError: it cannot be opened or decompressed.
    """
    delimiter = _find_delimiter(path)
    # All columns are parsed: pandas lets rows with too many fields pass when it reads some alone.
    numbers = [name for name in _parse(path, delimiter, nrows=0) if name not in text]
    options = {
        "dtype": dict.fromkeys(text, str),
        "keep_default_na": False,  # the id NA may be Namibia
        "na_values": dict.fromkeys(numbers, _MISSING),
    }
    frame = _parse(path, delimiter, **options)
    if not isinstance(frame.index, pd.RangeIndex):  # pandas took the first fields as an index
        raise DataError(
            f"{path}: its rows have more fields than its header. Name every column in the header, "
            "and remove delimiters at the ends of rows."
        )
    names = _without_index(list(frame))
    kept = [name for name in names if needed is None or name in needed]
    frame = frame[kept]
    if delimiter != ";":
        return frame, names
    commas = [name for name in kept if name not in text and _has_comma_numbers(frame[name])]
    if not commas:
        return frame, names
    if all(_may_be_thousands(frame[name]) for name in commas):
        raise DataError(
            f"{path}: the commas in the numbers of column {commas[0]!r} may stand for decimals or "
            "for thousands. Write decimals with points, and nothing between thousands."
        )
    again = _parse(path, delimiter, decimal=",", **options)[kept]
    is_number = pd.api.types.is_numeric_dtype
    for name in kept:
        if is_number(frame[name]) and not is_number(again[name]):
            raise DataError(
                f"{path}: column {commas[0]!r} seems to hold decimal commas, but column {name!r} "
                "decimal points. Write all numbers with points."
            )
    return again, names


def _parse(path: Path, delimiter: str, **options: Any) -> pd.DataFrame:
    # Read piece by piece (low_memory), a column's type could change from piece to piece.
    options |= {"sep": delimiter, "low_memory": False}
    try:
        with _open(path) as stream:
            return pd.read_csv(stream, **options)
    except UnicodeDecodeError:
        with _open(path) as stream:
            return pd.read_csv(stream, encoding="latin-1", **options)


def _without_index(names: list[str]) -> list[str]:
    """Leave out a first column without a name: row numbers, which `DataFrame.to_csv` writes."""
    return names[1:] if names[:1] == ["Unnamed: 0"] else names


def _open(path: Path) -> pa.NativeFile:
    # Arrow's codecs, since pandas needs a further package for zstd.
    return pa.input_stream(str(path), compression=COMPRESSIONS.get(path.suffix.lower()))


def _find_delimiter(path: Path) -> str:
    with _open(path) as stream:
        start = stream.read(1 << 16).decode("latin-1")  # delimiters are the same in UTF-8
    header = re.sub(r'"[^"]*"', "", start.lstrip("\r\n")).split("\n", 1)[0]
    return max(_DELIMITERS, key=header.count)


def _has_comma_numbers(column: pd.Series) -> bool:
    if pd.api.types.is_numeric_dtype(column):
        return False
    values = column.dropna().astype(str)
    looks_so = values.head(100).str.fullmatch(_COMMA_NUMBER).all()
    return bool(looks_so and values.str.contains(",", regex=False).any())


def _may_be_thousands(column: pd.Series) -> bool:
    values = column.dropna().astype(str)
    return bool(values[values.str.contains(",", regex=False)].str.fullmatch(_THOUSANDS).all())
