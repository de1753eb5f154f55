"""Figures of a search: its trials as lines over their settings, and how much each mattered."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from tsformer.plots.style import CONTEXT, PALETTE
from tsformer.sweep.result import Record
from tsformer.sweep.space import Choice, Dimension, Interval


def draw_parallel(
    records: Sequence[Record], space: Mapping[str, Dimension], monitor: str
) -> Figure:
    """Draw each trial as a line through its settings to its objective.

    Args:
        records: trials with an objective; those that were pruned are drawn thin and dashed.
        space: what was searched, an axis each.
        monitor: what the objective is, the last axis.
    """
    objectives = np.array([record.result.objective for record in records], dtype=float)
    # The worst trials, such as those that learn nothing, would leave one colour for the others.
    limits = Normalize(objectives.min(), np.quantile(objectives, 0.9), clip=True)
    colors = ScalarMappable(limits, "viridis")
    figure = Figure(figsize=(max(7.0, 1.9 * (len(space) + 1)), 4.5), layout="constrained")
    ax = figure.subplots()
    space = {key: _few(dimension) for key, dimension in space.items()}
    ranks = np.argsort(np.argsort(objectives)) / max(len(records) - 1, 1)
    heights = [
        _heights(dimension, [record.values[key] for record in records], ranks)
        for key, dimension in space.items()
    ]
    low, high = objectives.min(), objectives.max()
    margin = 0.03 * (high - low) or 0.5
    heights.append((objectives - low + margin) / (high - low + 2 * margin))
    for line in np.argsort(-objectives):  # the best on top
        pruned = records[line].result.state == "pruned"
        ax.plot(
            [column[line] for column in heights],
            color=colors.to_rgba(objectives[line]),
            linewidth=0.8 if pruned else 1.6,
            linestyle="--" if pruned else "-",
            alpha=0.9,
        )
    for place, (key, dimension) in enumerate(space.items()):
        _axis(ax, place, key, dimension)
    _number_axis(ax, len(space), monitor, low - margin, high + margin, log=False)
    ax.set(xlim=(0, len(space)), ylim=(0, 1), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    figure.colorbar(colors, ax=ax, label=monitor, pad=0.08, extend="max")
    return figure


def draw_importances(importances: Mapping[str, float], monitor: str) -> Figure:
    """Draw how much each setting mattered.

    Args:
        importances: setting -> importance; they sum to 1.
        monitor: what the objective is.
    """
    names = sorted(importances, key=lambda name: importances[name])
    figure = Figure(figsize=(7, 1.2 + 0.45 * len(names)), layout="constrained")
    ax = figure.subplots()
    bars = ax.barh(names, [importances[name] for name in names], color=PALETTE[1], height=0.6)
    ax.bar_label(bars, fmt="%.2f", padding=4)
    ax.set_xlabel(f"importance for a good {monitor} (PED-ANOVA)")
    ax.set_xlim(0, 1.1 * max(importances.values()) or 1)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    return figure


def _few(dimension: Dimension) -> Dimension:
    """Return an interval of few whole numbers as a choice."""
    if isinstance(dimension, Choice) or not dimension.whole:
        return dimension
    numbers = range(int(dimension.low), int(dimension.high) + 1, int(dimension.step or 1))
    return Choice(tuple(map(str, numbers))) if len(numbers) <= 8 else dimension


def _heights(dimension: Dimension, values: Sequence[str], ranks: np.ndarray) -> np.ndarray:
    """Return the places of values on an axis, from 0 to 1."""
    if isinstance(dimension, Choice):
        # Lines through one tick would hide each other: a little apart, the best at the bottom.
        places = np.array([dimension.values.index(value) for value in values])
        return (places + 0.35 + 0.3 * ranks) / len(dimension.values)
    low, high = _scale(dimension, np.array([dimension.low, dimension.high]))
    return (_scale(dimension, np.array(values, dtype=float)) - low) / (high - low or 1)


def _scale(dimension: Interval, values: np.ndarray) -> np.ndarray:
    return np.log(values) if dimension.log else values


def _axis(ax: Axes, place: int, key: str, dimension: Dimension) -> None:
    if isinstance(dimension, Interval):
        _number_axis(ax, place, key, dimension.low, dimension.high, log=dimension.log)
        return
    axis = _new_axis(ax, place, key)
    number = len(dimension.values)
    axis.set_yticks((np.arange(number) + 0.5) / number, dimension.values)
    _outline(axis)


def _number_axis(ax: Axes, place: int, key: str, low: float, high: float, *, log: bool) -> None:
    axis = _new_axis(ax, place, key)
    if high == low:
        low, high = low - 0.5, high + 0.5
    axis.set_yscale("log" if log else "linear")
    axis.set_ylim(low, high)
    axis.yaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5), numticks=8) if log else MaxNLocator(nbins=6)
    )
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}")
    _outline(axis)


def _new_axis(ax: Axes, place: int, key: str) -> Axes:
    axis = ax.twinx()
    axis.spines[["top", "bottom", "left"]].set_visible(False)
    axis.spines["right"].set(position=("data", place), color=CONTEXT)
    axis.set_zorder(ax.get_zorder() + 1)
    axis.patch.set_visible(False)
    axis.tick_params(labelsize=9)
    ax.text(place, 1.03, key, ha="center", va="bottom", transform=ax.get_xaxis_transform())
    return axis


def _outline(axis: Axes) -> None:
    """Keep the numbers readable over lines."""
    for label in axis.get_yticklabels():
        label.set_path_effects([withStroke(linewidth=3, foreground="white")])
