"""How large errors are by horizon step, and how well quantiles are calibrated."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from tsformer.plots.style import (
    CONTEXT,
    FORECAST,
    axes_or_new,
    figure_of,
    line_colors,
    model_first,
    plain_legend,
    tidy,
)


def plot_error_by_horizon(
    errors: pd.DataFrame | Mapping[str, ArrayLike],
    *,
    step: pd.Timedelta | str | None = None,
    unit: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw the mean absolute error of each method against the horizon step.

    Args:
        errors: mean absolute errors, a column for each method; its index tells the horizon steps,
            1 to H, or how far ahead they are (`pd.Timedelta`). Or method -> those of each step,
            (H,).
        step: length of a step; None: steps are counted, unless the index tells times.
        unit: of the errors.
        ax: where to draw; None: a new figure.

    Returns:
        The figure, which `savefig` saves.
    """
    if not isinstance(errors, pd.DataFrame):
        errors = pd.DataFrame({name: np.asarray(error) for name, error in errors.items()})
        errors.index += 1
    errors = errors[model_first(errors)]
    ax = axes_or_new(ax, 8, 4.5)
    ahead, name = _distances(errors.index, step)
    for color, method in zip(line_colors(errors.shape[1]), errors, strict=True):
        width, mark = (2.0 if color == FORECAST else 1.2), ("o" if len(ahead) == 1 else None)
        error = errors[method].to_numpy()
        ax.plot(ahead, error, color=color, linewidth=width, marker=mark, label=str(method))
    ax.set_xlabel(name)
    ax.set_ylabel(f"mean absolute error{f' ({unit})' if unit else ''}", parse_math=False)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 3, 6, 10]))
    plain_legend(ax)
    tidy(ax)
    return figure_of(ax)


def plot_calibration(fractions: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw how often truths lay below the quantiles against how often they should have.

    On the diagonal a method is calibrated; a curve steeper than it promises too much width, a
    flatter one too little.

    Args:
        fractions: of truths that are at most the quantile, a column for each method; its index
            tells the levels of the quantiles.
        ax: where to draw; None: a new figure.

    Returns:
        The figure, which `savefig` saves.
    """
    ax = axes_or_new(ax, 5, 5)
    fractions = fractions[model_first(fractions)]
    ax.plot([0, 1], [0, 1], color=CONTEXT, linewidth=0.8, linestyle=":", label="calibrated")
    for color, method in zip(line_colors(fractions.shape[1]), fractions, strict=True):
        width = 2.0 if color == FORECAST else 1.2
        ax.plot(
            fractions.index,
            fractions[method].to_numpy(),
            color=color,
            linewidth=width,
            marker="o",
            markersize=4,
            label=str(method),
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("level of the quantile")
    ax.set_ylabel("fraction of truths below")
    ticks = np.linspace(0, 1, 6)
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    plain_legend(ax)
    tidy(ax)
    return figure_of(ax)


def _distances(index: pd.Index, step: pd.Timedelta | str | None) -> tuple[NDArray[Any], str]:
    """Return how far ahead horizon steps are, (H,), and the name of that axis."""
    if isinstance(index, pd.TimedeltaIndex):
        ahead = index
    elif step is None:
        return index.to_numpy(), "steps ahead"
    else:
        ahead = pd.Timedelta(step) * index
    hours = (ahead / pd.Timedelta(hours=1)).to_numpy()
    return (hours / 24, "days ahead") if hours[-1] > 96 else (hours, "hours ahead")
