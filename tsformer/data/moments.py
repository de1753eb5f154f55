"""Mean and variance of parts of the data, and of the whole from its parts."""

import numpy as np

from tsformer.data.types import FloatArray, IntArray

NORMAL_IQR = 1.349  # interquartile range of a normal distribution of standard deviation 1


def moments(values: FloatArray, count: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance (ddof=0) of groups of consecutive values, (N,) each.

    Args:
        values: (R,), none missing.
        count: values of each group, (N,); those without a value have mean and variance 0.
    """
    some = count > 0
    firsts = (np.cumsum(count) - count)[some]

    def mean_of(values: FloatArray) -> FloatArray:
        mean = np.zeros(len(count))
        mean[some] = np.add.reduceat(values, firsts) / count[some]
        return mean

    mean = mean_of(values)
    # A sum of millions of values is off by its rounding; that of the deviations is not.
    deviation = values - np.repeat(mean, count)
    error = mean_of(deviation)
    variance = mean_of(deviation**2) - error**2
    return mean + error, np.maximum(variance, 0)


def pooled(
    count: IntArray, mean: FloatArray, variance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return mean and variance of all values together from those of P parts, (P, ...) each."""
    divisor = np.maximum(count.sum(axis=0), 1)
    whole = (count * mean).sum(axis=0) / divisor
    return whole, (count * (variance + (mean - whole) ** 2)).sum(axis=0) / divisor


def nonzero_spread(center: FloatArray, spread: FloatArray) -> FloatArray:
    """Return the spread, and 1 where it is 0 or the rounding dust of a constant, not blown up."""
    return np.where(spread <= 1e-15 * np.abs(center), 1.0, spread)
