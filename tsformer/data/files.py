"""Files, folders and patterns of files as one pandas frame."""

import glob
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pyarrow as pa
from pyarrow import dataset

from tsformer.data.delimited import COMPRESSIONS, delimited_names, read_delimited
from tsformer.data.frames import arrow_to_pandas
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
        within = [file for file in sorted(path.rglob("*")) if file.is_file()]
        files = [
            file
            for file in within
            if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
        ]
        if not files:
            raise DataError(f"{path}: the folder holds no files.")
    else:
        files = match_files(path)
        if not files and glob.has_magic(str(path)):
            raise DataError(f"{path}: no file matches this pattern.")
        if not files:
            raise DataError(f"{path}: there is no such file or folder.")
    for file in files:
        if _kind_of(file) != _kind_of(files[0]):
            pattern = _root_of(path) / "**" / f"*{files[0].suffix}"
            raise DataError(
                f"{path}: {files[0].name} and {file.name} are of different kinds. Keep one kind, "
                f"or give a pattern that matches one, such as '{pattern}'."
            )
    return files


def match_files(pattern: Path) -> list[Path]:
    """Return the files that a pattern matches, in the order of their paths."""
    # Unlike Path.glob, this leaves out hidden files and takes any use of **.
    matches = glob.glob(str(pattern), recursive=True)  # noqa: PTH207
    return [path for path in map(Path, sorted(matches)) if path.is_file()]


def column_names(path: Path, file: Path) -> list[str]:
    """Return the names of a file's columns, also of those that its folders' names hold.

    Args:
        path: what `list_files` was given.
        file: one of the files that it returned.

    Raises:
        DataError: the file cannot be read.
    """
    with _naming(file):
        if _kind_of(file) == "text":
            names = delimited_names(file)
        else:
            names = _arrow_names(dataset.dataset(file, format=_kind_of(file)))
    return [*names, *(name for name in _folder_columns(path, file) if name not in names)]


def read_files(
    path: Path,
    files: Sequence[Path],
    needed: Collection[str] | None = None,
    id_column: str | None = None,
) -> pd.DataFrame:
    """Read files one below the other.

    Args:
        path: what `list_files` was given.
        files: what it returned.
        needed: names of the columns to return; None returns all.
        id_column: column that is read from text as text, so that the id 007 stays 007, as the
            column `unique_id` always is. Columns of folders' names are text too.

    Raises:
        DataError: a file cannot be read, files have different columns, or no rows.
    """
    text = {"unique_id", id_column or "unique_id"}
    frames = []
    expected: list[str] = []
    for file in files:
        frame, names = _read_file(file, needed, text)
        for name, value in _folder_columns(path, file).items():
            if name not in names:
                names.append(name)
                if needed is None or name in needed:
                    column = pd.Series(value, index=frame.index, dtype=str)
                    frame = frame.assign(**{name: column})
        expected = expected or names
        if differing := sorted(set(names) ^ set(expected)):
            raise DataError(
                f"{path}: the files differ in their columns: only one of {files[0]} and {file} "
                f"has {', '.join(map(repr, differing))}."
            )
        if len(frame):  # an empty part has no types to offer
            frames.append(frame)
    if not frames:
        raise DataError(f"{path}: the table has no rows.")
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def _read_file(
    file: Path, needed: Collection[str] | None, text: Collection[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Return the needed columns of a file, and the names of all."""
    with _naming(file):
        if _kind_of(file) == "text":
            return read_delimited(file, needed, text)
        source = dataset.dataset(file, format=_kind_of(file))
        names = _arrow_names(source)
        kept = [name for name in names if needed is None or name in needed]
        return arrow_to_pandas(source.to_table(columns=kept)), names


def _arrow_names(source: dataset.Dataset) -> list[str]:
    # pandas writes a nameless index, which is row numbers, under such a name.
    return [name for name in source.schema.names if not re.match(r"__index_level_\d+__$", name)]


def _folder_columns(path: Path, file: Path) -> dict[str, str | None]:
    """Return the columns that names of folders hold, as in `shop=7/part-0.parquet`."""
    folders = file.relative_to(_root_of(path)).parts[:-1]
    pairs = [folder.split("=", maxsplit=1) for folder in folders if "=" in folder]
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, value in pairs}


def _root_of(path: Path) -> Path:
    """Return the folder itself, the folder of the file, or the one that the pattern starts in."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


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
    except (ValueError, OSError, pa.ArrowException) as error:  # also pandas' and UnicodeError
        raise DataError(f"{file}: cannot be read as a table ({error}).") from error
