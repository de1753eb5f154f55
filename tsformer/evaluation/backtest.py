"""cross_validate: what a model would have forecast before the end of each series."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tsformer.arguments import Asked
from tsformer.baselines.registry import baseline_forecasts, check_installed
from tsformer.data.checks import listed
from tsformer.data.scaling import Scaler
from tsformer.data.splits import grid_time
from tsformer.data.store import SeriesStore
from tsformer.data.types import BoolArray, FloatArray, IntArray
from tsformer.data.windows import group_spans
from tsformer.errors import ConfigError, DataError
from tsformer.model.fitted import FittedModel
from tsformer.prediction.history import History, WindowForecasts, by_series
from tsformer.prediction.origins import OriginForecaster, whole_steps


class Backtest(NamedTuple):
    """Forecasts of windows whose truth is known.

    Attributes:
        store: the series, on a grid that goes on.
        forecasts: of the model and of the baselines.
    """

    store: SeriesStore
    forecasts: WindowForecasts


class LastWindows(NamedTuple):
    """The last windows of N groups of series.

    Attributes:
        origins: grid position of each one's first step, from first to last, (W, N).
        usable: which of them there are, with a value before them, (W, N).
        left_out: which series lack windows that were asked for, and how many; None: none does.
    """

    origins: IntArray
    usable: BoolArray
    left_out: str | None


def backtest(
    model: FittedModel,
    past: History,
    windows: LastWindows,
    *,
    steps: int,
    asked: Asked,
    refit: Mapping[str, Any] | None = None,
    baselines: Sequence[str] = (),
    num_workers: int = 1,
    batch_size: int = 1024,
) -> Backtest:
    """Return forecasts of the last windows of each series; see `Forecaster.cross_validate`.

    Args:
        model: what forecasts.
        past: the table.
        windows: of `last_windows`.
        steps: of a window, H.
        asked: quantiles beside the point forecasts.
        refit: arguments of `fine_tune`, which is called once for each time at which windows begin,
            on the rows before it; None: never.
        baselines: other methods whose forecasts stand beside; see `baseline_forecasts`.
        num_workers: processes of the baselines.
        batch_size: windows forecast at once.
    """
    check_installed(baselines)
    store, groups = past.store, past.groups
    origins, usable, _ = windows
    history = replace(past, store=store.extended(whole_steps(steps, model.horizon)))

    def bound(model: FittedModel) -> OriginForecaster:
        return OriginForecaster(model, history, asked, steps=steps, batch_size=batch_size)

    def forecasters() -> Iterator[tuple[OriginForecaster, Scaler, IntArray, IntArray]]:
        """Yield forecaster and scaler of some of the windows, and their places in (W, N)."""
        if refit is None:
            as_it_is = bound(model)
            scaler = model.config.scaler.scaler()
            for adapted, numbers in scalers_before(past, scaler, origins, usable):
                number, group = np.nonzero(usable[numbers])
                yield as_it_is, adapted, numbers[number], group
            return
        # By time, and not by number: other series may go on behind the end of one.
        for cutoff in np.unique(origins[usable]):
            tuned = _refitted(model, past, int(cutoff), refit)
            number, group = np.nonzero(usable & (origins == cutoff))
            yield bound(tuned), tuned.config.scaler.scaler(), number, group

    found = []
    for forecaster, scaler, number, group in forecasters():
        members, origin = groups[group], origins[number, group]
        found.append((members, origin, forecaster.forecast(members, origin, scaler)))
    members, origin, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
    forecasts = by_series(members, origin, values, asked.names)
    others = _baselines(history.store, forecasts, steps, asked, baselines, num_workers)
    return Backtest(history.store, forecasts._replace(columns=forecasts.columns | others))


def _refitted(
    model: FittedModel, past: History, origin: int, refit: Mapping[str, Any]
) -> FittedModel:
    """Return a model whose training went on with the rows before a grid position."""
    from tsformer.trainer.fine_tuning import fine_tune

    try:
        return fine_tune(model, replace(past, store=past.store.until(origin)), **refit)
    except (ConfigError, DataError) as error:
        cutoff = past.store.stamps(np.array([origin - 1]))[0]
        raise type(error)(
            f"refit on the rows up to {cutoff}: {error} Or ask for fewer windows, or leave out "
            "series that end early."
        ) from error


def position_of(past: History, since: str | pd.Timestamp | None) -> int:
    """Return the grid position of a local time, which no window is to begin before.

    Raises:
        ConfigError: it is not a time, or is after the end of the table.
    """
    if since is None:
        return 0
    grid, stamp = past.store.grid, grid_time("since", since, past.store)
    if stamp > grid[-1]:
        last = past.store.stamps(np.array([len(grid) - 1]))[0]
        raise ConfigError(f"since={str(since)!r} is after the end of the table, {last}.")
    return int(np.count_nonzero(grid < stamp))


def last_windows(
    past: History, n_windows: int | None, step: int, steps: int, begin: int = 0
) -> LastWindows:
    """Return where the last windows of each group begin.

    Args:
        past: the table.
        n_windows: of each group at most; None: as many as there are.
        step: steps from one window to the next; the last one ends with the group.
        steps: of a window, H.
        begin: grid position before which no window begins.

    Raises:
        DataError: no series has a window.
    """
    store, groups = past.store, past.groups
    first = np.maximum(_first_values(store)[groups].min(axis=1) + 1, begin)
    last = group_spans(store, groups)[1] - steps
    most = max(int((last - first).max()) // step + 1, 1)
    most = most if n_windows is None else min(n_windows, len(store.grid))
    origins = last - step * np.arange(most)[::-1, None]  # (W, N)
    usable = origins >= first
    since = f" from {store.stamps(np.array([begin]))[0]} on" if begin else ""
    _refuse_unusable(past, usable, steps, since)
    return LastWindows(origins, usable, _left_out(past, usable, n_windows, since))


def _baselines(
    store: SeriesStore,
    windows: WindowForecasts,
    steps: int,
    asked: Asked,
    names: Sequence[str],
    num_workers: int,
) -> dict[str, FloatArray]:
    """Return forecasts of other methods of the same windows by column, (W, H)."""
    levels = sorted(set(asked.quantiles.values()))
    found = baseline_forecasts(
        store,
        windows.series,
        windows.origins,
        steps=steps,
        names=names,
        levels=levels,
        num_workers=num_workers,
    )
    columns = {}
    for method, values in found.items():
        columns[method] = values[..., 0]
        if not np.isnan(values[..., 1:]).all():
            for name, level in asked.quantiles.items():
                columns[f"{method}-{name}"] = values[..., 1 + levels.index(level)]
    return columns


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
    if scaler.knows(past.store.ids):
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
    """Return the grid position of each series' first value, (S,); after the grid without any."""
    first = np.full(len(store.ids), len(store.grid))
    for series, values in store.blocks():
        seen = np.flatnonzero(~np.isnan(values))
        own, place = np.unique(series[seen], return_index=True)
        row = store.offsets[series[0]] + seen[place]
        first[own] = row - store.offsets[own] + store.starts[own]
    return first


def _refuse_unusable(past: History, usable: BoolArray, steps: int, since: str) -> None:
    """Refuse series without any window to forecast."""
    if not usable.any():
        start, end = group_spans(past.store, past.groups)
        raise DataError(
            f"no series is long enough to be cross-validated: a window needs one observed "
            f"value followed by {steps} steps{since}, and the longest series has "
            f"{int((end - start).max())} rows. Give longer series, or a shorter horizon."
        )


def _left_out(past: History, usable: BoolArray, n_windows: int | None, since: str) -> str | None:
    """Return which series lack windows that were asked for."""
    lacking = ~(usable.any(axis=0) if n_windows is None else usable.all(axis=0))
    if not lacking.any():
        return None
    names = listed([past.store.ids[series] for series in past.groups[lacking, 0]])
    if n_windows is None:
        return f"{names}: too short for a window{since}, and left out."
    windows = f"{(~usable).sum():,} of {usable.size:,} windows"
    return f"{names}: too short for {windows}{since}, which are left out."
