"""cross_validate: what a model would have forecast before the end of each series."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from tsformer.arguments import Asked
from tsformer.data.checks import listed
from tsformer.data.scaling import Scaler
from tsformer.data.store import SeriesStore
from tsformer.data.types import BoolArray, IntArray
from tsformer.data.windows import group_spans
from tsformer.errors import DataError
from tsformer.history import History, forecast_frame, read_history
from tsformer.prediction import OriginForecaster, whole_steps

if TYPE_CHECKING:
    from tsformer.forecaster import Forecaster


def cross_validate(
    forecaster: "Forecaster",
    frame: Any,
    *,
    n_windows: int,
    step: int,
    steps: int,
    asked: Asked,
    refit: Mapping[str, Any] | None,
    batch_size: int,
) -> pd.DataFrame:
    """Return forecasts of the last windows of each series; see `Forecaster.cross_validate`.

    Args:
        forecaster: the model.
        frame: the table.
        n_windows: of each series, W.
        step: steps from one cutoff to the next.
        steps: of a window, H.
        asked: quantiles beside the point forecasts.
        refit: arguments of `fine_tune`, which is called before each cutoff; None: never.
        batch_size: windows forecast at once.
    """
    past = read_history(frame, forecaster.config)
    store, groups = past.store, past.groups
    origins, usable = last_origins(past, n_windows, step, steps)
    history = replace(past, store=store.extended(whole_steps(steps, forecaster.horizon)))

    def model(forecaster: "Forecaster") -> OriginForecaster:
        parts = forecaster.network, forecaster.config, forecaster.conformal
        return OriginForecaster(*parts, history, asked, steps=steps, batch_size=batch_size)

    def models() -> Iterator[tuple[OriginForecaster, Scaler, IntArray]]:
        """Yield model and scaler of some of the windows."""
        if refit is None:
            as_it_is = model(forecaster)
            scaler = forecaster.config.scaler.scaler()
            for adapted, numbers in scalers_before(past, scaler, origins, usable):
                yield as_it_is, adapted, numbers
            return
        from tsformer.fine_tuning import fine_tune

        for number in np.flatnonzero(usable.any(axis=1)):
            tuned = fine_tune(forecaster, _before(past, origins[number]), **refit)
            yield model(tuned), tuned.config.scaler.scaler(), np.array([number])

    found = []
    for window_model, scaler, numbers in models():
        number, group = np.nonzero(usable[numbers])
        members, origin = groups[group], origins[numbers[number], group]
        found.append((members, origin, window_model.forecast(members, origin, scaler)))
    members, origin, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return forecast_frame(history, members, origin, values, asked, with_truth=True)


def last_origins(
    past: History, n_windows: int, step: int, steps: int
) -> tuple[IntArray, BoolArray]:
    """Return where the last windows of each group begin, (W, N), and which can be forecast, (W, N).

    A window can be forecast if a value stands before it; a warning tells of others.

    Args:
        past: the table.
        n_windows: of each group, W, or as many as there are steps.
        step: steps from one window to the next.
        steps: of a window, H; the last one ends with its group.

    Raises:
        DataError: no window can be forecast.
    """
    store, groups = past.store, past.groups
    behind = steps + step * np.arange(min(n_windows, len(store.grid)))[::-1]
    origins = group_spans(store, groups)[1] - behind[:, None]
    usable = origins > _first_values(store)[groups].min(axis=1)
    _tell_unusable(store, groups, usable, steps)
    return origins, usable


def scalers_before(
    past: History, scaler: Scaler, origins: IntArray, usable: BoolArray
) -> Iterator[tuple[Scaler, IntArray]]:
    """Yield a model's scaler for a table's series, and the cutoffs, numbers below W, it is for.

    It is one for all, unless the model does not know some series: then it is one a cutoff, by the
    rows before it.

    Args:
        past: the table.
        scaler: of the model.
        origins: where windows begin, (W, N).
        usable: which of them are forecast, (W, N).
    """
    numbers = np.flatnonzero(usable.any(axis=1))
    if scaler.per != "series" or set(past.store.ids) <= set(scaler.ids):
        yield scaler.adapt(past.store), numbers
        return
    for number in numbers:
        yield scaler.adapt(_before(past, origins[number]).store), np.array([number])


def _before(past: History, origins: IntArray) -> History:
    """Return a history without the rows from each group's origin on, (N,)."""
    ends = np.empty(len(past.store.ids), dtype=np.int64)
    ends[past.groups] = origins[:, None]
    return replace(past, store=past.store.until(ends))


def _first_values(store: SeriesStore) -> IntArray:
    """Return the grid position of each series' first value, (S,); behind the grid without any."""
    first = np.full(len(store.ids), len(store.grid))
    for series, values in store.blocks():
        seen = np.flatnonzero(~np.isnan(values))
        own, place = np.unique(series[seen], return_index=True)
        row = store.offsets[series[0]] + seen[place]
        first[own] = row - store.offsets[own] + store.starts[own]
    return first


def _tell_unusable(store: SeriesStore, groups: IntArray, usable: BoolArray, steps: int) -> None:
    """Refuse series without any window to forecast, and warn of those that lack some."""
    if not usable.any():
        begin, end = group_spans(store, groups)
        raise DataError(
            f"no series is long enough to be cross-validated: a window takes a value and the "
            f"{steps} steps behind it, and the longest series has {int((end - begin).max())} rows. "
            "Give longer series, or a shorter horizon."
        )
    lacking = ~usable.all(axis=0)
    if lacking.any():
        warnings.warn(
            f"{listed([store.ids[series] for series in groups[lacking, 0]])}: too short for "
            f"{(~usable).sum():,} of {usable.size:,} windows, which are left out.",
            stacklevel=5,
        )
