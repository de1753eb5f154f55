"""Forecasts by statistical models of each window's own past, where statsforecast is installed."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tsformer.baselines.past import is_constant
from tsformer.data.calendar import seasonal_periods
from tsformer.data.types import FloatArray

# Names in the config, and as they are shown.
MODELS = {
    "auto_ets": "AutoETS",
    "auto_theta": "AutoTheta",
    "mstl": "MSTL",
    "auto_arima": "AutoARIMA",
}
_LONGEST_ETS = 24  # steps of a season that exponential smoothing has a state for
_LONGEST_ARIMA = 12  # steps of a season whose coefficients ARIMA finds in seconds
_LONGEST_DIFFERENCES = 100  # steps of a season that ARIMA's differences span within seconds
_FEWEST = 10  # steps to fit to


def seasons_of(freq: str, length: int) -> list[int]:
    """Return the steps of each season that a past of so many steps shows twice, rising."""
    return [s for s in seasonal_periods(freq).values() if 1 < s <= length // 2]


def build(name: str, seasons: Sequence[int]) -> Any:
    """Return a model that has not been fitted.

    `mstl` takes all seasons off and forecasts what is left by exponential smoothing (Bandara et
    al. 2021); without a season it is exponential smoothing alone. The others know the shortest
    season: `auto_theta` (Fiorucci et al. 2016) of any length; `auto_ets` and `auto_arima` (Hyndman
    & Khandakar 2008) as far as they can. Exponential smoothing has none of more than 24 steps.
    ARIMA compares its candidates by an approximate likelihood, as R's does for pasts of more than
    150 steps. It takes differences over a season of 13 to 100 steps but finds no coefficients of
    it, which would take a minute a fit, and forgets longer ones.

    Args:
        name: one of `MODELS`.
        seasons: steps of each season, rising.
    """
    from statsforecast import models

    shortest = seasons[0] if seasons else 1
    match name:
        case "mstl":
            return models.MSTL(season_length=list(seasons)) if seasons else models.AutoETS()
        case "auto_theta":
            return models.AutoTheta(season_length=shortest)
        case "auto_ets":
            return models.AutoETS(season_length=shortest if shortest <= _LONGEST_ETS else 1)
        case "auto_arima":
            season = shortest if shortest <= _LONGEST_DIFFERENCES else 1
            differences = {"D": 1, "max_P": 0, "max_Q": 0} if season > _LONGEST_ARIMA else {}
            return models.AutoARIMA(season_length=season, approximation=True, **differences)
    raise ValueError(f"no statistical model {name!r}")


def forecast_window(
    name: str, y: FloatArray, seasons: Sequence[int], steps: int, levels: Sequence[float]
) -> tuple[FloatArray, str | None]:
    """Return mean and quantiles of what follows `y`, (1+Q, H), and why they are a random walk's.

    A random walk takes the place of the model where `y` is constant or has fewer than 10 values,
    which is nothing to tell, and where the model cannot be fitted. Without a value all is NaN.

    Args:
        name: one of `MODELS`.
        y: the past, (N,), without missing values.
        seasons: steps of each season that the model may know.
        steps: H.
        levels: of the quantiles, (Q,).
    """
    if is_constant(y) or len(y) < _FEWEST:
        return random_walk(y, steps, levels), None
    try:
        found = forecast_past(build(name, seasons), y, steps, levels)
    except Exception as error:  # whatever a search in a library may come upon
        return random_walk(y, steps, levels), f"{type(error).__name__}: {error}"
    if not np.isfinite(found).all():
        return random_walk(y, steps, levels), "its forecast is not finite"
    return found, None


def forecast_past(model: Any, y: FloatArray, steps: int, levels: Sequence[float]) -> FloatArray:
    """Return mean and quantiles of what follows `y`, (1+Q, H), by a model of statsforecast."""
    names = [quantile_name(level) for level in levels]
    percents = sorted({percent for _, percent in names if percent})
    with warnings.catch_warnings(), _own_random_numbers(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of searches that do not converge
        found = model.forecast(y=y, h=steps, level=percents or None)
    quantiles = [found[f"{end}-{percent}" if percent else "mean"] for end, percent in names]
    return np.stack([found["mean"], *quantiles]).astype(np.float64)


@contextmanager
def _own_random_numbers() -> Iterator[None]:
    """Keep the state of NumPy's global generator, which statsforecast seeds for its intervals."""
    state = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def quantile_name(level: float) -> tuple[str, float]:
    """Return of which central interval, in percent, a quantile is which end: `lo`, 90 of 0.05.

    The median counts as a 0 % interval and is set to the mean.
    """
    percent = round(100 * abs(1 - 2 * level), 6)
    return "lo" if level < 0.5 else "hi", int(percent) if percent.is_integer() else percent


def random_walk(y: FloatArray, steps: int, levels: Sequence[float]) -> FloatArray:
    """Return the last value, and the normal quantiles of a random walk from it on, (1+Q, H)."""
    if len(y) == 0:
        return np.full((1 + len(levels), steps), np.nan)
    from scipy.special import ndtri  # here, as it takes a fifth of a second

    spread = np.sqrt(np.mean(np.diff(y) ** 2)) if len(y) > 1 else 0.0
    deviations = np.concatenate([[0.0], ndtri(np.asarray(levels, float))])
    return y[-1] + spread * deviations[:, None] * np.sqrt(np.arange(1, steps + 1))
