"""Scaling of targets by statistics of the train rows alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tsformer.data.findings import Finding
from tsformer.data.moments import NORMAL_IQR, moments, nonzero_spread, pooled
from tsformer.data.store import SeriesStore
from tsformer.data.types import BoolArray, FloatArray, IntArray

Per = Literal["series", "dataset", "none"]
Method = Literal["standard", "robust"]
Transform = Literal["none", "log1p", "asinh"]

_Function = Callable[[FloatArray], FloatArray]
_FORWARD: dict[Transform, _Function] = {"none": np.asarray, "log1p": np.log1p, "asinh": np.arcsinh}
_BACKWARD: dict[Transform, _Function] = {"none": np.asarray, "log1p": np.expm1, "asinh": np.sinh}


@dataclass(frozen=True)
class Scaler:
    """Statistics in double precision: a value x becomes (transform(x) - mean) / std.

    Attributes:
        ids: series that `mean` and `std` belong to, in order.
        mean: of each series' transformed values, (S,); their median when `robust`.
        std: standard deviation (ddof=0), (S,); interquartile range / 1.349 when `robust`, which
            is the same for normal values, unless that is 0, as of mostly zeros; 1 where both are.
        fallback_mean: of all series' values together, for series without any.
        fallback_std: likewise.
        per: each `series` has its own statistics, or all have those of the `dataset`, or 0 and 1.
        method: `standard` or `robust`.
            transform: of values before all else; `log1p` is ln(1 + x), `asinh` is similar, and
            also takes negative values.
        unfitted: which of `ids` had no value to fit, and have the fallback until they have.
    """

    ids: tuple[str, ...]
    mean: FloatArray
    std: FloatArray
    fallback_mean: float
    fallback_std: float
    per: Per
    method: Method
    transform: Transform
    unfitted: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls,
        store: SeriesStore,
        end: int,
        *,
        per: Per = "series",
        method: Method = "standard",
        transform: Transform = "none",
    ) -> "Scaler":
        """Fit on the rows before position `end` of the grid, a block of them at a time.

        A series without a value there takes the statistics of all series together. A robust fit
        holds one float32 copy of these rows for that. With `log1p` all values must be above -1;
        see `find_too_small_for_log1p`.
        """
        mean, std = np.zeros(len(store.ids)), np.ones(len(store.ids))
        fallback_mean, fallback_std = 0.0, 1.0
        unfitted: tuple[str, ...] = ()
        if per != "none":
            count, center, spread = _fit_series(store, end, method, transform)
            fallback_mean, fallback_std = _fit_dataset(
                store, end, method, transform, count, center, spread
            )
            use = (count > 0) & (per == "series")
            mean = np.where(use, center, fallback_mean)
            std = np.where(use, nonzero_spread(center, spread), fallback_std)
            if per == "series":
                unfitted = _named(store.ids, count == 0)
        fallbacks = fallback_mean, fallback_std
        return cls(store.ids, mean, std, *fallbacks, per, method, transform, unfitted)

    def adapt(self, store: SeriesStore) -> "Scaler":
        """Return the statistics for another store's series, fitting those not seen before.

        Known series, by their id, keep their statistics; others, and those that had no value to
        fit, are fitted on all their rows, and take the fallback without a value.
        """
        if store.ids == self.ids and not self.unfitted:
            return self
        place = self._places(store.ids)
        unfitted: tuple[str, ...] = ()
        mean = np.full(len(place), self.fallback_mean)
        std = np.full(len(place), self.fallback_std)
        if self.per == "series" and (place < 0).any():
            end = len(store.grid)
            count, center, spread = _fit_series(store, end, self.method, self.transform)
            mean = np.where(count > 0, center, mean)
            std = np.where(count > 0, nonzero_spread(center, spread), std)
            unfitted = _named(store.ids, (count == 0) & (place < 0))
        mean = np.where(place < 0, mean, self.mean[place])
        std = np.where(place < 0, std, self.std[place])
        return replace(self, ids=store.ids, mean=mean, std=std, unfitted=unfitted)

    def knows(self, ids: Sequence[str]) -> bool:
        """Return whether all of some series keep their statistics, whatever their rows are."""
        return self.per != "series" or bool((self._places(ids) >= 0).all())

    def _places(self, ids: Sequence[str]) -> IntArray:
        """Return which of `mean` and `std` are of each series, -1 where none is."""
        places = pd.Index(self.ids).get_indexer(pd.Index(ids))
        return np.where(pd.Index(ids).isin(self.unfitted), -1, places)

    def scale(self, values: NDArray[Any], series: IntArray) -> FloatArray:
        """Return values in scaled units.

        Args:
            values: in original units, (B, H) or (B, H, C); NaN where missing.
            series: whose they are, (B,) or (B, C).
        """
        mean, std = self._of(series)
        with np.errstate(all="ignore"):  # NaN and infinity are refused by those who forecast
            return (_FORWARD[self.transform](values.astype(np.float64)) - mean) / std

    def unscale(self, values: NDArray[Any], series: IntArray) -> FloatArray:
        """Return values in original units, the inverse of `scale`; infinite if too large."""
        mean, std = self._of(series)
        with np.errstate(all="ignore"):
            return _BACKWARD[self.transform](values.astype(np.float64) * std + mean)

    def _of(self, series: IntArray) -> tuple[FloatArray, FloatArray]:
        return np.expand_dims(self.mean[series], 1), np.expand_dims(self.std[series], 1)


def _named(ids: Sequence[str], chosen: BoolArray) -> tuple[str, ...]:
    return tuple(ids[place] for place in np.flatnonzero(chosen).tolist())


def find_too_small_for_log1p(store: SeriesStore) -> Finding | None:
    """Return what is wrong with values of -1 and less, which have no log1p; None without any."""
    return find_values(
        store,
        lambda values: values <= -1,
        "values too small for log1p",
        "has no log1p, which takes values above -1",
        "Set scaling.transform=asinh or none.",
    )


def find_values(
    store: SeriesStore,
    are_wrong: Callable[[FloatArray], BoolArray],
    kind: str,
    text: str,
    remedy: str,
) -> Finding | None:
    """Return an error that names the first value that is wrong and counts all; None without any.

    Args:
        store: the series.
        are_wrong: from values, NaN where missing, to which are wrong.
        kind: what they are called together.
        text: what is wrong with the first one, after its series, stamp and value.
        remedy: what to do.
    """
    finding = None
    for series, values in store.blocks():
        wrong = np.flatnonzero(are_wrong(values))
        if not len(wrong):
            continue
        if finding is None:
            s = series[wrong[0]]
            row = store.offsets[series[0]] + wrong[0]
            stamp = store.stamps(np.array([row - store.offsets[s] + store.starts[s]]))[0]
            text = f"series {store.ids[s]!r}, {stamp}: {values[wrong[0]]:g} {text}"
            finding = Finding("error", kind, text, remedy, count=0)
        finding.count += len(wrong)
    return finding


def _observed(
    store: SeriesStore, end: int, transform: Transform
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield the transformed observed values before `end` and their series, block by block."""
    for series, values in store.blocks(end):
        observed = ~np.isnan(values)
        if observed.any():
            yield series[observed], _FORWARD[transform](values[observed])


def _fit_series(
    store: SeriesStore, end: int, method: Method, transform: Transform
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return count, center and spread of each series' values, (S,) each; 0 without a value."""
    num_series = len(store.ids)
    counts = np.zeros(num_series, dtype=np.int64)
    centers, spreads = np.zeros(num_series), np.zeros(num_series)
    for series, values in _observed(store, end, transform):
        first, last = series[0], series[-1] + 1  # whole series, in order
        count = np.bincount(series - first, minlength=last - first)
        if method == "standard":
            center, variance = moments(values, count)
            spread = np.sqrt(variance)
        else:
            _, variance = moments(values, count)
            lower, center, upper = _quartiles(values, count)
            spread = np.where(upper > lower, (upper - lower) / NORMAL_IQR, np.sqrt(variance))
        counts[first:last], centers[first:last], spreads[first:last] = count, center, spread
    return counts, centers, spreads


def _quartiles(values: FloatArray, count: IntArray) -> FloatArray:
    """Return the three quartiles of each group of consecutive values, (3, N); sorts the values.

    Args:
        values: (R,).
        count: values of each group, (N,); the quartiles of none are 0.
    """
    bounds = np.concatenate([[0], np.cumsum(count)])
    for begin, end in pairwise(bounds):
        values[begin:end].sort()
    place = np.array([[0.25], [0.5], [0.75]]) * np.maximum(count - 1, 0)
    below = place.astype(np.int64)
    low = values[np.minimum(bounds[:-1] + below, len(values) - 1)]
    high = values[np.minimum(bounds[:-1] + np.ceil(place).astype(np.int64), len(values) - 1)]
    return np.where(count > 0, low + (place - below) * (high - low), 0.0)


def _fit_dataset(
    store: SeriesStore,
    end: int,
    method: Method,
    transform: Transform,
    counts: IntArray,
    centers: FloatArray,
    spreads: FloatArray,
) -> tuple[float, float]:
    """Return center and spread of all series' values together, given theirs; 0, 1 without any."""
    total = int(counts.sum())
    if not total:
        return 0.0, 1.0
    if method == "standard":
        center, variance = pooled(counts, centers, spreads**2)
        spread: Any = np.sqrt(variance)
    else:
        # Less something in their midst, the values keep their digits in float32.
        midst = np.average(centers, weights=counts)
        values, filled = np.empty(total, dtype=np.float32), 0
        for _, block in _observed(store, end, transform):
            values[filled : filled + len(block)] = block - midst
            filled += len(block)
        quartiles = np.quantile(values, [0.25, 0.5, 0.75], overwrite_input=True)
        lower, center, upper = quartiles.astype(np.float64) + midst
        spread = (upper - lower) / NORMAL_IQR if upper > lower else values.std()
    return float(center), float(nonzero_spread(center, spread))
