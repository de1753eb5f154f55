"""Which covariates a model uses: by how much its error rises when one of them is swapped."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from tsformer.arguments import Asked
from tsformer.data.calendar import num_calendar_features
from tsformer.data.sampling import BatchSampler
from tsformer.data.types import Float32Array, FloatArray, IntArray
from tsformer.data.windows import WindowBatch, WindowDataset, WindowIndex, group_spans
from tsformer.errors import ConfigError, DataError
from tsformer.evaluation.backtest import last_windows, scalers_before
from tsformer.model.config import ForecasterConfig
from tsformer.model.fitted import FittedModel
from tsformer.nn import ForecastNetwork
from tsformer.prediction.forecasting import forecast_windows
from tsformer.prediction.history import read_history
from tsformer.prediction.origins import OriginForecaster


class Covariate(NamedTuple):
    """A covariate, or features of the calendar that are swapped together.

    Attributes:
        name: of the column, or `calendar` or `holidays`.
        kind: `past`, `future`, `static` or `calendar`.
        features: where it stands in a window's features over time, or in its static ones.
    """

    name: str
    kind: str
    features: slice


class Lenders(NamedTuple):
    """Whose covariates each of N windows gets.

    Attributes:
        groups: groups of the windows that lend what changes with time, (N,).
        origins: grid positions of their first steps, (N,).
        static: groups that lend static covariates, (N,).
    """

    groups: IntArray
    origins: IntArray
    static: IntArray


def covariate_importance(
    model: FittedModel,
    frame: Any,
    *,
    n_windows: int,
    step: int,
    repeats: int,
    seed: int,
    batch_size: int,
) -> pd.DataFrame:
    """Return how much each covariate matters; see `Forecaster.covariate_importance`."""
    config, network, horizon = model.config, model.network, model.horizon
    covariates = covariates_of(config)
    if not covariates:
        raise ConfigError(
            "the model has neither covariates nor calendar features whose importance could be "
            "measured. Fit one with dataset.future_covariates or others, or dataset.calendar=true."
        )
    past = read_history(frame, config)
    # By their ids, so that the order of the table's rows decides nothing.
    names = np.array(past.store.ids, dtype=object)[past.groups[:, 0]]
    past = replace(past, groups=past.groups[np.argsort(names)])
    store, groups = past.store, past.groups
    origins, usable, _ = last_windows(past, n_windows, step, horizon)
    cutoff, group = np.nonzero(usable)
    origin = origins[cutoff, group]
    every = WindowIndex.between(
        store,
        groups,
        begin=0,
        end=len(store.grid),
        context_length=config.context_length,
        horizon=horizon,
    )
    if len(every) < 2:
        raise DataError(
            f"the table has only one window of {config.context_length} and {horizon} steps, "
            "and no other to take covariates from. Give a longer table, or more series."
        )
    history = replace(past, store=store.extended(horizon))
    forecaster = OriginForecaster(model, history, Asked({}), steps=horizon, batch_size=batch_size)
    encoder = config.static.encoder(config.columns.static_covariates)
    static_features = encoder.encode(store.static[groups[:, 0]], encoder.lookups(store.categories))
    texts = np.array(store.table_ids, dtype=object)[groups[:, 0] // store.num_targets]
    ids = np.unique(texts, return_inverse=True)[1]
    # Steps of each context before its series begin, which have no covariates and get none.
    missing = group_spans(store, groups)[0][group] - (origin - config.context_length)

    num_values, error = 0, 0.0
    errors = np.zeros((repeats, len(covariates)))  # sums over all values
    were_swapped = np.zeros(len(covariates), dtype=bool)
    for scaler, numbers in scalers_before(past, config.scaler.scaler(), origins, usable):
        own = np.isin(cutoff, numbers)
        windows = forecaster.windows(groups[group[own]], origin[own], scaler)
        for chosen in BatchSampler(windows.index, batch_size, shuffle=False):
            batch = windows[chosen]
            num_values += int(batch.target_observed.sum())
            error += _absolute_error(network, batch)
        for repeat in range(repeats):
            lenders = draw_lenders(every, group, origin, ids, [seed, repeat])
            others = forecaster.windows(groups[lenders.groups[own]], lenders.origins[own], scaler)
            static = static_features[lenders.static[own]]
            for batch, other in _beside(windows, others, static, missing[own], batch_size):
                for number, covariate in enumerate(covariates):
                    changed, is_other = swapped(batch, other, covariate)
                    errors[repeat, number] += _absolute_error(network, changed)
                    were_swapped[number] |= is_other
    if not num_values:
        raise DataError(
            f"the last windows of {horizon} steps have no observed values to compare forecasts "
            "with. Give series that end with observed values."
        )
    if not np.isfinite(error + errors.sum()):
        raise DataError(
            "the values of some series, or their covariates', are too large to forecast from."
        )
    rises = np.where(were_swapped, errors - error, np.nan) / num_values
    return _table(covariates, error / num_values, rises)


def covariates_of(config: ForecasterConfig) -> list[Covariate]:
    """Return what a model forecasts from beside the target, in the order of its features."""
    found, place = [], 0
    if config.calendar:
        num_features = num_calendar_features(config.freq, config.holidays, yearly=config.yearly)
        place = num_features - (config.holidays is not None)
        if place:
            found.append(Covariate("calendar", "calendar", slice(0, place)))
        if config.holidays is not None:
            found.append(Covariate("holidays", "calendar", slice(place, num_features)))
        place = num_features
    columns = config.columns
    for number, name in enumerate(columns.covariates, place):
        kind = "future" if name in columns.future_covariates else "past"
        found.append(Covariate(name, kind, slice(number, number + 1)))
    for number, name in enumerate(columns.static_covariates):
        found.append(Covariate(name, "static", slice(number, number + 1)))
    return found


def draw_lenders(
    every: WindowIndex, group: IntArray, origin: IntArray, ids: IntArray, seed: list[int]
) -> Lenders:
    """Draw whose covariates windows get: any window of the table, and any id, but their own.

    Args:
        every: windows to draw from, two at least.
        group: of each window, (N,).
        origin: grid position of its first step, (N,).
        ids: number of the table's id of each group, (G,).
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    number = random.integers(len(every), size=len(group))
    lender, first = every.locate(number)
    number += (lender == group) & (first == origin)  # itself: the next one
    lender, first = every.locate(number % len(every))
    # Each id lends to the next one of a random round, so that none has its own.
    present, place = np.unique(ids[group], return_index=True)
    round_ = random.permutation(len(present))
    next_ = np.empty_like(round_)
    next_[round_] = np.roll(round_, 1)
    static = group[place][next_[np.searchsorted(present, ids[group])]]
    return Lenders(lender, first, static)


def swapped(
    batch: WindowBatch, other: WindowBatch, covariate: Covariate
) -> tuple[WindowBatch, bool]:
    """Return windows with one covariate of others, over context and horizon; and if any differs."""
    here = covariate.features
    is_static = covariate.kind == "static"
    names = ["static_features"] if is_static else ["past_features", "future_features"]
    parts, is_other = {}, False
    for name in names:  # past covariates lie after the last of the future features
        own, lent = getattr(batch, name), getattr(other, name)[..., here]
        is_other |= not own[..., here].equal(lent)
        parts[name] = own.clone()
        parts[name][..., here] = lent
    return batch._replace(**parts), is_other


def _beside(
    windows: WindowDataset,
    others: WindowDataset,
    static: Float32Array,
    missing: IntArray,
    batch_size: int,
) -> Iterator[tuple[WindowBatch, WindowBatch]]:
    """Yield batches of N windows, and of those whose covariates they get.

    Args:
        windows: those that are forecast, N.
        others: those that lend what changes with time, N.
        static: features that they get, (N, Fs).
        missing: how many steps of each context have no covariates, (N,).
        batch_size: windows of a batch.
    """
    for chosen in BatchSampler(windows.index, batch_size, shuffle=False):
        other = others[chosen]
        exist = np.arange(windows.context_length) >= missing[chosen, None]  # (B, L)
        yield (
            windows[chosen],
            other._replace(
                past_features=other.past_features * torch.from_numpy(exist)[..., None],
                static_features=torch.from_numpy(static[chosen]),
            ),
        )


def _absolute_error(network: ForecastNetwork, batch: WindowBatch) -> float:
    """Return the sum of the absolute errors of a batch's known values, in scaled units."""
    point = forecast_windows(network, batch).point
    seen = batch.target_observed.numpy()
    with np.errstate(invalid="ignore", over="ignore"):  # refused at the end
        return float(np.abs(point - batch.target.numpy())[seen].sum())


def _table(covariates: list[Covariate], error: float, rises: FloatArray) -> pd.DataFrame:
    """Return the importance of each covariate, given the rises of the error, (R, F)."""
    importance = rises.mean(axis=0)
    table = pd.DataFrame(
        {
            "covariate": [covariate.name for covariate in covariates],
            "kind": [covariate.kind for covariate in covariates],
            "mae": error + importance,
            "importance": importance,
            "std": rises.std(axis=0),
            "ratio": 1 + importance / error if error else np.nan,
        }
    )
    return table.sort_values("importance", ascending=False, kind="stable", ignore_index=True)
