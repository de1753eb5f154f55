"""Figures: forecasts, errors by horizon step, calibration, training curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

# Okabe & Ito's palette, distinguishable with any colour vision.
TRUTH, FORECAST, CONTEXT = "#000000", "#D55E00", "#7F7F7F"
PALETTE = (FORECAST, "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def plot_forecast(
    ax: Axes,
    *,
    context: pd.Series,
    truth: pd.Series,
    forecast: pd.Series,
    intervals: Mapping[float, tuple[pd.Series, pd.Series]] | None = None,
    unit: str | None = None,
) -> None:
    """Draw one window: what was seen, what came and what was forecast.

    Args:
        ax: where to draw.
        context: values seen, indexed by time.
        truth: values of the horizon, indexed by time.
        forecast: forecasts of the horizon, indexed by time.
        intervals: nominal coverage -> lower and upper ends, indexed by time; drawn as bands.
        unit: of the values.
    """
    ax.plot(context.index, context, color=CONTEXT, linewidth=1, label="context")
    ax.plot(truth.index, truth, color=TRUTH, linewidth=1.2, label="truth")
    ax.plot(forecast.index, forecast, color=FORECAST, linewidth=1.8, label="tsformer")
    bands = sorted((intervals or {}).items(), reverse=True)  # the narrowest on top
    for shade, (nominal, (lower, upper)) in zip(
        np.linspace(0.18, 0.5, len(bands)), bands, strict=True
    ):
        color, label = _tint(FORECAST, shade), f"{100 * nominal:g} %"
        ax.fill_between(lower.index, lower, upper, color=color, linewidth=0, label=label)
    ax.axvline(truth.index[0], color=CONTEXT, linewidth=0.8, linestyle=":")
    zone = truth.index.tz
    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=7)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))
    ax.set_xlabel(f"time ({zone})" if zone else "time")
    if unit:
        ax.set_ylabel(unit, parse_math=False)
    _tidy(ax)


def plot_error_by_horizon(
    ax: Axes, errors: Mapping[str, ArrayLike], *, step: pd.Timedelta, unit: str | None = None
) -> None:
    """Draw the mean absolute error of each method against the horizon step.

    Args:
        ax: where to draw.
        errors: method -> mean absolute error of each step, (H,).
        step: length of a step.
        unit: of the errors.
    """
    for color, (name, error) in zip(_colors(len(errors)), errors.items(), strict=True):
        hours = np.arange(1, len(np.asarray(error)) + 1) * (step / pd.Timedelta(hours=1))
        in_days = hours[-1] > 96
        width = 2.0 if color == FORECAST else 1.2
        ax.plot(hours / 24 if in_days else hours, error, color=color, linewidth=width, label=name)
    ax.set_xlabel("days ahead" if in_days else "hours ahead")
    ax.set_ylabel(f"mean absolute error{f' ({unit})' if unit else ''}", parse_math=False)
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=9, steps=[1, 2, 3, 6, 10]))
    ax.legend(frameon=False)
    _tidy(ax)


def plot_calibration(ax: Axes, levels: ArrayLike, fractions: Mapping[str, ArrayLike]) -> None:
    """Draw how often truths lay below the quantiles against how often they should have.

    On the diagonal a method is calibrated; a curve steeper than it promises too much width, a
    flatter one too little.

    Args:
        ax: where to draw.
        levels: of the quantiles, (Q,).
        fractions: method -> fraction of truths that are at most the quantile, (Q,).
    """
    ax.plot([0, 1], [0, 1], color=CONTEXT, linewidth=0.8, linestyle=":", label="calibrated")
    for color, (name, fraction) in zip(_colors(len(fractions)), fractions.items(), strict=True):
        width = 2.0 if color == FORECAST else 1.2
        ax.plot(
            levels, fraction, color=color, linewidth=width, marker="o", markersize=4, label=name
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("level of the quantile")
    ax.set_ylabel("fraction of truths below")
    ticks = np.linspace(0, 1, 6)
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    ax.legend(frameon=False)
    _tidy(ax)


def plot_training(curves: pd.DataFrame, *, best_step: int | None = None) -> Figure:
    """Draw training loss and learning rate by step, and the validation error by epoch.

    Args:
        curves: columns `step`, `train/loss`, `val/mae` and `lr-AdamW` or alike, as the CSV
            logger writes them; NaN where a column was not logged at a step.
        best_step: step of the checkpoint chosen.
    """
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _plot_column(top, curves, "train/loss", "training loss", color=PALETTE[1], linewidth=0.9)
    _plot_column(top, curves, "val/mae", "validation MAE", color=FORECAST, marker="o")
    if best_step is not None:
        top.axvline(best_step, color=CONTEXT, linestyle=":", label="best checkpoint")
    top.set_ylabel("scaled units")
    top.legend(frameon=False)
    for name in (name for name in curves.columns if name.startswith("lr-")):
        _plot_column(bottom, curves, name, name, color=PALETTE[2])
    bottom.set_ylabel("learning rate")
    bottom.set_xlabel("optimiser step")
    _tidy(top)
    _tidy(bottom)
    return figure


def plot_lr_test(rates: ArrayLike, losses: ArrayLike, chosen: float) -> Figure:
    """Draw the training loss while the learning rate grew, and the rate that was chosen.

    Args:
        rates: learning rates, (N,).
        losses: smoothed training loss at each, (N,).
        chosen: one of the rates.
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    ax = figure.subplots()
    ax.plot(rates, losses, color=PALETTE[1], linewidth=1.5, label="training loss, smoothed")
    ax.axvline(chosen, color=FORECAST, linestyle=":", label=f"chosen: {chosen:g}")
    low = float(np.min(losses))
    start = float(np.asarray(losses)[0])
    ax.set_ylim(low - 0.1 * (start - low), start + 0.5 * (start - low))  # not where it diverges
    ax.set_xscale("log")
    ax.set_xlabel("learning rate")
    ax.set_ylabel("training loss")
    ax.legend(frameon=False)
    _tidy(ax)
    return figure


def _plot_column(ax: Axes, curves: pd.DataFrame, name: str, label: str, **style: Any) -> None:
    if name in curves:
        points = curves[["step", name]].dropna()
        ax.plot(points["step"], points[name], label=label, **style)


def _colors(number: int) -> Sequence[str]:
    return [PALETTE[i % len(PALETTE)] for i in range(number)]


def _tint(color: str, strength: float) -> tuple[float, ...]:
    """Return a colour mixed with white."""
    return tuple(1 - strength * (1 - part) for part in to_rgb(color))


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
