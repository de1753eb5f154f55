"""Windows over a store: which there are, and how a batch of them is gathered."""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from tsformer.data.covariates import CovariateEncoder
from tsformer.data.scaling import Scaler
from tsformer.data.store import SeriesStore
from tsformer.data.types import BoolArray, Float32Array, IntArray

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
            end: position after the last one.
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
            future: encoded covariates known ahead of windows after the groups' ends, (N, H, Ff).
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
        # Subtracted from, then divided into, each stored row.
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
