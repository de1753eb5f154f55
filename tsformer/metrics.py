"""Sums of forecast errors, exact over any number of batches and ranks."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from tsformer.data.table import SeriesTable
from tsformer.data.types import FloatArray


class ErrorSums(Metric):
    """Absolute and squared errors by series and horizon step; missing truth does not count."""

    full_state_update = False
    absolute: Tensor
    squared: Tensor
    count: Tensor

    def __init__(self, num_series: int, horizon: int, num_channels: int) -> None:
        """Start from zero, (S, H, C) in double precision."""
        super().__init__()
        zeros = torch.zeros(num_series, horizon, num_channels, dtype=torch.float64)
        for name in ("absolute", "squared", "count"):
            self.add_state(name, zeros.clone(), dist_reduce_fx="sum")

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor, series: Tensor) -> None:
        """Add a batch.

        Args:
            forecast: (B, H, C).
            target: truth, (B, H, C).
            observed: True where `target` is a measurement, (B, H, C).
            series: index of each window's series, (B,).
        """
        error = (forecast.double() - target.double()).where(observed, 0.0)
        self.absolute.index_add_(0, series, error.abs())
        self.squared.index_add_(0, series, error.square())
        self.count.index_add_(0, series, observed.double())

    def compute(self) -> "Errors":
        """Return the sums as arrays."""
        return Errors(*(x.cpu().numpy() for x in (self.absolute, self.squared, self.count)))


class Errors(NamedTuple):
    """Sums over windows, each (S, H, C)."""

    absolute: FloatArray
    squared: FloatArray
    count: FloatArray  # type: ignore[assignment]  # hides tuple.count

    def rescaled(self, scale: FloatArray) -> "Errors":
        """Return the sums in other units: errors times `scale`, (S, C)."""
        factor = scale[:, None, :]
        return Errors(self.absolute * factor, self.squared * factor**2, self.count)

    def mae(self) -> float:
        """Return the mean absolute error over all observed steps."""
        return float(self.absolute.sum() / self.count.sum())

    def mse(self) -> float:
        """Return the mean squared error over all observed steps."""
        return float(self.squared.sum() / self.count.sum())

    def mase(self, naive_error: FloatArray) -> float:
        """Return the mean absolute scaled error, averaged over series (Hyndman & Koehler 2006).

        Args:
            naive_error: see `seasonal_naive_error`, (S, C); series where it is NaN do not count.
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


def seasonal_naive_error(table: SeriesTable, end: int, season: int) -> FloatArray:
    """Return the train rows' mean |y[t] - y[t - season]| of each series, the unit of MASE.

    Args:
        table: the series.
        end: position of the grid behind the last train row.
        season: steps.

    Returns:
        (S, C); NaN where no such difference exists or all are 0.
    """
    error = np.full((len(table.lengths), table.target.shape[1]), np.nan)
    for series, start in enumerate(table.starts):
        begin, stop = table.offsets[series], table.offsets[series + 1]
        y = table.target[begin : min(stop, begin + max(end - start, 0))]
        if len(y) > season:
            difference = np.abs(y[season:] - y[:-season])
            observed = ~np.isnan(difference)
            mean = np.where(observed, difference, 0).sum(0) / np.maximum(observed.sum(0), 1)
            error[series] = np.where(mean > 0, mean, np.nan)
    return error
