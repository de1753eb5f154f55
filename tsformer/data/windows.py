"""Windows over a store: which there are, in which order they come, and how a batch is gathered."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from tsformer.data.covariates import CovariateEncoder
from tsformer.data.scaling import Scaler
from tsformer.data.store import SeriesStore
from tsformer.data.types import BoolArray, Float32Array, FloatArray, IntArray
from tsformer.errors import DataError

F = TypeVar("F", np.float32, np.float64)


class WindowBatch(NamedTuple):
    """B windows of L context and H target steps, in scaled units.

    Attributes:
        context: (B, L, C); 0 where missing.
        observed: True where `context` is a measurement, (B, L, C).
        past_features: calendar and covariates over the context, (B, L, F); 0 before the series
            begin.
        future_features: what of them is known over the horizon, (B, H, F).
        static_features: static covariates, (B, Fs).
        target: (B, H, C); 0 where missing.
        target_observed: True where `target` is a measurement, (B, H, C).
        series: index of each window's group of series, (B,).
    """

    context: Tensor
    observed: Tensor
    past_features: Tensor
    future_features: Tensor
    static_features: Tensor
    target: Tensor
    target_observed: Tensor
    series: Tensor

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """What a network forecasts from, in the order of its arguments."""
        return self[:5]


def group_spans(store: SeriesStore, groups: IntArray) -> tuple[IntArray, IntArray]:
    """Return the grid positions where each group's first series begins and its last one ends.

    Args:
        store: the series.
        groups: series of each group, (N, C).
    """
    return store.starts[groups].min(axis=1), store.ends[groups].max(axis=1)


@dataclass(frozen=True)
class WindowIndex:
    """All windows of a part of a store, without a list of them.

    Attributes:
        groups: the series that are forecast together, (N, C).
        first: grid position of the first target step of each group's first window, (N,).
        offsets: bounds of each group's running numbers of windows, (N+1,).
        stride: steps from one window of a group to the next.
    """

    groups: IntArray
    first: IntArray
    offsets: IntArray
    stride: int = 1

    def __len__(self) -> int:
        """Return the number of windows."""
        return int(self.offsets[-1])

    def locate(self, windows: IntArray) -> tuple[IntArray, IntArray]:
        """Return group and grid position of the first target step, (B,) each, by running number."""
        group = self.offsets.searchsorted(windows, side="right") - 1
        return group, self.first[group] + (windows - self.offsets[group]) * self.stride

    @classmethod
    def between(
        cls,
        store: SeriesStore,
        groups: IntArray,
        *,
        begin: int,
        end: int,
        context_length: int,
        horizon: int,
        stride: int = 1,
        leave_out: BoolArray | None = None,
    ) -> "WindowIndex":
        """Return the windows whose targets lie in grid positions `begin` <= t < `end`.

        The context may reach back before `begin`. It is complete where the group is long enough;
        a group shorter than that gives one window with a shorter context, of one step at least.

        Args:
            store: the series.
            groups: those that are forecast together, (N, C).
            begin: first grid position of targets.
            end: position behind the last one.
            context_length: L.
            horizon: H.
            stride: steps from one window of a group to the next.
            leave_out: groups without windows, (N,).
        """
        starts, stops = group_spans(store, groups)
        last = np.minimum(stops, end) - horizon
        first = np.maximum(starts + np.clip(last - starts, 1, context_length), begin)
        counts = np.maximum((last - first) // stride + 1, 0)
        if leave_out is not None:
            counts = np.where(leave_out, 0, counts)
        return cls(groups, first, np.concatenate([[0], np.cumsum(counts)]), stride)

    @classmethod
    def ahead(cls, store: SeriesStore, groups: IntArray) -> "WindowIndex":
        """Return one window a group, whose targets lie behind the group's end."""
        return cls(groups, group_spans(store, groups)[1], np.arange(len(groups) + 1))


class WindowDataset(Dataset[WindowBatch]):
    """Batches of windows: an item is a whole batch, gathered at once from the store's rows."""

    def __init__(
        self,
        store: SeriesStore,
        index: WindowIndex,
        scaler: Scaler,
        covariates: CovariateEncoder,
        static: CovariateEncoder,
        calendar: Float32Array,
        *,
        context_length: int,
        horizon: int,
        num_future_covariates: int,
        future: Float32Array | None = None,
    ) -> None:
        """Bind the store to an index of windows.

        Args:
            store: rows to gather. The series of a group have the same covariates, in the rows of
                its first, over the group's whole span; see `shared_covariates`.
            index: the windows.
            scaler: of the store's series.
            covariates: encoder of the store's covariates.
            static: encoder of its static covariates; a group has those of its first series.
            calendar: (G, K), or (G+H, K) for windows that go beyond the grid.
            context_length: L.
            horizon: H.
            num_future_covariates: how many of the covariates, the first ones, are known ahead, Ff.
            future: encoded covariates known ahead of windows behind the groups' ends, (N, H, Ff).
        """
        self.store = store
        self.index = index
        self.scaler = scaler
        self.calendar = calendar
        self.future = future
        self.covariates = covariates
        self.lookups = covariates.lookups(store.categories)
        first_series = index.groups[:, 0]
        self.static = static.encode(store.static[first_series], static.lookups(store.categories))
        self.covariate_base = store.covariate_base[first_series]
        self.group_starts, self.group_ends = group_spans(store, index.groups)
        # Where windows begin that lie wholly within the rows of all their series.
        self.earliest = store.starts[index.groups].max(axis=1)
        self.latest = store.ends[index.groups].min(axis=1) - context_length - horizon
        # What is to be subtracted from a row of the store and what it is to be divided by.
        self.shift = (scaler.mean - store.centers).astype(np.float32)
        self.std = scaler.std.astype(np.float32)
        self.context_length = context_length
        self.num_steps = context_length + horizon
        self.num_future_features = calendar.shape[1] + num_future_covariates

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.index)

    def __getitem__(self, windows: IntArray) -> WindowBatch:
        """Gather the windows of the given running numbers, (B,)."""
        length, num_future = self.context_length, self.num_future_features
        group, origin = self.index.locate(windows)
        begin = origin - length
        whole = ((begin >= self.earliest[group]) & (begin <= self.latest[group])).all()
        values, observed = self._values(group, begin, whole)  # (B, L+H, C)
        features = self._features(group, begin, whole)  # (B, L+H, F)
        parts = (
            values[:, :length],
            observed[:, :length],
            features[:, :length],
            features[:, length:, :num_future],
            self.static[group],
            values[:, length:],
            observed[:, length:],
            group,
        )
        return WindowBatch(*map(torch.from_numpy, parts))

    def _values(
        self, group: IntArray, begin: IntArray, whole: bool
    ) -> tuple[Float32Array, BoolArray]:
        """Return scaled values from grid position `begin` on, and which are measurements.

        Args:
            group: of each window, (B,).
            begin: grid position of its first step, (B,).
            whole: no window reaches beyond the rows of any of its series.
        """
        store = self.store
        series = self.index.groups[group]  # (B, C)
        first = (begin[:, None] - store.starts[series]).ravel()  # row of the series
        rows = store.offsets[series].ravel() + first
        values = gather(store.target[:, None], rows, self.num_steps, inside=whole)[..., 0]
        if not whole:
            _blank(values, -first, store.lengths[series].ravel() - first, np.nan)
        values = values.reshape(*series.shape, self.num_steps)
        observed = values == values  # NaN alone differs from itself
        values = self._scaled(values, series)
        if not observed.all():
            np.copyto(values, 0.0, where=~observed)
        return values.swapaxes(1, 2), observed.swapaxes(1, 2)

    def _scaled(self, values: Float32Array, series: IntArray) -> Float32Array:
        """Scale rows of the store, (B, C, L+H), of series (B, C); they may be overwritten."""
        if self.scaler.transform != "none":
            original = values.astype(np.float64) + self.store.centers[series, None]
            scaled = self.scaler.scale(original.swapaxes(1, 2), series)
            return scaled.swapaxes(1, 2).astype(np.float32)
        # Single precision is enough: centers keep the digits of values far from 0.
        with np.errstate(over="ignore"):  # infinity is refused by those who forecast
            values -= self.shift[series, None]
            values /= self.std[series, None]
        return values

    def _features(self, group: IntArray, begin: IntArray, whole: bool) -> Float32Array:
        """Return calendar and encoded covariates from grid position `begin` on; see `_values`."""
        features = gather(self.calendar, begin, self.num_steps, inside=whole)
        start, end = self.group_starts[group] - begin, self.group_ends[group] - begin
        if self.covariates.names:
            rows = self.covariate_base[group] + begin
            values = gather(self.store.covariates, rows, self.num_steps, inside=whole)
            covariates = self.covariates.encode(values, self.lookups)
            if not whole:
                _blank(covariates, start, end, 0.0)
            if self.future is not None:
                ahead = self.future[group]
                covariates[:, self.context_length :, : ahead.shape[2]] = ahead
            # PyTorch is faster than NumPy at joining rows this short.
            both = torch.from_numpy(features), torch.from_numpy(covariates)
            features = torch.cat(both, dim=2).numpy()
        if not whole:  # behind the end, the calendar is known
            _blank(features, start, np.full_like(end, self.num_steps), 0.0)
        return features


def gather(rows: NDArray[F], first: IntArray, length: int, inside: bool) -> NDArray[F]:
    """Return a copy of B spans of rows, (B, length, F).

    Args:
        rows: (R, F), contiguous; may be a memory map.
        first: where each span begins, (B,); what lies outside the array becomes arbitrary rows.
        length: of a span.
        inside: no span reaches beyond the array.

    Raises:
        ValueError: the rows are not contiguous.
    """
    if not rows.flags.c_contiguous:
        raise ValueError("rows of spans must be contiguous")
    num_rows, width = rows.shape
    shape = (len(first), length, width)
    if not width or length > num_rows:
        gathered = np.zeros(shape, dtype=rows.dtype)
    else:
        # All spans there are, overlapping in memory: each that is picked is copied in one go.
        spans: NDArray[F] = np.ndarray(
            (num_rows - length + 1, length * width),
            dtype=rows.dtype,
            buffer=rows,
            strides=(width * rows.itemsize, rows.itemsize),
        )
        gathered = spans[first if inside else first.clip(0, num_rows - length)].reshape(shape)
    if not inside:
        beyond = np.flatnonzero((first < 0) | (first + length > num_rows))
        for span, begin in zip(beyond.tolist(), first[beyond].tolist(), strict=True):
            part = rows[max(begin, 0) : max(begin + length, 0)]
            skipped = max(-begin, 0)
            gathered[span, skipped : skipped + len(part)] = part
    return gathered


def _blank(spans: NDArray[F], begin: IntArray, end: IntArray, value: float) -> None:
    """Set what lies outside steps begin <= t < end, (B,) each, of spans (B, T, ...)."""
    outside = np.flatnonzero((begin > 0) | (end < spans.shape[1]))
    bounds = begin[outside].clip(0).tolist(), end[outside].clip(0).tolist()
    for span, first, last in zip(outside.tolist(), *bounds, strict=True):
        spans[span, :first] = value
        spans[span, last:] = value


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
            weights: how much likelier each group of series is, (N,), with replacement.
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
