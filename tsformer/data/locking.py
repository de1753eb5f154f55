"""A lock between processes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl


@contextmanager
def alone(lock: Path, *, wait: bool = True) -> Iterator[bool]:
    """Let one process at a time through; the system frees the lock of one that is killed.

    Args:
        lock: file to lock, made here and removed at the end; its folder has to be there.
        wait: for the process that holds the lock, however long it takes.

    Yields:
        Whether it is locked: on Windows and on file systems without locks it is not, and all
        processes are let through.

    Raises:
        BlockingIOError: another process holds the lock, which is not waited for.
        OSError: the file cannot be made.
    """
    while True:
        file = lock.open("ab")
        try:
            locked = _lock(file, wait)
        except BlockingIOError:
            file.close()
            raise
        if not locked or _is_at(file, lock):
            break
        file.close()  # the process before has removed the file that this one waited for
    try:
        yield locked
    finally:
        if sys.platform != "win32":  # where an open file cannot be removed
            lock.unlink(missing_ok=True)
        file.close()


@contextmanager
def folder_alone(folder: Path, name: str = ".lock") -> Iterator[None]:
    """Make a folder and keep other processes out; remove it again if nothing was put there.

    Args:
        folder: which may be there.
        name: of the file in it to lock.

    Raises:
        BlockingIOError: another process holds it.
        OSError: it cannot be made or written to.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone(folder / name, wait=False):
            yield
    finally:
        if made:
            with suppress(OSError):  # where anything was written, it stays
                folder.rmdir()


def _lock(file: IO[bytes], wait: bool) -> bool:
    if sys.platform == "win32":
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        return False
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
