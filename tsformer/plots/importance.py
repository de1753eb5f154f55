"""How much covariates matter to a forecast."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tsformer.plots.style import CONTEXT, PALETTE, axes_or_new, figure_of, tidy


def plot_importance(importance: pd.DataFrame, *, ax: Axes | None = None) -> Figure:
    """Draw by how much the error rises without each covariate, as horizontal bars.

    Whiskers are one standard deviation over the repeats, on either side.

    Args:
        importance: what `Forecaster.covariate_importance` returns, or its first rows; they are
            drawn from the top down, without those that could not be judged.
        ax: where to draw; None: a new figure.

    Returns:
        The figure, which `savefig` saves.
    """
    rows = importance.dropna(subset="importance")
    place = np.arange(len(rows))
    ax = axes_or_new(ax, 7, 1.2 + 0.3 * len(rows))
    ax.barh(
        place, rows["importance"], xerr=rows["std"], color=PALETTE[1], ecolor=CONTEXT, capsize=3
    )
    names = [
        name if kind == "calendar" else f"{name} ({kind})"
        for name, kind in zip(rows["covariate"], rows["kind"], strict=True)
    ]
    ax.set_yticks(place, names, parse_math=False)
    ax.invert_yaxis()
    ax.axvline(0, color=CONTEXT, linewidth=0.8)
    ax.set_xlabel("rise of the mean absolute error (scaled units)")
    tidy(ax, grid="x")
    ax.set_axisbelow(True)
    return figure_of(ax)
