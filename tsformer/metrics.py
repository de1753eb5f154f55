"""Sums of forecast errors, exact over any number of batches and ranks."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from tsformer.data.store import SeriesStore
from tsformer.data.types import FloatArray


class ErrorSums(Metric):
    """Absolute and squared errors by group of series and horizon step; missing truth counts not."""

    full_state_update = False
    absolute: Tensor
    squared: Tensor
    count: Tensor

    def __init__(self, num_groups: int, horizon: int, num_channels: int) -> None:
        """Start from zero, (N, H, C) in double precision."""
        super().__init__()
        zeros = torch.zeros(num_groups, horizon, num_channels, dtype=torch.float64)
        for name in ("absolute", "squared", "count"):
            self.add_state(name, zeros.clone(), dist_reduce_fx="sum")

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor, series: Tensor) -> None:
        """Add a batch.

        Args:
            forecast: (B, H, C).
            target: truth, (B, H, C).
            observed: True where `target` is a measurement, (B, H, C).
            series: index of each window's group, (B,).
        """
        error = (forecast.double() - target.double()).where(observed, 0.0)
        self.absolute.index_add_(0, series, error.abs())
        self.squared.index_add_(0, series, error.square())
        self.count.index_add_(0, series, observed.double())

    def compute(self) -> "Errors":
        """Return the sums as arrays."""
        return Errors(*(x.cpu().numpy() for x in (self.absolute, self.squared, self.count)))


class Errors(NamedTuple):
    """Sums over windows, each (N, H, C)."""

    absolute: FloatArray
    squared: FloatArray
    count: FloatArray  # type: ignore[assignment]  # hides tuple.count

    def of(self, members: NDArray[np.bool_]) -> "Errors":
        """Return the errors of some channels of some groups alone, given which, (N, C)."""
        kept = members[:, None, :]
        return Errors(self.absolute * kept, self.squared * kept, self.count * kept)

    def mae(self) -> float:
        """Return the mean absolute error over all observed steps."""
        return _ratio(self.absolute.sum(), self.count.sum())

    def mse(self) -> float:
        """Return the mean squared error over all observed steps."""
        return _ratio(self.squared.sum(), self.count.sum())

    def mase(self, naive_error: FloatArray) -> float:
        """Return the mean absolute scaled error, averaged over series (Hyndman & Koehler 2006).

        Args:
            naive_error: see `seasonal_naive_error`, by group and channel, (N, C); series where it
                is NaN do not count.
        """
        count = self.count.sum(axis=1)
        mae = np.divide(
            self.absolute.sum(axis=1), count, out=np.full_like(count, np.nan), where=count > 0
        )
        scaled = mae / naive_error
        return float(np.nanmean(scaled)) if np.isfinite(scaled).any() else float("nan")

    def mae_by_step(self) -> NDArray[np.float64]:
        """Return the mean absolute error of each horizon step, (H,)."""
        return self.absolute.sum(axis=(0, 2)) / self.count.sum(axis=(0, 2))


def _ratio(total: float, count: float) -> float:
    return float(total / count) if count else float("nan")


def seasonal_naive_error(store: SeriesStore, end: int, season: int) -> FloatArray:
    """Return the train rows' mean |y[t] - y[t - season]| of each series, the unit of MASE.

    Args:
        store: the series.
        end: position of the grid behind the last train row.
        season: steps.

    Returns:
        (S,); NaN where no such difference exists or all are 0.
    """
    error = np.full(len(store.starts), np.nan)
    for series, (start, stop) in enumerate(zip(store.starts, store.ends, strict=True)):
        y = store.values(series, start, min(stop, end))
        difference = np.abs(y[season:] - y[:-season])
        difference = difference[~np.isnan(difference)]
        if difference.any():
            error[series] = difference.mean()
    return error
