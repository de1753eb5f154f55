"""Forecasts of windows by baselines, each by its name."""

import logging
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from itertools import repeat

import numpy as np

from tsformer.baselines.boosting import forecast_boosting
from tsformer.baselines.naive import naive_seasons, seasonal_naive
from tsformer.baselines.past import past_of
from tsformer.baselines.statistical import MODELS, forecast_window, seasons_of
from tsformer.data.store import SeriesStore
from tsformer.data.types import FloatArray, IntArray
from tsformer.errors import ConfigError, TsformerError

log = logging.getLogger(__name__)

BASELINES = ("seasonal_naive", *MODELS, "lightgbm")  # names in the config
BOOSTING = "LightGBM"
_NEEDS = {
    **dict.fromkeys(MODELS, ("baselines", ("statsforecast",))),
    "lightgbm": ("lightgbm", ("mlforecast", "lightgbm")),
}
_SECONDS = 30  # between two lines of progress
_AT_ONCE = 4  # windows that a process takes
_Result = tuple[FloatArray, str | None]  # forecasts, and why no model made them


def check_installed(names: Iterable[str]) -> None:
    """Check that baselines are known, and that the packages are there that compute them.

    Raises:
        ConfigError: one is not.
    """
    names = list(names)
    for name in names:
        if name not in BASELINES:
            raise ConfigError(f"no baseline {name!r} is known; choose from {', '.join(BASELINES)}.")
    for name in names:
        extra, packages = _NEEDS.get(name, ("", ()))
        missing = [package for package in packages if find_spec(package) is None]
        if missing:
            raise ConfigError(
                f"the baseline {name} needs the package {' and '.join(missing)}: "
                f"pip install 'tsformer[{extra}]'"
            )


def baseline_forecasts(
    store: SeriesStore,
    series: IntArray,
    origins: IntArray,
    *,
    steps: int,
    names: Sequence[str],
    levels: Sequence[float] = (),
    history: int = 1500,
    num_workers: int = 1,
) -> dict[str, FloatArray]:
    """Forecast windows by baselines.

    Rows before its origin are all that a window is forecast from: by seasonal naive forecasts any
    of them, by others the last `history`, with gaps filled as `past_of` does; LightGBM is trained
    once, on rows before the first origin of all. How long it takes is logged now and then.

    Args:
        store: the series.
        series: of each window, (W,).
        origins: grid position of each window's first step, (W,).
        steps: to forecast, H.
        names: of `BASELINES`.
        levels: of the quantiles, 0 < level < 1, (Q,).
        history: steps before an origin that a model is fitted to.
        num_workers: processes that fit statistical models, and threads of LightGBM.

    Returns:
        By the method's name as it is shown, point forecasts and quantiles, (W, H, 1+Q). NaN where
        there is no value to forecast from. Seasonal naive forecasts and LightGBM have no
        quantiles: they are NaN; those of others are the ends of their prediction intervals, and
        the median is the mean.

    Raises:
        ConfigError: a name is unknown, or a package is not installed.
    """
    check_installed(names)
    found: dict[str, FloatArray] = {}
    for name in names:
        if name == "seasonal_naive":
            for shown, season in naive_seasons(store.freq).items():
                point = seasonal_naive(store, series[:, None], origins, steps, season)[..., 0]
                found[shown] = _with_quantiles(point, levels)
        elif name == "lightgbm":
            point = forecast_boosting(
                store, series, origins, steps=steps, history=history, num_threads=num_workers
            )
            found[BOOSTING] = _with_quantiles(point, levels)
        else:
            found[MODELS[name]] = _forecast_statistical(
                name, store, series, origins, steps, levels, history, num_workers
            )
    return found


def _with_quantiles(point: FloatArray, levels: Sequence[float]) -> FloatArray:
    missing = np.full((*point.shape, len(levels)), np.nan)
    return np.concatenate([point[..., None], missing], axis=-1)


def _forecast_statistical(
    name: str,
    store: SeriesStore,
    series: IntArray,
    origins: IntArray,
    steps: int,
    levels: Sequence[float],
    history: int,
    num_workers: int,
) -> FloatArray:
    """Fit a model to the past of each window, in some processes, (W, H, 1+Q)."""
    windows = zip(series.tolist(), origins.tolist(), strict=True)
    pasts = [past_of(store, member, origin, history) for member, origin in windows]
    seasons = [seasons_of(store.freq, len(y)) for y in pasts]
    jobs = (repeat(name), pasts, seasons, repeat(steps), repeat(tuple(levels)))
    if num_workers == 1 or len(pasts) <= _AT_ONCE:
        return _gathered(name, map(forecast_window, *jobs), len(pasts), steps, len(levels))
    spawn = multiprocessing.get_context("spawn")  # a fork would copy the locks of other threads
    try:
        with ProcessPoolExecutor(num_workers, spawn) as pool:
            results = pool.map(forecast_window, *jobs, chunksize=_AT_ONCE)
            return _gathered(name, results, len(pasts), steps, len(levels))
    except BrokenProcessPool as error:
        raise TsformerError(
            f"a process that fits {MODELS[name]} has died, or could not start. In a script of your "
            'own, call it under `if __name__ == "__main__":`. Otherwise memory may be short: lower '
            "num_workers."
        ) from error


def _gathered(
    name: str,
    results: Iterable[_Result],
    num_windows: int,
    steps: int,
    num_levels: int,
) -> FloatArray:
    """Return the forecasts of all windows, (W, H, 1+Q), and tell how many are no model's."""
    found = np.empty((num_windows, steps, 1 + num_levels))
    failures = []
    for window, (values, failure) in enumerate(_followed(name, results, num_windows)):
        found[window] = values.T
        if failure:
            failures.append(failure)
    if failures:
        log.warning(
            "%s could not be fitted to %s of %s windows, which repeat their last value (%s)",
            *(MODELS[name], f"{len(failures):,}", f"{num_windows:,}", failures[0]),
        )
    return found


def _followed(name: str, results: Iterable[_Result], total: int) -> Iterator[_Result]:
    """Yield results, and log now and then how many there are."""
    told = time.monotonic()
    for number, result in enumerate(results, 1):
        now = time.monotonic()
        if now - told >= _SECONDS:
            told = now
            log.info("%s: %s of %s windows so far", MODELS[name], f"{number:,}", f"{total:,}")
        yield result
