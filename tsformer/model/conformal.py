"""Conformal prediction: quantiles that hold what they promise, by the errors made before."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tsformer.data.moments import NORMAL_IQR
from tsformer.data.types import BoolArray, Float32Array, FloatArray, IntArray
from tsformer.data.windows import WindowBatch, WindowDataset, WindowIndex

F = TypeVar("F", np.float32, np.float64)

MAX_WINDOWS = 1000  # of a group: more would hardly move an order statistic
MAX_SCORES = 50_000_000  # 200 MB

_ROUNDING = 1e-9  # 20 x 0.55 is a little above 11


@dataclass(frozen=True)
class ConformalOffsets:
    """What to add to a forecast's quantiles so that they are calibrated, in scaled units.

    Split conformal prediction (Vovk et al. 2005) of quantiles (Romano et al. 2019): both ends of a
    central interval move outwards by an order statistic of how far truths of windows not trained on
    lay outside of it, less than 0 within. If these and a window to come are exchangeable, the
    interval covers with at least its nominal probability. The median stays: a bias of one season is
    not carried into the next. A level whose counterpart is not among the levels moves by itself.
    Series that drift are not exchangeable, see `track`; windows that overlap tell less than their
    number, and those by which the checkpoint was chosen are forecast a little too well.

    Attributes:
        levels: 0 < level < 1, rising, (Q,).
        offsets: by group, step, channel and level, (N+1, H, C, Q); the last row is for groups not
            seen in training.
    """

    levels: tuple[float, ...]
    offsets: Float32Array

    @classmethod
    def fit(
        cls, scores: Float32Array, group: IntArray, num_groups: int, levels: Sequence[float]
    ) -> "ConformalOffsets":
        """Take the order statistics of scores.

        A group with fewer than `scores_needed` of them at a step takes the order statistics of
        all groups together: in scaled units they are alike. Too few of these give the extreme
        ones, which widen intervals but do not narrow them; none at all an offset of 0.

        Args:
            scores: see `residuals`, (W, H, C, Q), or (W, H, C, 1) of a point forecast.
            group: of each window, (W,).
            num_groups: N.
            levels: 0 < level < 1, rising, (Q,).
        """
        needed = scores_needed(levels)
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(num_groups + 1))
        # A step at a time: all scores need not be copied at once.
        pooled = np.concatenate(
            [_widening(scores[:, [h]], levels)[0] for h in range(scores.shape[1])]
        )
        pooled[np.isnan(pooled)] = 0.0
        few = (~np.isnan(scores[..., :1])).sum(axis=0) < needed  # (H, C, 1)
        narrowed = pooled * np.sign(np.asarray(levels) - 0.5) < 0
        pooled[few & narrowed] = 0.0
        offsets = np.tile(pooled, (num_groups + 1, 1, 1, 1))
        for n in np.flatnonzero(np.diff(bounds) >= needed):
            own, count = _widening(scores[order[bounds[n] : bounds[n + 1]]], levels)
            np.copyto(offsets[n], own, where=count >= needed)
        return cls(tuple(levels), offsets)

    def apply(self, forecast: NDArray[Any], group: IntArray) -> NDArray[Any]:
        """Return calibrated quantiles, (B, H, C, Q); see `shifted`.

        Args:
            forecast: quantiles, (B, H, C, Q), or point forecasts, (B, H, C), in scaled units.
            group: of each window, (B,); -1 if not seen in training.
        """
        return shifted(forecast, self.offsets[group], self.levels)


def calibration_batches(
    windows: WindowDataset,
    forecast: Callable[[IntArray, WindowBatch], NDArray[Any]],
    scores_each: int,
    batch_size: int = 1024,
) -> Iterator[tuple[NDArray[Any], NDArray[Any], BoolArray, IntArray]]:
    """Yield forecast, target, observed and group of windows to calibrate on, for `calibrate`.

    Args:
        windows: those that were not trained on.
        forecast: from running numbers of windows and their batch to points or quantiles.
        scores_each: see `calibration_windows`.
        batch_size: windows forecast at once.
    """
    numbers = calibration_windows(windows.index, scores_each)
    for begin in range(0, len(numbers), batch_size):
        picked = numbers[begin : begin + batch_size]
        batch = windows[picked]
        observed = batch.target_observed.numpy()
        found, target = forecast(picked, batch), batch.target.double().numpy()
        yield found, target, observed, batch.series.numpy()


def calibrate(
    batches: Iterable[tuple[NDArray[Any], NDArray[Any], BoolArray, IntArray]],
    num_groups: int,
    levels: Sequence[float],
) -> ConformalOffsets:
    """Return the offsets that forecasts of some windows ask for.

    Args:
        batches: forecast, target, observed, see `residuals`, and each window's group, (B,), such
            as `calibration_batches`; all scores are held at once.
        num_groups: N.
        levels: 0 < level < 1, rising, (Q,).
    """
    parts = [
        (residuals(forecast, target, observed), group)
        for forecast, target, observed, group in batches
    ]
    scores, group = map(np.concatenate, zip(*parts, strict=True))
    return ConformalOffsets.fit(scores, group, num_groups, levels)


def shifted(forecast: NDArray[Any], offsets: NDArray[Any], levels: Sequence[float]) -> NDArray[Any]:
    """Return quantiles moved by their offsets, put in order where they cross.

    Ends of an interval that is narrowed by more than its width meet at the median: put in order
    alone, they would change places, and widen it. Ordering quantiles on one side of the median
    brings them nearer to the truth, if anything (Chernozhukov et al. 2010).

    Args:
        forecast: quantiles, (..., H, C, Q), or point forecasts, (..., H, C).
        offsets: (..., H, C, Q), of any number of steps; steps beyond them take the last ones.
        levels: (Q,).

    Returns:
        (..., H, C, Q), rising along Q.
    """
    if forecast.ndim < offsets.ndim:
        forecast = forecast[..., None]
    step = np.minimum(np.arange(forecast.shape[-3]), offsets.shape[-3] - 1)
    moved = forecast + offsets[..., step, :, :]
    side = np.round(np.asarray(levels) - 0.5, 9)
    if (side < 0).any() and (side > 0).any():
        forecast = np.broadcast_to(forecast, moved.shape)
        inner = [np.flatnonzero(side <= 0)[-1], np.flatnonzero(side >= 0)[0]]
        median = forecast[..., inner].mean(axis=-1, keepdims=True)  # the level 0.5, if it is there
        np.minimum(moved, median, out=moved, where=side < 0)
        np.maximum(moved, median, out=moved, where=side > 0)
    return np.sort(moved, axis=-1)


def residuals(forecast: NDArray[Any], target: NDArray[Any], observed: BoolArray) -> Float32Array:
    """Return the scores, truth less forecast, (B, H, C, Q), or (B, H, C, 1) of a point forecast.

    Args:
        forecast: quantiles, (B, H, C, Q), or point forecasts, (B, H, C).
        target: truth, (B, H, C).
        observed: True where `target` is a measurement, (B, H, C); elsewhere the score is NaN.
    """
    truth = np.where(observed, target, np.nan)[..., None]
    if forecast.ndim < truth.ndim:
        forecast = forecast[..., None]
    return (truth - forecast).astype(np.float32)


def scores_needed(levels: Sequence[float]) -> int:
    """Return how many scores have an order statistic for every level.

    Of m scores, that of an interval of probability c is the ceil((m+1) c)-th smallest, which exists
    if (m+1) c <= m: from m = 9 on for the interval from 0.05 to 0.95. A level by itself has half as
    much outside of it: 19 for 0.95.
    """
    tails = [
        (1 - abs(1 - 2 * level)) / (1 if counterpart is not None else 2)
        for level, counterpart in zip(levels, counterparts(levels), strict=True)
    ]
    return int(np.ceil(1 / min(tails) - 1 - _ROUNDING))


def counterparts(levels: Sequence[float]) -> list[int | None]:
    """Return for each level the place of the one on the other side of the median, if it is there.

    The median is its own counterpart.
    """
    return [
        next((j for j, other in enumerate(levels) if abs(level + other - 1) < _ROUNDING), None)
        for level in levels
    ]


def calibration_windows(
    index: WindowIndex,
    scores_each: int,
    *,
    max_windows: int = MAX_WINDOWS,
    max_scores: int = MAX_SCORES,
) -> IntArray:
    """Return running numbers of the windows to calibrate on, in order, spread over each group.

    Args:
        index: windows that were not trained on.
        scores_each: of a window, H x C x Q, or H x C of point forecasts.
        max_windows: of a group, at most.
        max_scores: of all windows, at most; of one window for each of some groups, if they are so
            many.
    """
    counts = np.diff(index.offsets)
    total = max(max_scores // scores_each, 1)
    each = int(np.clip(total // max((counts > 0).sum(), 1), 1, max_windows))
    picked = [
        begin + _spread(count, each)
        for begin, count in zip(index.offsets[:-1].tolist(), counts.tolist(), strict=True)
        if count
    ]
    windows = np.concatenate(picked)
    return windows[_spread(len(windows), total)]


def track(
    forecast: NDArray[Any],
    target: NDArray[Any],
    offsets: NDArray[Any],
    levels: Sequence[float],
    eta: NDArray[Any] | float,
) -> FloatArray:
    """Return offsets that have followed series through past windows, however they drift.

    Quantile tracking (Gibbs & Candes 2021; Angelopoulos et al. 2023): after each window, both ends
    of an interval of probability c are moved outwards by eta (1[truth outside] - (1 - c)). Over n
    steps the fraction of truths outside differs from 1 - c by at most (range of the scores + eta)
    / (eta n), for any series whatever, if the offsets begin within that range. The median stays;
    a level without a counterpart moves by eta (level - 1[truth <= quantile]). Forecasting a step h
    ahead, the truths of the last h - 1 windows are not known yet.

    Args:
        forecast: quantiles of W windows in the order of time, (W, ..., H, C, Q), or point
            forecasts, (W, ..., H, C), in scaled units.
        target: truth, (W, ..., H, C); what is NaN changes nothing.
        offsets: to begin with, (..., H, C, Q), such as rows of `ConformalOffsets.offsets`.
        levels: (Q,).
        eta: see `step_size`.

    Returns:
        The offsets after the last window, (..., H, C, Q).
    """
    if forecast.ndim == target.ndim:
        forecast = forecast[..., None]
    offsets = np.array(offsets, dtype=np.float64)
    pairs = [(i, j) for i, j in enumerate(counterparts(levels)) if j is not None and i <= j]
    for quantiles, truth in zip(forecast, target[..., None], strict=True):
        moved = quantiles + offsets
        move = np.asarray(levels) - (truth <= moved)  # (..., H, C, Q)
        for i, j in pairs:
            outside = (truth[..., 0] < moved[..., i]) | (truth[..., 0] > moved[..., j])
            move[..., j] = outside - (1 - (levels[j] - levels[i])) if i < j else 0.0
            move[..., i] = -move[..., j]
        offsets += np.where(np.isnan(truth), 0.0, eta * move)
    return offsets


def step_size(forecast: NDArray[Any], target: NDArray[Any], rate: float = 0.02) -> FloatArray:
    """Return eta of `track`: `rate` x interquartile range of the scores / 1.349.

    Args:
        forecast: quantiles of W windows, (W, ..., H, C, Q), of which the middle one is taken, or
            point forecasts, (W, ..., H, C).
        target: truth, (W, ..., H, C); NaN where missing.
        rate: in units of the scores' spread over the windows.

    Returns:
        By series, step and channel, (..., H, C, 1); 0 without any truth.
    """
    middle = forecast if forecast.ndim == target.ndim else forecast[..., forecast.shape[-1] // 2]
    scores = (target - middle).astype(np.float64)[..., None]
    quartiles, _ = _order_statistics(scores, (0.25, 0.75), np.array([True, False]))
    return rate * np.nan_to_num(np.diff(quartiles, axis=-1)) / NORMAL_IQR


def _widening(
    scores: Float32Array, levels: Sequence[float]
) -> tuple[Float32Array, NDArray[np.int64]]:
    """Return the offset of each level and how many scores it has.

    Args:
        scores: truth less quantiles, (m, ..., Q), or less a point, (m, ..., 1); NaN if missing.
        levels: (Q,).

    Returns:
        (..., Q), NaN where there is no score, and (..., Q).
    """
    scores = np.array(np.broadcast_to(scores, (*scores.shape[:-1], len(levels))))
    places = list(levels)
    for i, j in enumerate(counterparts(levels)):
        if i == j:
            scores[..., i] *= 0
        elif j is not None and i < j:
            outside = np.maximum(-scores[..., i], scores[..., j])
            scores[..., i], scores[..., j] = -outside, outside
            places[j] = levels[j] - levels[i]
            places[i] = 1 - places[j]
    return _order_statistics(scores, places, np.asarray(levels) < 0.5)


def _spread(count: int, most: int) -> IntArray:
    """Return at most so many of the numbers 0 ... count - 1, evenly spread."""
    return np.linspace(0, count - 1, min(most, count)).astype(np.int64)


def _order_statistics(
    scores: NDArray[F], levels: Sequence[float], down: BoolArray
) -> tuple[NDArray[F], NDArray[np.int64]]:
    """Return the order statistic of each level and how many scores there are.

    Args:
        scores: (m, ..., Q) or (m, ..., 1); NaN where there is none.
        levels: (Q,).
        down: whether a rank between two is rounded down, (Q,).

    Returns:
        (..., Q), NaN where there is no score, and (..., Q) or (..., 1).
    """
    ordered = np.sort(scores, axis=0)  # NaN comes last
    count = (~np.isnan(scores)).sum(axis=0)
    level = np.asarray(levels)
    place = (count + 1) * level
    rank = np.where(down, np.floor(place + _ROUNDING), np.ceil(place - _ROUNDING))
    row: IntArray = np.clip(rank, 1, np.maximum(count, 1)).astype(np.int64) - 1  # (..., Q)
    ordered = np.broadcast_to(ordered, (len(scores), *row.shape))
    return np.take_along_axis(ordered, row[None], axis=0)[0], count
