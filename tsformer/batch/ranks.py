"""The ranks that torchrun started, of which each forecasts its share."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch.distributed

_PATIENCE = timedelta(days=30)  # for the slowest rank


class Ranks(NamedTuple):
    """This process among the others.

    Attributes:
        rank: its number.
        world_size: how many there are.
    """

    rank: int
    world_size: int

    @property
    def is_first(self) -> bool:
        """Whether this one prepares the forecast and ends it."""
        return self.rank == 0

    def share(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return this rank's share, which does not depend on what is finished."""
        return numbers[self.rank :: self.world_size]

    def device(self, name: str) -> str:
        """Return the device of this rank: each has its own GPU on its machine."""
        local = os.environ.get("LOCAL_RANK")
        return f"cuda:{local}" if name == "cuda" and self.world_size > 1 and local else name

    def meet(self) -> None:
        """Wait for all the others."""
        if self.world_size > 1:
            torch.distributed.barrier()


@contextmanager
def joined_ranks() -> Iterator[Ranks]:
    """Join the ranks that there are; without torchrun, this process is the only one."""
    world_size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if world_size == 1:
        yield Ranks(0, 1)
        return
    torch.distributed.init_process_group("gloo", timeout=_PATIENCE)
    try:
        yield Ranks(torch.distributed.get_rank(), world_size)
    finally:
        torch.distributed.destroy_process_group()
