"""What a page shows of a fit and of a backtest, put together."""

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
import pandas as pd

from tsformer.data.store import SeriesStore
from tsformer.data.types import IntArray
from tsformer.evaluation.frames import interval_columns, point_columns
from tsformer.prediction.history import WindowForecasts
from tsformer.report.content import Cell, WindowView

NUM_SERIES, NUM_WINDOWS = 45, 6  # of which forecasts are shown, and of each
_NUM_INTERVALS = 2  # the widest


def error_tables(by_group: Mapping[str, pd.DataFrame], metric: str) -> dict[str, pd.DataFrame]:
    """Return an error by horizon step, hour, weekday and month, groups x methods.

    Args:
        by_group: scores by the name of the group; see `score`.
        metric: one of the scores, such as MAE.
    """
    return {by: _pivoted(scores, by, metric) for by, scores in by_group.items()}


def series_errors(by_series: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return an error of each series, series x methods, the worst of the first method first."""
    table = _pivoted(by_series, "unique_id", metric)
    return table.sort_values(table.columns[0], ascending=False, kind="stable")


def choose_series(errors: pd.DataFrame, number: int = NUM_SERIES) -> list[str]:
    """Return the worst, the best and some series in between, the worst first.

    Args:
        errors: of `series_errors`.
        number: of series, at most.
    """
    ids = errors.index[errors.iloc[:, 0].notna()]
    if len(ids) <= number:
        return list(ids)
    third = number // 3
    between = np.linspace(third, len(ids) - 1 - third, number - 2 * third).round().astype(int)
    places = [*range(third), *between, *range(len(ids) - third, len(ids))]
    return list(ids[np.unique(places)])


def choose_windows(
    store: SeriesStore, windows: WindowForecasts, ids: Sequence[str], each: int = NUM_WINDOWS
) -> IntArray:
    """Return the running numbers of some windows of each of some series, spread over time."""
    number_of = {name: number for number, name in enumerate(store.ids)}
    order = np.lexsort([windows.origins, windows.series])
    series = windows.series[order]
    chosen = []
    for name in ids:
        first, behind = np.searchsorted(series, [number_of[name], number_of[name] + 1])
        chosen.append(order[spread(first, behind, each)])
    return np.concatenate(chosen) if chosen else np.empty(0, np.int64)


def spread(begin: int, end: int, number: int) -> IntArray:
    """Return at most so many of begin <= n < end, evenly spread, rising."""
    if end <= begin:
        return np.empty(0, np.int64)
    return np.unique(np.linspace(begin, end - 1, number).round().astype(np.int64))


def window_views(
    store: SeriesStore,
    windows: WindowForecasts,
    numbers: IntArray,
    context: int,
    zone: str | None = None,
) -> list[WindowView]:
    """Return forecasts of some windows beside their truth.

    Args:
        store: the series; its grid reaches as far as the windows.
        windows: their forecasts.
        numbers: of the windows to show.
        context: steps before a cutoff to show.
        zone: that stamps which carry a zone are shown in.
    """
    names = pd.DataFrame(columns=[*windows.columns], dtype=float)
    methods = point_columns(names)
    intervals = dict(islice(interval_columns(names, methods[0]).items(), _NUM_INTERVALS))
    steps = windows.columns[methods[0]].shape[1]

    def view(number: int) -> WindowView:
        series, origin = int(windows.series[number]), int(windows.origins[number])
        # A channel may begin after the others that it is forecast with.
        begin = min(max(origin - context, int(store.starts[series])), origin - 1)
        stamps = in_zone(store.stamps(np.arange(begin, origin + steps)), zone)
        seen, ahead = stamps[: origin - begin], stamps[origin - begin :]

        def column(name: str) -> pd.Series:
            return pd.Series(windows.columns[name][number], index=ahead)

        return WindowView(
            store.ids[series],
            seen[-1],
            pd.Series(store.values(series, begin, origin), index=seen),
            pd.Series(store.values(series, origin, origin + steps), index=ahead),
            {method: column(method) for method in methods},
            {nominal: (column(low), column(high)) for nominal, (low, high) in intervals.items()},
        )

    return [view(number) for number in numbers.tolist()]


def describe_data(store: SeriesStore, source: str, zone: str | None) -> dict[str, Cell]:
    """Return what a table holds, by name.

    Args:
        store: the series.
        source: where the table is.
        zone: that stamps which carry a zone are told in.
    """
    missing = sum(int(np.isnan(values).sum()) for _, values in store.blocks())
    rows = int(store.offsets[-1])
    lengths = store.lengths
    span = in_zone(store.stamps(np.array([0, max(int(store.ends.max()), 1) - 1])), zone)
    return {
        "table": source,
        "series": f"{len(store.ids):,}",
        "rows": f"{rows:,}",
        "rows of a series": f"{lengths.min():,} to {lengths.max():,}",
        "times": f"{span[0]} to {span[1]}",
        "step": store.freq,
        "missing values": f"{missing:,} ({missing / max(rows, 1):.2%})",
    }


def how_to_load(folder: str, *, needs_future: bool) -> str:
    """Return Python that loads a model and forecasts."""
    future = ", future" if needs_future else ""
    comment = "  # future: its future covariates over the horizon" if needs_future else ""
    return (
        "from tsformer import Forecaster\n\n"
        f"forecaster = Forecaster.load({folder!r})\n"
        f"forecast = forecaster.predict(history{future}){comment}\n"
    )


def in_zone(stamps: pd.DatetimeIndex, zone: str | None) -> pd.DatetimeIndex:
    """Return stamps by the clock of a zone, if there is one and they carry one."""
    return stamps if zone is None or stamps.tz is None else stamps.tz_convert(zone)


def _pivoted(scores: pd.DataFrame, by: str, metric: str) -> pd.DataFrame:
    methods = list(dict.fromkeys(scores["method"]))
    return scores.pivot(index=by, columns="method", values=metric)[methods]
