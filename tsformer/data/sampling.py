"""In which order windows come: batches of an epoch, and of a whole training."""

from collections.abc import Iterator
from itertools import islice
from typing import Literal

import numpy as np
from torch.utils.data import Sampler

from tsformer.data.types import FloatArray, IntArray
from tsformer.data.windows import WindowIndex
from tsformer.errors import DataError


class BatchSampler(Sampler[IntArray]):
    """Running numbers of windows, a batch at a time.

    Without shuffling every window comes once, in order. Shuffled orders follow from seed and
    epoch alone, and hold every window once unless told otherwise. Each of `world_size` ranks takes
    every `world_size`-th window of the same order, in as many batches as the others: ranks wait
    for each other. When shuffling, the order is filled up from its beginning; without, a rank's
    last batch may hold no window.
    """

    def __init__(
        self,
        index: WindowIndex,
        batch_size: int,
        *,
        shuffle: bool,
        over: Literal["windows", "series"] = "windows",
        weights: FloatArray | None = None,
        windows_per_epoch: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Set the order.

        Args:
            index: the windows.
            batch_size: windows of a batch; the last one may have fewer.
            shuffle: draw windows at random; the next three arguments say how.
            over: all `windows` are as likely; or each draw takes one of the `series`, all as
                likely, and then one of its windows, with replacement.
            weights: relative draw probability of each group of series, (N,), with replacement.
            windows_per_epoch: windows drawn an epoch; None: as many as there are.
            seed: of the draws.
            rank: of this process.
            world_size: processes that share the windows.

        Raises:
            DataError: no group with windows has a weight above 0.
        """
        self.index = index
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.num_windows = windows_per_epoch if shuffle and windows_per_epoch else len(index)
        self.mass: FloatArray | None = None  # how likely each group is drawn; None: plain
        if over == "series" or weights is not None:
            counts = np.diff(index.offsets)
            mass = np.minimum(counts, 1) if over == "series" else counts
            self.mass = mass * (1.0 if weights is None else weights)
            if not self.mass.sum() > 0:
                raise DataError(
                    "the weights of all series with train windows are 0. Give some of them a "
                    "weight above 0, or leave out dataset.weight_column."
                )
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        most = -(-self.num_windows // self.world_size)
        return -(-most // self.batch_size)

    def __iter__(self) -> Iterator[IntArray]:
        """Yield the batches of this rank."""
        order = self._draw() if self.shuffle else range(self.num_windows)
        own = order[self.rank :: self.world_size]
        for batch in range(len(self)):
            begin = batch * self.batch_size
            yield np.asarray(own[begin : begin + self.batch_size], dtype=np.int64)

    def _draw(self) -> IntArray:
        """Return this epoch's windows of all ranks."""
        random = np.random.default_rng([self.seed, self.epoch])
        if self.mass is None:
            count = min(self.num_windows, len(self.index))
            order = random.choice(len(self.index), count, replace=False)
        else:
            share = self.mass / self.mass.sum()
            group = random.choice(len(share), self.num_windows, p=share)
            offsets = self.index.offsets
            order = random.integers(offsets[group], offsets[group + 1])
        return np.resize(order, -(-self.num_windows // self.world_size) * self.world_size)


class TrainingSampler(Sampler[IntArray]):
    """The batches of a whole training, epoch after epoch.

    They follow from their number alone, so that a training goes on in any place as if it had never
    stopped.
    """

    def __init__(self, epochs: BatchSampler, num_batches: int, first: int = 0) -> None:
        """Set where to begin and to end.

        Args:
            epochs: the batches of each epoch.
            num_batches: of the whole training, as each rank counts them.
            first: number of the batch that comes first.
        """
        self.epochs = epochs
        self.num_batches = num_batches
        self.first = first

    def __len__(self) -> int:
        """Return the number of batches of the whole training."""
        return self.num_batches

    def __iter__(self) -> Iterator[IntArray]:
        """Yield the batches from the first one on."""
        length = len(self.epochs)
        for epoch in range(self.first // length, -(-self.num_batches // length)):
            begin = epoch * length
            self.epochs.set_epoch(epoch)
            skipped = max(self.first - begin, 0)
            yield from islice(self.epochs, skipped, min(self.num_batches - begin, length))
