"""The ranks that torchrun or SLURM started, of which each forecasts its share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed

from tsformer.ranks import ALONE, World, find_world

_PATIENCE = timedelta(days=30)  # for the slowest rank


@contextmanager
def joined_ranks() -> Iterator[World]:
    """Join the ranks that there are; without torchrun or SLURM, this process is the only one."""
    world = find_world() or ALONE
    if world.size == 1:
        yield world
        return
    torch.distributed.init_process_group("gloo", timeout=_PATIENCE)
    try:
        yield world
    finally:
        torch.distributed.destroy_process_group()


def device_of(world: World, name: str) -> str:
    """Return the device of this rank: each has its own GPU on its machine."""
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if name == "cuda" and world.size > 1 and local else name
