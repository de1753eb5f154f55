"""Sums of forecast errors, exact over any number of batches and ranks."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics import Metric

from tsformer.data.store import SeriesStore
from tsformer.data.types import FloatArray
from tsformer.errors import ConfigError

_SAME_LEVEL = 1e-9  # 1 - 0.9 is not quite 0.1


class ErrorSums(Metric):
    """Absolute and squared errors by group of series and horizon step; missing truth is ignored."""

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
        scaled = self.mae_by_channel() / naive_error
        return float(np.nanmean(scaled)) if np.isfinite(scaled).any() else float("nan")

    def mae_by_channel(self) -> NDArray[np.float64]:
        """Return the mean absolute error of each channel of each group, (N, C)."""
        count = self.count.sum(axis=1)
        return np.divide(
            self.absolute.sum(axis=1), count, out=np.full_like(count, np.nan), where=count > 0
        )

    def mae_by_step(self) -> NDArray[np.float64]:
        """Return the mean absolute error of each horizon step, (H,)."""
        with np.errstate(invalid="ignore"):
            return self.absolute.sum(axis=(0, 2)) / self.count.sum(axis=(0, 2))


class QuantileSums(Metric):
    """What `QuantileErrors` are made of; missing truth is ignored.

    Sums are kept by group and channel, which tell target columns apart; by step as well they would
    outgrow memory where there are many series.
    """

    full_state_update = False
    pinball: Tensor
    forecast: Tensor
    below: Tensor
    under: Tensor
    magnitude: Tensor
    count: Tensor

    def __init__(self, num_groups: int, num_channels: int, levels: Sequence[float]) -> None:
        """Start from zero, in double precision.

        Args:
            num_groups: groups of series that are forecast together, N.
            num_channels: C.
            levels: 0 < level < 1, rising, (Q,).
        """
        super().__init__()
        self.levels = tuple(levels)
        groups = (num_groups, num_channels)
        shapes = {
            **dict.fromkeys(("pinball", "forecast", "below", "under"), (*groups, len(levels))),
            **dict.fromkeys(("magnitude", "count"), groups),
        }
        for name, shape in shapes.items():
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, forecast: Tensor, target: Tensor, observed: Tensor, series: Tensor) -> None:
        """Add a batch.

        Args:
            forecast: quantiles at the levels, (B, H, C, Q).
            target: truth, (B, H, C).
            observed: True where `target` is a measurement, (B, H, C).
            series: index of each window's group, (B,).
        """
        forecast, target = forecast.double(), target.double().where(observed, 0.0)
        levels = forecast.new_tensor(self.levels)
        seen = observed[..., None]
        error = (target[..., None] - forecast).where(seen, 0.0)
        below = (target[..., None] <= forecast) & seen
        self.pinball.index_add_(
            0, series, torch.maximum(levels * error, (levels - 1) * error).sum(1)
        )
        self.forecast.index_add_(0, series, forecast.where(seen, 0.0).sum(1))
        self.below.index_add_(0, series, below.sum(1).double())
        self.under.index_add_(0, series, (error < 0).sum(1).double())
        self.magnitude.index_add_(0, series, target.abs().sum(1))
        self.count.index_add_(0, series, observed.sum(1).double())

    def compute(self) -> "QuantileErrors":
        """Return the sums as arrays."""
        sums = [getattr(self, name).cpu().numpy() for name in QuantileErrors._fields[1:]]
        return QuantileErrors(self.levels, *sums)


class QuantileErrors(NamedTuple):
    """Sums over windows and their observed steps.

    Attributes:
        levels: (Q,).
        pinball: pinball losses max(level x e, (level - 1) x e), e = truth - forecast, (N, C, Q).
        forecast: forecasts, (N, C, Q).
        below: how many truths are at most the forecast, (N, C, Q).
        under: how many are less than the forecast, (N, C, Q).
        magnitude: absolute truths, (N, C).
        count: observed steps, (N, C).
    """

    levels: tuple[float, ...]
    pinball: FloatArray
    forecast: FloatArray
    below: FloatArray
    under: FloatArray
    magnitude: FloatArray
    count: FloatArray  # type: ignore[assignment]  # hides tuple.count

    def of(self, members: NDArray[np.bool_]) -> "QuantileErrors":
        """Return the errors of some channels of some groups alone, given which, (N, C)."""
        kept = members[..., None]
        return self._replace(
            pinball=self.pinball * kept,
            forecast=self.forecast * kept,
            below=self.below * kept,
            under=self.under * kept,
            magnitude=self.magnitude * members,
            count=self.count * members,
        )

    def mean_pinball(self) -> float:
        """Return the mean pinball loss over all levels and observed steps."""
        return _ratio(self.pinball.mean(axis=-1).sum(), self.count.sum())

    def scaled_crps(self) -> float:
        """Return the weighted quantile loss, an estimate of the CRPS in units of the mean |truth|.

        2 x sum of pinball losses, averaged over levels, / sum of |truth|: twice the pinball loss
        integrated over all levels is the continuous ranked probability score (Gneiting & Raftery
        2007); the ratio is that of Salinas et al. (2020), `mean_wQuantileLoss` in GluonTS.
        """
        return _ratio(2 * self.pinball.mean(axis=-1).sum(), self.magnitude.sum())

    def fraction_below(self) -> FloatArray:
        """Return the fraction of truths that are at most the forecast, (Q,); ideally `levels`."""
        with np.errstate(invalid="ignore"):
            return self.below.sum(axis=(0, 1)) / self.count.sum()

    def coverage(self, nominal: float) -> float:
        """Return the fraction of truths within the central interval, its ends included.

        Raises:
            ConfigError: the interval's ends are not among the levels.
        """
        lower, upper = interval_ends(self.levels, nominal)
        # Counts often equal an end, thus the ends count as within.
        within = self.below[..., upper].sum() - self.under[..., lower].sum()
        return _ratio(within, self.count.sum())

    def width(self, nominal: float) -> float:
        """Return the mean width of the central interval.

        Raises:
            ConfigError: the interval's ends are not among the levels.
        """
        lower, upper = interval_ends(self.levels, nominal)
        width = (self.forecast[..., upper] - self.forecast[..., lower]).sum()
        return _ratio(width, self.count.sum())


def interval_ends(levels: Sequence[float], nominal: float) -> tuple[int, int]:
    """Return which levels are the ends of the central interval.

    Args:
        levels: (Q,).
        nominal: the interval's probability; 0.9 lies between 0.05 and 0.95.

    Raises:
        ConfigError: the interval's ends are not among the levels.
    """
    places = [
        next((i for i, level in enumerate(levels) if abs(level - end) < _SAME_LEVEL), None)
        for end in ((1 - nominal) / 2, (1 + nominal) / 2)
    ]
    lower, upper = places
    if lower is None or upper is None or lower == upper:
        raise ConfigError(
            f"an interval of {100 * nominal:g} % needs the levels {(1 - nominal) / 2:g} and "
            f"{(1 + nominal) / 2:g}; there are {', '.join(f'{level:g}' for level in levels)}."
        )
    return lower, upper


def central_intervals(levels: Sequence[float]) -> list[float]:
    """Return the nominal coverage of each pair of levels around the median, widest first."""
    return [
        round(1 - 2 * level, 9)
        for level in sorted(levels)
        if level < 0.5 - _SAME_LEVEL
        and any(abs(level + other - 1) < _SAME_LEVEL for other in levels)
    ]


def _ratio(total: float, count: float) -> float:
    return float(total / count) if count else float("nan")


def seasonal_naive_error(store: SeriesStore, end: int, season: int, power: int = 1) -> FloatArray:
    """Return the train rows' mean |y[t] - y[t - season]| of each series, the unit of MASE.

    Args:
        store: the series.
        end: position of the grid after the last train row.
        season: steps.
        power: 2 gives the root of the mean square, the unit of RMSSE.

    Returns:
        (S,); NaN where no such difference exists or all are 0.
    """
    error = np.full(len(store.starts), np.nan)
    for series, (start, stop) in enumerate(zip(store.starts, store.ends, strict=True)):
        y = store.values(series, start, min(stop, end))
        difference = np.abs(y[season:] - y[:-season])
        difference = difference[~np.isnan(difference)]
        if difference.any():
            error[series] = (difference**power).mean() ** (1 / power)
    return error
