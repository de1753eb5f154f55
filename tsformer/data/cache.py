"""The cache: stores on disk, found again by the contents of the files they were built from."""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from tsformer.data.findings import Findings
from tsformer.data.locking import alone
from tsformer.data.store import SeriesStore
from tsformer.data.storing import SCHEMA_VERSION, open_store
from tsformer.errors import DataError

# A file may change twice within the resolution of its times (2 s on FAT), unseen by them.
_RESOLUTION_NS = 2_000_000_000


class CacheError(DataError):
    """The cache folder cannot be made, read or written; a caller may do without the cache."""


def cached_store(
    folder: Path,
    root: Path,
    files: Sequence[Path],
    settings: Mapping[str, Any],
    build: Callable[[Path], None],
) -> tuple[SeriesStore, Findings]:
    """Return the store of some files: from the cache, or built and kept there.

    A store is found again by the names and contents of its files and the settings; copied and
    touched files give the same one. The contents of a file are read again only when its size or
    times have changed, or are so young that a change could be hidden by their resolution.

    Several processes may ask for the same store: one builds it, the others wait and use it
    (without file locks, as on Windows, each builds and the first is kept). A builder that is
    killed leaves a folder `KEY.part-*`, which is never taken for a store and which the next one
    to build it removes.

    The folder may be deleted at any time. A store that is in use then stays in use, as the
    system keeps the files until the last process closes them; Windows refuses to delete those.

    Args:
        folder: of the cache; made if need be.
        root: folder that the names of the files count from.
        files: to read, in this order.
        settings: all else that the store depends on, as plain JSON.
        build: reads the files and writes the store with `save_store` to the empty folder it is
            given; it leaves nothing else there, and keeps none of the arrays of `create_rows`.

    Raises:
        CacheError: the cache folder cannot be used.
        DataError: a file cannot be read, or changed while the store was built; the disk is full.
    """
    states = {file: _state(file) for file in files}
    key = _key(root, _digests(folder, root, states), settings)
    try:
        found = open_store(folder / key)
        if found is None:
            folder.mkdir(parents=True, exist_ok=True)
            with alone(folder / f"{key}.lock") as locked:
                found = open_store(folder / key)
                if found is None:  # else another process was faster
                    if locked:
                        for left in folder.glob(f"{key}.part-*"):
                            shutil.rmtree(left, ignore_errors=True)
                    found = _build(folder / key, states, build)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DataError(
                f"{folder}: no space is left for the cache of {root} ({error}). Free some "
                "space (this folder may be deleted), or set paths.cache=... to a "
                "folder on another disk."
            ) from error
        raise CacheError(f"{folder}: the cache folder cannot be used ({error}).") from error
    return found


def _build(
    store_folder: Path, states: Mapping[Path, list[int]], build: Callable[[Path], None]
) -> tuple[SeriesStore, Findings]:
    shutil.rmtree(store_folder, ignore_errors=True)  # a damaged one
    partial = store_folder.with_name(f"{store_folder.name}.part-{uuid4().hex[:8]}")
    partial.mkdir()
    try:
        build(partial)
        for file, state in states.items():
            if _state(file) != state:
                raise DataError(
                    f"{file}: changed while it was being read. Run the same again when nothing "
                    "writes to it."
                )
        # On disk before it has its name, so that losing power leaves no store of empty pages.
        for path in partial.iterdir():
            with path.open("r+b") as array:
                os.fsync(array.fileno())
        try:
            partial.rename(store_folder)
        except OSError:
            if open_store(store_folder) is None:  # else another process was faster, without locks
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    found = open_store(store_folder)
    if found is None:
        raise CacheError(f"{store_folder}: holds no whole store after it was built.")
    return found


def _key(root: Path, digests: Mapping[Path, str], settings: Mapping[str, Any]) -> str:
    named = [[file.relative_to(root).as_posix(), digest] for file, digest in digests.items()]
    text = json.dumps([SCHEMA_VERSION, dict(settings), named], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _state(file: Path) -> list[int]:
    """Return a file's size and times, which change with its contents."""
    try:
        stat = file.stat()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error}).") from error
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns]


def _digests(folder: Path, root: Path, states: Mapping[Path, list[int]]) -> dict[Path, str]:
    """Return the hash of each file's contents, as recorded while its state stays the same."""
    name = hashlib.blake2b(os.fsencode(root.absolute()), digest_size=16).hexdigest()
    record = folder / "digests" / f"{name}.json"
    try:
        known = dict(json.loads(record.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError):
        known = {}
    digests, fresh = {}, {}
    for file, state in states.items():
        path = str(file.absolute())
        entry = known.get(path)
        digest = entry[-1] if isinstance(entry, list) and entry[:-1] == state else None
        if not isinstance(digest, str):
            now = time.time_ns()
            digest = _digest(file)
            if max(state[1:]) < now - _RESOLUTION_NS:
                fresh[path] = [*state, digest]
        digests[file] = digest
    if fresh:
        # Without a record, as in a folder that cannot be written, the files are read each time.
        with suppress(OSError):
            record.parent.mkdir(parents=True, exist_ok=True)
            partial = record.with_name(f"{name}.part-{uuid4().hex[:8]}")
            partial.write_text(json.dumps(known | fresh), encoding="utf-8")
            partial.replace(record)
    return digests


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16))
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error}).") from error
    return digest.hexdigest()
