"""Forecasts by gradient-boosted trees (LightGBM), one model for all series, where installed."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from tsformer.baselines.past import is_constant, past_of
from tsformer.data.calendar import grid_features, has_years, seasonal_periods, span_years
from tsformer.data.store import SeriesStore
from tsformer.data.types import Float32Array, FloatArray, IntArray

_TREES: dict[str, Any] = {"n_estimators": 300, "learning_rate": 0.05, "random_state": 0}
_TRAIN_ROWS = 2_000_000  # at most
_ROWS_AT_ONCE = 1_000_000  # of pasts that are forecast from


def forecast_boosting(
    store: SeriesStore,
    series: IntArray,
    origins: IntArray,
    *,
    steps: int,
    history: int,
    num_threads: int = 1,
) -> FloatArray:
    """Train on the rows before the first origin, and forecast each window step by step, (W, H).

    The model knows the last values, those a season and two shortest seasons ago, their mean over
    the shortest season, and the place in the day, week and year. It is trained on stretches of
    `history` steps, the newest of each series first, each scaled by its own mean and deviation,
    as the past of a window is. What `past_of` fills counts as if it had been measured. A window
    whose past is constant repeats its last value.

    Args:
        store: the series.
        series: of each window, (W,).
        origins: grid position of each window's first step, (W,).
        steps: to forecast, H.
        history: steps before an origin that are seen.
        num_threads: of LightGBM; the forecasts do not depend on it.

    Returns:
        Forecasts; NaN where a window has no value before it, and, if no series has two different
        values before the first origin, where a window's past is not constant.
    """
    found = np.full((len(series), steps), np.nan)
    has_past = origins > store.starts[series]
    if not has_past.any():
        return found
    first = int(origins[has_past].min())
    calendar = grid_features(
        store.extended(steps),
        calendar=True,
        holidays=None,
        zone=None,
        yearly=has_years(store.freq) and span_years(store.grid[:first]),
    )
    stretches = list(_stretches(store, np.unique(series), first, history))
    model = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lags that reach before the start of a past
        if stretches:
            model = _untrained(store.freq, history, num_threads)
            train = _frame(stretches, calendar)
            model.fit(train, static_features=[], dropna=False, as_numpy=True)
        at_once = max(_ROWS_AT_ONCE // history, 1)
        for begin in range(0, len(series), at_once):
            part = slice(begin, begin + at_once)
            pasts = [
                past_of(store, int(member), int(origin), history)
                for member, origin in zip(series[part], origins[part], strict=True)
            ]
            found[part] = _forecast(model, pasts, origins[part], calendar, steps)
    return found


def _stretches(
    store: SeriesStore, series: IntArray, end: int, history: int
) -> Iterator[tuple[int, FloatArray]]:
    """Yield grid position and values of what the model is trained on: none of it is constant.

    Of many series some are taken, evenly, and of long ones the newest stretches.
    """
    most = max(_TRAIN_ROWS // history, 1)
    if len(series) > most:
        series = series[np.linspace(0, len(series) - 1, most).astype(np.int64)]
    for member in series.tolist():
        for stop in range(end, int(store.starts[member]), -history)[: most // len(series)]:
            y = past_of(store, member, stop, history)
            if not is_constant(y):
                yield stop - len(y), y


def _untrained(freq: str, history: int, num_threads: int) -> Any:
    from lightgbm import LGBMRegressor
    from mlforecast import MLForecast
    from mlforecast.lag_transforms import RollingMean
    from mlforecast.target_transforms import LocalStandardScaler

    seasons = list(seasonal_periods(freq).values())
    lags = {1, 2, 3, *seasons, 2 * seasons[0]}
    return MLForecast(
        models={
            "forecast": LGBMRegressor(
                **_TREES, n_jobs=num_threads, deterministic=True, force_row_wise=True, verbosity=-1
            )
        },
        freq=1,  # stamps are grid positions, so that any grid will do
        lags=sorted(lag for lag in lags if lag < history),
        lag_transforms={1: [RollingMean(seasons[0], min_samples=1)]} if seasons[0] > 1 else None,
        target_transforms=[LocalStandardScaler()],
        num_threads=num_threads,
    )


def _forecast(
    model: Any, pasts: list[FloatArray], origins: IntArray, calendar: Float32Array, steps: int
) -> FloatArray:
    """Forecast what follows each past, (B, H); without a model what follows constant ones."""
    found = np.full((len(pasts), steps), np.nan)
    usable = []
    for window, y in enumerate(pasts):
        if not is_constant(y):
            usable.append(window)
        elif len(y):
            found[window] = y[-1]
    if usable and model is not None:
        known = [(int(origins[window]) - len(pasts[window]), pasts[window]) for window in usable]
        positions = origins[usable][:, None] + np.arange(steps)
        future = _rows(np.repeat(np.arange(len(usable)), steps), positions.ravel(), calendar)
        forecast = model.predict(steps, new_df=_frame(known, calendar), X_df=future)
        found[usable] = forecast["forecast"].to_numpy().reshape(len(usable), steps)
    return found


def _frame(pieces: list[tuple[int, FloatArray]], calendar: Float32Array) -> pd.DataFrame:
    """Return pieces of series, each with its first grid position, as series of their own."""
    lengths = [len(y) for _, y in pieces]
    ids = np.repeat(np.arange(len(pieces)), lengths)
    positions = np.concatenate([begin + np.arange(len(y)) for begin, y in pieces])
    return _rows(ids, positions, calendar).assign(y=np.concatenate([y for _, y in pieces]))


def _rows(ids: IntArray, positions: IntArray, calendar: Float32Array) -> pd.DataFrame:
    features = {f"calendar{k}": column[positions] for k, column in enumerate(calendar.T)}
    return pd.DataFrame({"unique_id": ids, "ds": positions, **features})
