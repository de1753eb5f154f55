"""The arguments of a forecaster's methods, checked."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from tsformer.errors import ConfigError

MAX_STEPS = 1_000_000
MAX_PATHS = 1_000_000


@dataclass(frozen=True)
class Asked:
    """What is asked of each window beside a point forecast.

    Attributes:
        quantiles: levels by the ends of their columns' names, such as `lo-90`, Q.
        num_paths: sample paths, M.
        adaptive: whether conformal offsets follow the latest windows.
        seed: of what is drawn.
    """

    quantiles: dict[str, float]
    num_paths: int = 0
    adaptive: bool = False
    seed: int = 0

    @property
    def names(self) -> list[str]:
        """Columns of the forecasts: points, quantiles, paths, 1+Q+M."""
        paths = [f"sample-{number + 1}" for number in range(self.num_paths)]
        return ["tsformer", *(f"tsformer-{name}" for name in [*self.quantiles, *paths])]


def quantile_levels(
    level: float | Sequence[float], quantiles: float | Sequence[float]
) -> dict[str, float]:
    """Return the quantile levels that are asked for, by the ends of their columns' names.

    Args:
        level: nominal coverage of central intervals in percent.
        quantiles: levels of quantiles.

    Raises:
        ConfigError: one of them is no number or out of range.
    """
    levels: dict[str, float] = {}
    for percent in _numbers("level", level):
        if not 1 <= percent <= 99.99:  # 0.9 is meant as 90
            raise ConfigError(f"level={percent}: give percents from 1 to 99.99, such as 90.")
        levels[f"lo-{_text(percent)}"] = round((100 - percent) / 200, 9)
        levels[f"hi-{_text(percent)}"] = round((100 + percent) / 200, 9)
    for quantile in _numbers("quantiles", quantiles):
        if not 0 < quantile < 1:
            raise ConfigError(f"quantiles={quantile}: give levels between 0 and 1.")
        levels[f"q-{_text(quantile)}"] = quantile
    return levels


def count(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number, also one of NumPy's.

    Raises:
        ConfigError: it is none, such as True, or below `least`.
    """
    try:
        if isinstance(value, bool):
            raise TypeError("a truth value")
        number = index(value)
    except TypeError as error:
        raise ConfigError(f"{name}={value!r}: give a whole number from {least} up.") from error
    if not least <= number < 2**63:
        raise ConfigError(f"{name}={number}: give a whole number from {least} up.")
    return number


def num_steps(name: str, value: Any) -> int:
    """Return a number of steps.

    Raises:
        ConfigError: it is none, or more than memory holds of any use.
    """
    steps = count(name, value)
    if steps > MAX_STEPS:
        raise ConfigError(f"{name}={steps}: give at most {MAX_STEPS:,} steps.")
    return steps


def paths(value: Any) -> int:
    """Return a number of sample paths; 0 when None.

    Raises:
        ConfigError: it is none, or more than anyone can look at.
    """
    if value is None:
        return 0
    number = count("num_samples", value)
    if number > MAX_PATHS:
        raise ConfigError(f"num_samples={number}: give at most {MAX_PATHS:,} paths.")
    return number


def names(argument: str, value: Any) -> list[str]:
    """Return a name, or several, as a list.

    Raises:
        ConfigError: it is neither.
    """
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, Collection) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"{argument}={value!r}: give a name, or a list of names.")
    return list(given)


def _numbers(name: str, values: float | Sequence[float]) -> list[float]:
    try:
        given = np.asarray(() if values is None else values)
        numbers = np.atleast_1d(given.astype(np.float64))
        if numbers.ndim > 1 or given.dtype == bool:
            raise ValueError("a list in a list, or truth values")
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name}={values!r}: give a number or a list of numbers.") from error
    return numbers.tolist()


def _text(number: float) -> str:
    """Return all digits of a number that are not 0 at its end."""
    return np.format_float_positional(number, trim="-")
