"""The data of a page's charts, as compact JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from tsformer.report.content import Report, WindowView

MAX_WINDOW_BYTES = 3_000_000
MAX_NAME = 200  # characters of an id that are shown
_MAX_CONTEXT = 2_000  # steps
_MAX_POINTS = 2_000  # of a curve


def is_empty(table: pd.DataFrame | None) -> bool:
    """Tell whether there is nothing to show."""
    return table is None or table.empty


def method_names(report: Report) -> list[str]:
    """Return the methods of all parts, the model's first, each once."""
    names: dict[str, None] = {}
    for window in report.windows:
        names |= dict.fromkeys(map(str, window.forecasts))
    for table in (*report.error_by.values(), report.calibration, report.series):
        if table is not None:
            names |= dict.fromkeys(map(str, table.columns))
    if not names and report.headline and report.headline[0].rows:
        return [str(report.headline[0].rows[0][0])]
    return list(names)


def chart_json(report: Report, windows: Sequence[tuple[str, str]]) -> str:
    """Return what the charts draw as JSON that can stand in a script element.

    Args:
        report: all of the page.
        windows: of `windows_within`.
    """
    by_series: dict[str, list[str]] = {}
    for name, text in windows:
        by_series.setdefault(name, []).append(text)
    series = ",".join(
        f'{{"name":{_dumps(shorten(name))},"windows":[{",".join(texts)}]}}'
        for name, texts in by_series.items()
    )
    parts = {
        "unit": report.unit,
        "methods": method_names(report),
        "errors": [_errors(by, table) for by, table in report.error_by.items() if len(table)],
        "calibration": _calibration(report.calibration),
        "training": _training(report.curves, report.best_step),
    }
    text = f'{{"series":[{series}],{_dumps(parts)[1:]}'
    return text.replace("<", "\\u003c")  # no end of the script element, nor a comment


def windows_within(
    windows: Sequence[WindowView], max_bytes: int = MAX_WINDOW_BYTES
) -> list[tuple[str, str]]:
    """Return the first windows of each series, as evenly as they fit, in the order given.

    Args:
        windows: of some series.
        max_bytes: of all that is returned.

    Returns:
        Series and JSON of each window.
    """
    counts: dict[str, int] = {}
    ranked = []
    for place, window in enumerate(windows):
        counts[window.series] = counts.get(window.series, -1) + 1
        ranked.append((counts[window.series], place))
    kept = {}
    for _, place in sorted(ranked):
        text = _dumps(_window(windows[place]))
        max_bytes -= len(text.encode(errors="replace"))
        if max_bytes < 0:
            break
        kept[place] = (windows[place].series, text)
    return [kept[place] for place in sorted(kept)]


def shorten(text: str) -> str:
    """Return the beginning of a long id."""
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"


def _window(window: WindowView) -> dict[str, Any]:
    context, index = window.context.iloc[-_MAX_CONTEXT:], window.truth.index
    cutoff = window.cutoff
    if index.tz is not None and cutoff.tz is not None:
        cutoff = cutoff.tz_convert(index.tz)
    daily = bool((index == index.normalize()).all())
    return {
        "cutoff": int(_milliseconds(pd.DatetimeIndex([cutoff]))[0]),
        "label": f"{cutoff:%Y-%m-%d}" if daily else f"{cutoff:%Y-%m-%d %H:%M}",
        "isDaily": daily,
        "zone": None if index.tz is None else str(index.tz),
        "seen": {"times": _times(context.index), "values": _numbers(context)},
        "times": _times(index),
        "truth": _numbers(window.truth),
        "forecasts": {
            str(name): _numbers(values.reindex(index)) for name, values in window.forecasts.items()
        },
        "intervals": [
            [100 * nominal, *(_numbers(end.reindex(index)) for end in ends)]
            for nominal, ends in sorted(window.intervals.items(), reverse=True)
        ],
    }


def _times(index: pd.DatetimeIndex) -> list[int]:
    """Return the first local time and then runs of equal steps: [start, step, count, ...]."""
    times = _milliseconds(index)
    steps = np.diff(times)
    bounds = np.flatnonzero(np.diff(steps, prepend=np.nan, append=np.nan))
    runs = zip(steps[bounds[:-1]], np.diff(bounds), strict=True)
    return [*map(int, times[:1]), *(int(part) for run in runs for part in run)]


def _milliseconds(index: pd.DatetimeIndex) -> np.ndarray:
    """Return local times, as if they were UTC, which is how Plotly tells them."""
    return index.tz_localize(None).to_numpy().astype("datetime64[ms]").astype(np.int64)


def _errors(by: str, table: pd.DataFrame) -> dict[str, Any]:
    table = _thinned(table)
    is_number = pd.api.types.is_numeric_dtype(table.index)
    groups = table.index.to_list() if is_number else [shorten(str(group)) for group in table.index]
    return {"by": by, "groups": groups, "methods": _columns(table)}


def _calibration(table: pd.DataFrame | None) -> dict[str, Any] | None:
    if table is None or table.empty:
        return None
    return {"levels": _numbers(table.index), "methods": _columns(table)}


def _training(curves: pd.DataFrame | None, best_step: int | None) -> dict[str, Any] | None:
    if curves is None or curves.empty:
        return None
    rates = [name for name in curves.columns if name.startswith("lr-")]
    return {
        "bestStep": best_step,
        "loss": _curve(curves, "train/loss"),
        "error": _curve(curves, "val/mae"),
        "rates": {name: _curve(curves, name) for name in rates},
    }


def _curve(curves: pd.DataFrame, name: str) -> dict[str, list[float | None]] | None:
    if name not in curves:
        return None
    points = _thinned(curves[["step", name]].dropna())
    return {"steps": _numbers(points["step"]), "values": _numbers(points[name])}


def _thinned(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table, or each n-th of its rows where they are many."""
    return table.iloc[:: -(-len(table) // _MAX_POINTS) or 1]


def _columns(table: pd.DataFrame) -> dict[str, list[float | None]]:
    return {str(name): _numbers(column) for name, column in table.items()}


def _numbers(values: ArrayLike) -> list[float | None]:
    """Return values to six digits, None where there is none."""
    return list(_rounded(np.asarray(values, dtype=float)))


def _rounded(values: np.ndarray) -> Iterator[float | None]:
    for value in values.tolist():
        yield float(f"{value:.6g}") if np.isfinite(value) else None


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
