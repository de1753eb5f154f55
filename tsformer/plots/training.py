"""How a training went."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from tsformer.plots.style import (
    CONTEXT,
    FORECAST,
    PALETTE,
    NotebookFigure,
    axes_or_new,
    figure_of,
    plain_legend,
    tidy,
)


def plot_training(curves: pd.DataFrame, *, best_step: int | None = None) -> Figure:
    """Draw training loss and learning rate by step, and the validation error by epoch.

    Args:
        curves: columns `step`, `train/loss`, `val/mae` and `lr-AdamW` or alike, as the CSV
            logger writes them; NaN where a column was not logged at a step.
        best_step: step of the checkpoint chosen.

    Returns:
        A new figure of two axes, which `savefig` saves.
    """
    figure = NotebookFigure(9, 5.5)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _plot_column(top, curves, "train/loss", "training loss", color=PALETTE[1], linewidth=0.9)
    _plot_column(top, curves, "val/mae", "validation MAE", color=FORECAST, marker="o")
    if best_step is not None:
        top.axvline(best_step, color=CONTEXT, linestyle=":", label="best checkpoint")
    top.set_ylabel("scaled units")
    plain_legend(top)
    for name in (name for name in curves.columns if name.startswith("lr-")):
        _plot_column(bottom, curves, name, name, color=PALETTE[2])
    bottom.set_ylabel("learning rate")
    bottom.set_xlabel("optimiser step")
    tidy(top)
    tidy(bottom)
    return figure


def plot_lr_test(
    rates: ArrayLike, losses: ArrayLike, chosen: float, *, ax: Axes | None = None
) -> Figure:
    """Draw the training loss while the learning rate grew, and the rate that was chosen.

    Args:
        rates: learning rates, (N,).
        losses: smoothed training loss at each, (N,).
        chosen: one of the rates.
        ax: where to draw; None: a new figure.

    Returns:
        The figure.
    """
    ax = axes_or_new(ax, 7, 4)
    ax.plot(rates, losses, color=PALETTE[1], linewidth=1.5, label="training loss, smoothed")
    ax.axvline(chosen, color=FORECAST, linestyle=":", label=f"chosen: {chosen:g}")
    low = float(np.min(losses))
    start = float(np.asarray(losses)[0])
    ax.set_ylim(low - 0.1 * (start - low), start + 0.5 * (start - low))  # not where it diverges
    ax.set_xscale("log")
    ax.set_xlabel("learning rate")
    ax.set_ylabel("training loss")
    plain_legend(ax)
    tidy(ax)
    return figure_of(ax)


def _plot_column(ax: Axes, curves: pd.DataFrame, name: str, label: str, **style: Any) -> None:
    if name in curves:
        points = curves[["step", name]].dropna()
        ax.plot(points["step"], points[name], label=label, **style)
