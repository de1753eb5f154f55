"""What ranks do in tests: functions of a module, as new processes find them."""

import errno
import os
import signal
import time
from pathlib import Path

from tsformer.errors import DataError
from tsformer.ranks import find_world, joined_ranks


def add_up(number: int) -> tuple[int, int]:
    world = find_world()
    assert world is not None
    with joined_ranks(world, cuda=False):
        assert world.broadcast(world.rank) == 0
        return world.rank, world.largest(number + world.rank)


def refuse() -> None:
    """Let the second rank refuse its data while the first waits for it."""
    world = find_world()
    with joined_ranks(world, cuda=False):
        if not world.is_first:
            raise DataError("row 3: no number")
        world.wait()


def die_once() -> str:
    """Let the second rank die the first time."""
    world = find_world()
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    with joined_ranks(world, cuda=False):
        if not world.is_first and attempt == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        world.wait()
    return attempt


def fail() -> None:
    raise ZeroDivisionError("a bug")


def wait_for_ever(folder: str) -> None:
    """Let the first rank wait for a second one that never comes."""
    world = find_world()
    if not world.is_first:
        time.sleep(1000)
    partial = Path(folder) / "partial"
    partial.write_text(str(os.getpid()))
    partial.rename(Path(folder) / "waiting")
    with joined_ranks(world, cuda=False):
        pass


def fill_the_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "run/last.ckpt")
