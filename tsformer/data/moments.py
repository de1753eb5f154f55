"""Mean and variance of parts of the data, and of the whole from its parts."""

import numpy as np

from tsformer.data.types import FloatArray, IntArray


def moments(
    values: FloatArray, group: IntArray, num_groups: int
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return count, mean and variance (ddof=0) of each group's values, (num_groups,) each.

    Args:
        values: (R,), none missing.
        group: of each value, (R,).
        num_groups: groups; those without a value have mean and variance 0.
    """
    count = np.bincount(group, minlength=num_groups)
    divisor = np.maximum(count, 1)
    mean = np.bincount(group, values, num_groups) / divisor
    # A sum of millions of values is off by its rounding; that of the deviations is not.
    deviation = values - mean[group]
    error = np.bincount(group, deviation, num_groups) / divisor
    variance = np.bincount(group, deviation**2, num_groups) / divisor - error**2
    return count, mean + error, np.maximum(variance, 0)


def pooled(
    count: IntArray, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of all values together from those of P parts, (P, ...) each."""
    divisor = np.maximum(count.sum(axis=0), 1)
    whole = (count * mean).sum(axis=0) / divisor
    return whole, (count * (variance + (mean - whole) ** 2)).sum(axis=0) / divisor


def nonzero_spread(center: FloatArray, spread: FloatArray) -> FloatArray:
    """Return the spread, and 1 where it is 0 or the rounding dust of a constant, not blown up."""
    return np.where(spread <= 1e-12 * np.abs(center), 1.0, spread)
