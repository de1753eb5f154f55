"""What a forecast attends to: maps by layer and head, and what they say of the context."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tsformer.data.checks import listed
from tsformer.data.parsing import id_text
from tsformer.data.sampling import BatchSampler
from tsformer.data.scaling import Scaler
from tsformer.data.store import SeriesStore
from tsformer.data.types import Float32Array, FloatArray, IntArray
from tsformer.errors import ConfigError, DataError
from tsformer.nn.maps import attention_weights
from tsformer.prediction.forecasting import as_inputs_of
from tsformer.prediction.origins import OriginForecaster


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of one forecast, of P context tokens and T horizon tokens.

    A row is a token that attends, a column one attended to; rows sum to 1. Context tokens without a
    value have weight 0, and horizon tokens do not see later ones.

    Attributes:
        series: what is forecast, the names of the C channels.
        encoder: within the context, (layers, N, P, P).
        decoder: within the horizon, (layers, N, T, T).
        cross: of the horizon over the context, (layers, N, T, P).
        context: time of each step of the context, (L,), also before a shorter series begins.
        horizon: time of each step of the horizon, (H,).
        patch_len: steps of a token, p; the last token may reach beyond the horizon.
    """

    series: tuple[str, ...]
    encoder: FloatArray
    decoder: FloatArray
    cross: FloatArray
    context: pd.DatetimeIndex
    horizon: pd.DatetimeIndex
    patch_len: int

    @property
    def context_tokens(self) -> pd.DatetimeIndex:
        """First step of each context token, (P,)."""
        return self.context[:: self.patch_len]

    @property
    def horizon_tokens(self) -> pd.DatetimeIndex:
        """First step of each horizon token, (T,)."""
        return self.horizon[:: self.patch_len]

    def draws_on(self) -> pd.DataFrame:
        """Return how much each horizon step draws on each context step, (H, L).

        Rows are steps of the horizon, columns steps of the context, by their time; rows sum to 1.
        Attention rollout (Abnar & Zuidema 2020): heads are averaged, each layer passes on half of
        what it got and half of what it attended to, and cross-attention ends in the context by way
        of the encoder's maps. The steps of a token share its weight alike.

        It tells where the transformer looks, and no more: not what the values there do to the
        forecast, nor what else enters it, which is the linear skip, the decoder's own input and
        future covariates.
        """
        passed_on = np.eye(self.encoder.shape[-1])
        memory = passed_on  # (P, P)
        for within in self.encoder.mean(axis=1, dtype=np.float64):
            memory = (passed_on + within) @ memory / 2
        drawn = np.zeros(self.cross.shape[-2:])  # (T, P)
        decoder = self.decoder.mean(axis=1, dtype=np.float64)
        cross = self.cross.mean(axis=1, dtype=np.float64)
        for within, over in zip(decoder, cross, strict=True):
            drawn = (drawn + within @ drawn) / 2
            drawn = (drawn + over @ memory) / 2
        drawn /= drawn.sum(axis=1, keepdims=True)  # the rest is the decoder's own input
        p = self.patch_len
        steps = drawn.repeat(p, axis=0).repeat(p, axis=1)[: len(self.horizon)] / p
        return pd.DataFrame(steps, self.horizon, self.context)


def attention_maps(
    forecaster: OriginForecaster,
    groups: IntArray,
    origins: IntArray,
    scaler: Scaler,
    future: Float32Array,
) -> list[AttentionMaps]:
    """Return the attention weights of windows of one horizon; see `OriginForecaster.forecast`.

    Raises:
        DataError: a forecast is not finite.
    """
    forecaster.forecast(groups, origins, scaler, future)  # refuses what `predict` refuses
    config, network, store = forecaster.config, forecaster.network, forecaster.history.store
    windows = forecaster.windows(groups, origins, scaler, future)
    maps = []
    for numbers in BatchSampler(windows.index, forecaster.batch_size, shuffle=False):
        inputs = as_inputs_of(network, windows[numbers])
        parts = (part.cpu().numpy() for part in attention_weights(network, *inputs))
        for number, encoder, decoder, cross in zip(numbers, *parts, strict=True):
            origin = int(origins[number])
            maps.append(
                AttentionMaps(
                    tuple(store.ids[series] for series in groups[number]),
                    encoder,
                    decoder,
                    cross,
                    context=_stamps(store, origin - config.context_length, origin),
                    horizon=_stamps(store, origin, origin + config.horizon),
                    patch_len=config.model.patch_len,
                )
            )
    return maps


def chosen_groups(
    store: SeriesStore, groups: IntArray, ids: Any | Sequence[Any] | None
) -> IntArray:
    """Return which groups hold a series of given ids, rising; all when `ids` is None.

    Args:
        store: the series.
        groups: (N, C).
        ids: one or several, of the table, or names of its series.

    Raises:
        DataError: there is no such series.
        ConfigError: none is given.
    """
    if ids is None:
        return np.arange(len(groups))
    several = isinstance(ids, (list, tuple, set, np.ndarray, pd.Series, pd.Index))
    wanted = {id_text(id) for id in (ids if several else [ids])}
    if not wanted:
        raise ConfigError("ids: there is none. Name series, or leave it out for all of them.")
    named = np.array(store.ids, dtype=object)
    of_table = np.array(store.table_ids, dtype=object).repeat(store.num_targets)
    if unknown := sorted(wanted.difference(named, of_table)):
        raise DataError(f"ids: the table has no series {unknown[0]!r}, but {listed(store.ids)}.")
    is_wanted = np.isin(named, list(wanted)) | np.isin(of_table, list(wanted))
    return np.flatnonzero(is_wanted[groups].any(axis=1))


def _stamps(store: SeriesStore, begin: int, end: int) -> pd.DatetimeIndex:
    """Return the times at grid positions begin <= t < end; `begin` may be below 0."""
    missing = max(-begin, 0)
    before = pd.date_range(end=store.grid[0], periods=missing + 1, freq=store.freq)[:-1]
    longer = replace(store, grid=before.as_unit(store.grid.unit).append(store.grid))
    return longer.stamps(np.arange(begin, end) + missing)
