"""Windows over a store: which there are, in which order they come, and how a batch is gathered."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from tsformer.data.store import SeriesStore
from tsformer.data.types import IntArray


class WindowBatch(NamedTuple):
    """B windows of L context and H target steps, in scaled units.

    Attributes:
        context: (B, L, C); 0 where missing.
        observed: True where `context` is a measurement, (B, L, C).
        past_features: calendar and covariates over the context, (B, L, F).
        future_features: what of them is known over the horizon, (B, H, F).
        target: (B, H, C); 0 where missing.
        target_observed: True where `target` is a measurement, (B, H, C).
        series: index of each window's series, (B,).
    """

    context: Tensor
    observed: Tensor
    past_features: Tensor
    future_features: Tensor
    target: Tensor
    target_observed: Tensor
    series: Tensor


@dataclass(frozen=True)
class WindowIndex:
    """All windows of a split, stride 1, without a list of them.

    Attributes:
        first: row of the first target step of each series' first window, (S,).
        ends: running number of windows up to and with each series, (S,).
    """

    first: IntArray
    ends: IntArray

    def __len__(self) -> int:
        """Return the number of windows."""
        return int(self.ends[-1])

    def locate(self, windows: IntArray) -> tuple[IntArray, IntArray]:
        """Return series and first target row, each (B,), of windows by their running number."""
        series = np.searchsorted(self.ends, windows, side="right")
        counts_before = np.where(series > 0, self.ends[series - 1], 0)
        return series, self.first[series] + windows - counts_before

    @classmethod
    def between(
        cls,
        offsets: IntArray,
        starts: IntArray,
        *,
        begin: int,
        end: int,
        context_length: int,
        horizon: int,
    ) -> "WindowIndex":
        """Return the windows whose targets lie in grid positions `begin` <= t < `end`.

        The context may reach back before `begin`. It is complete where the series is long enough;
        a series shorter than that gives windows with a shorter context, of one step at least.

        Args:
            offsets: bounds of each series' rows, (S+1,).
            starts: position on the grid of each series' first row, (S,).
            begin: first grid position of targets.
            end: position behind the last one.
            context_length: L.
            horizon: H.
        """
        stops = np.minimum(starts + np.diff(offsets), end)
        context = np.clip(stops - starts - horizon, 1, context_length)
        first = np.maximum(starts + context, begin)
        counts = np.maximum(stops - horizon - first + 1, 0)
        return cls(first - starts + offsets[:-1], np.cumsum(counts))


class WindowDataset(Dataset[WindowBatch]):
    """Batches of windows: an item is a whole batch, gathered at once."""

    def __init__(
        self,
        store: SeriesStore,
        index: WindowIndex,
        *,
        context_length: int,
        horizon: int,
        num_future_covariates: int,
    ) -> None:
        """Bind the store to an index of windows.

        Args:
            store: rows to gather.
            index: the windows.
            context_length: L.
            horizon: H.
            num_future_covariates: how many of the covariates, the first ones, are known ahead.
        """
        self.store = store
        self.index = index
        self.context_length = context_length
        self.num_future_covariates = num_future_covariates
        self.steps = torch.arange(-context_length, horizon)

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.index)

    def __getitem__(self, windows: IntArray) -> WindowBatch:
        """Gather the windows of the given running numbers, (B,)."""
        store, length = self.store, self.context_length
        located, origin = self.index.locate(windows)
        series = torch.from_numpy(located)
        begin = store.offsets[series].unsqueeze(1)
        rows = torch.from_numpy(origin).unsqueeze(1) + self.steps  # (B, L+H)
        inside = (rows >= begin).unsqueeze(-1)
        rows = torch.maximum(rows, begin)
        target = store.target[rows]  # (B, L+H, C)
        observed = ~target.isnan() & inside
        target = target.where(observed, 0.0)
        calendar = store.calendar[rows - begin + store.starts[series].unsqueeze(1)]
        covariates = store.covariates[rows]  # (B, L+H, F)
        features = torch.cat([calendar, covariates], dim=-1).where(inside, 0.0)
        num_future = calendar.size(-1) + self.num_future_covariates
        return WindowBatch(
            context=target[:, :length],
            observed=observed[:, :length],
            past_features=features[:, :length],
            future_features=features[:, length:, :num_future],
            target=target[:, length:],
            target_observed=observed[:, length:],
            series=series,
        )


class BatchSampler(Sampler[IntArray]):
    """Running numbers of windows, a batch at a time; every window once an epoch, none dropped.

    Shuffled orders follow from seed and epoch alone. Each of `world_size` ranks takes every
    `world_size`-th window of the same order; when shuffling, that order is filled up from its
    beginning so that all ranks take as many steps.
    """

    def __init__(
        self,
        num_windows: int,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Set the order; see the class."""
        self.num_windows = num_windows
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order comes next; Lightning calls this."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        most = -(-self.num_windows // self.world_size)
        own = most if self.shuffle else len(range(self.rank, self.num_windows, self.world_size))
        return -(-own // self.batch_size)

    def __iter__(self) -> Iterator[IntArray]:
        """Yield the batches of this rank."""
        order = np.arange(self.num_windows)
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(order)
            order = np.resize(order, -(-self.num_windows // self.world_size) * self.world_size)
        own = order[self.rank :: self.world_size]
        for begin in range(0, len(own), self.batch_size):
            yield own[begin : begin + self.batch_size]
