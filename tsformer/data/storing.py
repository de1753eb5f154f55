"""Stores on disk: a folder with one `.npy` file an array, and `meta.json` for the rest."""

import errno
import json
import math
import os
import shutil
import tokenize
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsformer.data.findings import Finding, Findings
from tsformer.data.store import SeriesStore

# Raised when stores are written otherwise, or when the same files would give another store.
SCHEMA_VERSION = 2
META = "meta.json"

# What reading a damaged JSON or .npy file ends in.
_DAMAGED = (
    *(FileNotFoundError, NotADirectoryError, EOFError, ValueError, TypeError, KeyError),
    *(AttributeError, RecursionError, SyntaxError, tokenize.TokenError),
)
_ROWS = ("target", "covariates")  # mapped into memory; the others are short and read
_ARRAYS = ("starts", "offsets", "centers", "covariate_base", "static", "weights")


def create_rows(
    folder: Path,
    name: Literal["target", "covariates"],
    shape: tuple[int, ...],
    dtype: type = np.float32,
) -> NDArray[Any]:
    """Return the rows of a store to come, of zeros, mapped to their file in its folder.

    What is written to them lies on disk, and memory holds only what is in use. `save_store` takes
    them as they are.

    Raises:
        OSError: the disk has no room for them (errno ENOSPC), or cannot be written.
    """
    return _create(_path(folder, name), np.dtype(dtype), shape)


def save_store(store: SeriesStore, findings: Findings, folder: Path) -> None:
    """Write a store, and what was found out about its table.

    Args:
        store: its `target` and `covariates` may be what `create_rows` made in this folder.
        findings: read again by `open_store`.
        folder: an existing one, without another store.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    arrays = {name: getattr(store, name) for name in (*_ROWS, *_ARRAYS)}
    arrays["grid"] = store.grid.tz_localize(None).to_numpy()
    arrays = {name: array for name, array in arrays.items() if array is not None}
    for name, array in arrays.items():
        path = _path(folder, name)
        if not _is_mapped_from(path, array):
            _create(path, array.dtype, array.shape)[...] = array
    meta = {
        "schema_version": SCHEMA_VERSION,
        "table_ids": store.table_ids,
        "targets": store.targets,
        "freq": store.freq,
        "time_zone": store.time_zone,
        "utc": store.grid.tz is not None,
        "categories": dict(store.categories),
        "sizes": {name: _path(folder, name).stat().st_size for name in arrays},
        "findings": [
            {"place": place, **asdict(finding)} for (_, place), finding in findings.items.items()
        ],
    }
    (folder / META).write_text(json.dumps(meta), encoding="utf-8")


def open_store(folder: Path) -> tuple[SeriesStore, Findings] | None:
    """Open what `save_store` wrote; its rows are mapped into memory, read-only, and not read.

    Returns:
        The store and the findings, or None when the folder holds no store of this version, or a
        damaged one: a file is missing, or has another size than it was written with.

    Raises:
        OSError: a file is there but may not be read.
    """
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        if meta["schema_version"] != SCHEMA_VERSION:
            return None
        arrays = {}
        for name, size in meta["sizes"].items():
            path = _path(folder, name)
            if path.stat().st_size != size:
                return None
            mode: Literal["r"] | None = "r" if name in _ROWS else None
            arrays[name] = np.load(path, mmap_mode=mode, allow_pickle=False)
        grid = pd.DatetimeIndex(arrays.pop("grid"))
        store = SeriesStore(
            table_ids=tuple(meta["table_ids"]),
            targets=tuple(meta["targets"]),
            grid=grid.tz_localize("UTC") if meta["utc"] else grid,
            freq=meta["freq"],
            time_zone=meta["time_zone"],
            categories={name: tuple(texts) for name, texts in meta["categories"].items()},
            **{"weights": None, **arrays},
        )
        findings = Findings()
        for values in meta["findings"]:
            findings.add(place=values.pop("place"), finding=Finding(**values))
    except _DAMAGED:
        return None
    return store, findings


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"


def _create(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an array of zeros mapped to a new file that has its place on the disk."""
    if shutil.disk_usage(path.parent).free < dtype.itemsize * math.prod(shape):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    array = np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)
    # The file has its length but no place on the disk yet. Take that now: a disk that is full by
    # then is an error here, but kills the process that writes to mapped memory.
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _is_mapped_from(path: Path, array: NDArray[Any]) -> bool:
    name = getattr(array, "filename", None)
    return name is not None and path.exists() and path.samefile(name)
