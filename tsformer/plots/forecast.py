"""Forecasts beside what came before and what came."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsformer.arguments import count
from tsformer.data.checks import listed
from tsformer.data.parsing import id_text, parse_numbers, parse_stamps
from tsformer.data.sources import read_frame
from tsformer.errors import ConfigError, DataError
from tsformer.evaluation.frames import (
    DISTRIBUTION,
    NOT_FORECAST,
    interval_columns,
    is_number,
    read_forecasts,
)
from tsformer.plots.style import (
    CONTEXT,
    FORECAST,
    TRUTH,
    NotebookFigure,
    figure_of,
    line_colors,
    plain_legend,
    tidy,
    time_axis,
    tint,
)

_MOST_PANELS = 4


def plot_forecast(
    forecast: Any,
    history: Any | None = None,
    *,
    unique_id: Any | None = None,
    target: str | None = None,
    cutoff: Any | None = None,
    methods: str | Sequence[str] | None = None,
    context: int | None = None,
    id_column: str = "unique_id",
    time_column: str = "ds",
    target_column: str = "y",
    unit: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw forecasts, with what came before and, where it is known, what came.

    Without `ax`, each window - of a series, and of a cutoff - has a panel of its own; of more than
    four that are left, four are drawn, spread evenly over the frame. Bands are the central
    intervals of the first method: of columns such as `tsformer-lo-90, tsformer-hi-90`, and of
    quantiles that mirror each other, such as `tsformer-q-0.1, tsformer-q-0.9`. Other quantiles, and
    sample paths, are not drawn.

    `plot_forecast(...).savefig("forecast.png")` saves the figure; a notebook shows it as it is.

    Args:
        forecast: what `Forecaster.predict` or `cross_validate` returns: `unique_id, ds` and the
            forecasts; `target`, `cutoff` and the truth `y` where it has them. Other columns of
            numbers, such as another library's forecasts, are drawn as further methods.
        history: table of the series, long or with a column for each of them. What it tells of the
            steps that are forecast is drawn as the truth if the forecast has no `y`.
        unique_id: series to draw; all when None.
        target: target column to draw, where a forecast has several; all when None.
        cutoff: of the window to draw; all when None.
        methods: columns to draw; all when None.
        context: steps of the history that are shown; three horizons when None.
        id_column: of the history.
        time_column: of the history.
        target_column: of the history; where a forecast names its target column, that one is taken.
        unit: of the values.
        ax: where to draw one window; None: a new figure.

    Returns:
        The figure.

    Raises:
        ConfigError: there is no such series, target, cutoff or method, or several windows are left
            for `ax`.
        DataError: a table lacks a column, or the history a series.
    """
    table = read_forecasts(read_frame(forecast, ["unique_id"]))
    if missing := [name for name in ("unique_id", "ds") if name not in table]:
        raise DataError(f"forecast: no column {missing[0]!r}, but {list(map(str, table))[:20]}.")
    for key, value in (("unique_id", unique_id), ("target", target), ("cutoff", cutoff)):
        if value is not None:
            table = _rows_of(table, key, value)
    names = _method_columns(table, methods)
    past = None if history is None else read_frame(history, [id_column])
    windows, left = _windows(table)
    if ax is not None and left > 1:
        raise ConfigError(
            f"ax= takes one window, and the forecast has {left:,}, of "
            f"{listed([id_text(each) for each in table['unique_id'].unique()])}: name unique_id, "
            "target and cutoff, or leave out ax."
        )
    if ax is None:
        figure = NotebookFigure(10, max(2.6 * len(windows), 3.2))
        axes = list(figure.subplots(len(windows), 1, squeeze=False)[:, 0])
    else:
        axes = [ax]
    for panel, rows in zip(axes, windows, strict=True):
        known = None
        if past is not None:
            known = _history_of(past, rows, id_column, time_column, target_column)
        steps = 3 * len(rows) if context is None else count("context", context, least=0)
        _draw(panel, rows, names, known, steps)
        if unit:
            panel.set_ylabel(unit, parse_math=False)
    if ax is not None:
        plain_legend(ax)
        return figure_of(ax)
    parts = [zip(*panel.get_legend_handles_labels(), strict=True) for panel in axes]
    entries = {label: handle for part in parts for handle, label in part}
    plain_legend(figure, [*entries.values()], [*entries], loc="outside upper right", ncols=6)
    return figure


def _rows_of(table: pd.DataFrame, key: str, value: Any) -> pd.DataFrame:
    """Return the rows of one series, target or cutoff."""
    if key not in table:
        raise ConfigError(f"{key}={value!r}: the forecast has no column {key!r}.")
    present = list(table[key].unique())
    if key == "cutoff":
        zone = getattr(table[key].dt, "tz", None)
        stamp = pd.Timestamp(value)
        wanted: Any = stamp.tz_localize(zone) if zone and stamp.tz is None else stamp
        same = [each for each in present if each == wanted]
    else:
        same = [each for each in present if id_text(each) == id_text(value)]
    if not same:
        shown = ", ".join(repr(id_text(each)) for each in present[:10])
        more = f" and {len(present) - 10:,} more" if len(present) > 10 else ""
        raise ConfigError(f"{key}={str(value)!r}: the forecast has {shown}{more}.")
    return table[table[key].isin(same)]


def _windows(table: pd.DataFrame) -> tuple[list[pd.DataFrame], int]:
    """Return the windows to draw, each in the order of time, and how many there are in all."""
    keys = [key for key in ("unique_id", "target", "cutoff") if key in table]
    groups = table.groupby(keys, sort=False, observed=True, dropna=False)
    number = groups.ngroup().to_numpy()
    picked = np.unique(np.linspace(0, groups.ngroups - 1, _MOST_PANELS).astype(int))
    return [table[number == each].sort_values("ds") for each in picked], groups.ngroups


def _method_columns(table: pd.DataFrame, chosen: str | Sequence[str] | None) -> list[str]:
    """Return the columns of point forecasts."""
    names = [
        name
        for name in map(str, table)
        if name not in NOT_FORECAST and not DISTRIBUTION.fullmatch(name) and is_number(table[name])
    ]
    if chosen is not None:
        wanted = [chosen] if isinstance(chosen, str) else list(chosen)
        if not wanted or not set(wanted) <= set(names):
            raise ConfigError(f"methods={chosen!r}: the forecast has {', '.join(names)}.")
        return wanted
    if not names:
        raise DataError(f"forecast: no column of forecasts beside {list(map(str, table))[:20]}.")
    return names


def _history_of(
    history: pd.DataFrame, rows: pd.DataFrame, id_column: str, time_column: str, target_column: str
) -> pd.Series:
    """Return the values of a window's series by time, of all times that the table has."""
    id = id_text(rows["unique_id"].iloc[0])
    value = str(rows["target"].iloc[0]) if "target" in rows else target_column
    if id_column in history:
        present = list(history[id_column].unique())
        same = [each for each in present if id_text(each) == id]
        if not same:
            names = listed([id_text(each) for each in present])
            raise DataError(f"history: no row of series {id!r}, but of {names}.")
        history = history[history[id_column].isin(same)]
    elif id in history:
        value = id  # a wide table
    for name in (time_column, value):
        if name not in history:
            raise DataError(
                f"history: no column {name!r}, but {list(map(str, history))[:20]}. Name its "
                "columns by id_column, time_column and target_column."
            )
    try:
        stamps, zone = parse_stamps(history[time_column], time_column)
        values = parse_numbers(history, [value])[:, 0]
    except DataError as error:
        raise DataError(f"history: {error}") from error
    own = rows["ds"].dt.tz
    if (zone is None) != (own is None):
        raise DataError(
            f"history: column {time_column!r} has {'no' if zone is None else 'a'} time zone, "
            "unlike the forecast. Give both the same."
        )
    return pd.Series(values, stamps if own is None else stamps.tz_convert(own)).sort_index()


def _draw(
    ax: Axes, rows: pd.DataFrame, methods: Sequence[str], known: pd.Series | None, context: int
) -> None:
    """Draw one window.

    Args:
        ax: where to draw.
        rows: forecasts, and the truth if they have it, in the order of time.
        methods: columns of point forecasts.
        known: history by time.
        context: steps of it that are shown.
    """
    index = pd.DatetimeIndex(rows["ds"])
    if known is not None:
        before = known[known.index < index[0]]
        _plot_values(ax, before[max(len(before) - context, 0) :], CONTEXT, 1, "context")
    truth = None
    if "y" in rows:
        truth = pd.Series(rows["y"].to_numpy(), index)
    elif known is not None:
        truth = known[(known.index >= index[0]) & (known.index <= index[-1])]
    if truth is not None and truth.notna().any():
        _plot_values(ax, truth, TRUTH, 1.2, "truth")
    for number, (color, name) in enumerate(zip(line_colors(len(methods)), methods, strict=True)):
        values = pd.Series(rows[name].to_numpy(), index)
        width = 1.2 if number else 1.8
        _plot_values(ax, values, color, width, name, zorder=3 - number / 100)  # the first on top
    bands = interval_columns(rows, methods[0]).items()  # the widest first
    for shade, (nominal, ends) in zip(np.linspace(0.18, 0.5, len(bands)), bands, strict=True):
        style: dict[str, Any] = {
            "color": tint(FORECAST, shade),
            "label": f"{100 * nominal:g} %",
            "zorder": 1,
        }
        lower, upper = (rows[end].to_numpy() for end in ends)
        if len(index) > 1:
            ax.fill_between(index, lower, upper, linewidth=0, **style)
        else:  # which has no width to be filled
            ax.vlines(index, lower, upper, linewidth=8, **style)
    ax.axvline(index[0], color=CONTEXT, linewidth=0.8, linestyle=":")
    ax.set_xlabel(time_axis(ax.xaxis, index.tz))
    parts = [id_text(rows[key].iloc[0]) for key in ("unique_id", "target") if key in rows]
    ax.set_title("/".join(parts)[:80], loc="left", fontsize="medium", parse_math=False)
    tidy(ax)


def _plot_values(
    ax: Axes, values: pd.Series, color: str, width: float, label: str, zorder: float = 2
) -> None:
    """Draw values as a line with gaps where they are missing."""
    if not len(values):
        return
    style: dict[str, Any] = {"color": color, "zorder": zorder}
    ax.plot(values.index, values.to_numpy(), linewidth=width, label=label, **style)
    seen = values.notna().to_numpy()
    alone = seen & ~np.append(False, seen[:-1]) & ~np.append(seen[1:], False)
    if alone.any():  # of which a line shows nothing
        ax.plot(values.index[alone], values.to_numpy()[alone], ".", markersize=4, **style)
