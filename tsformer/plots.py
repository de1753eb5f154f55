"""Figures: forecasts, errors by horizon step, calibration, training curves, attention."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from tsformer.data.types import FloatArray
from tsformer.errors import ConfigError

if TYPE_CHECKING:
    from tsformer.attention_maps import AttentionMaps

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
    ax.set_xlabel(_time_axis(ax.xaxis, truth.index.tz))
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


def plot_attention(
    ax: Axes,
    maps: "AttentionMaps",
    kind: str = "cross",
    *,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Draw who attends to whom as a heatmap: rows attend, columns are attended to.

    Args:
        ax: where to draw; a colour bar takes a part of it.
        maps: of `Forecaster.attention`.
        kind: `encoder`, `decoder` or `cross`; see `AttentionMaps`.
        layer: which one, from 0; None: their mean.
        head: which one, from 0; None: their mean.

    Raises:
        ConfigError: there is no such kind, layer or head.
    """
    kinds = {"encoder": maps.encoder, "decoder": maps.decoder, "cross": maps.cross}
    if kind not in kinds:
        raise ConfigError(f"kind={kind!r}: give one of {', '.join(kinds)}.")
    weights, told = kinds[kind], []
    for name, number in (("layer", layer), ("head", head)):
        count = len(weights)
        if number is not None and not 0 <= number < count:
            raise ConfigError(f"{name}={number}: the {kind} maps have {count}, counted from 0.")
        is_mean = number is None and count > 1
        told.append(f"mean of {count} {name}s" if is_mean else f"{name} {number or 0}")
        weights = weights.mean(axis=0) if number is None else weights[number]
    context = maps.context_tokens.append(maps.horizon[:1])
    horizon = maps.horizon_tokens.append(_end(maps))
    rows = context if kind == "encoder" else horizon
    columns = horizon if kind == "decoder" else context
    names = ["horizon" if edges is horizon else "context" for edges in (rows, columns)]
    _heatmap(ax, weights, rows, columns, names, "attention weight")
    title = "cross-attention" if kind == "cross" else f"{kind} self-attention"
    ax.set_title(f"{title}, {', '.join(told)}", fontsize="medium")


def plot_draws_on(ax: Axes, maps: "AttentionMaps") -> None:
    """Draw which steps of the context each step of the horizon draws on, as a heatmap.

    Args:
        ax: where to draw; a colour bar takes a part of it.
        maps: of `Forecaster.attention`; see `AttentionMaps.draws_on`.
    """
    context, horizon = maps.context.append(maps.horizon[:1]), maps.horizon.append(_end(maps))
    percent = 100 * maps.draws_on().to_numpy()
    _heatmap(
        ax, percent, horizon, context, ("horizon", "context"), "share of each context step (%)"
    )
    ax.set_title("what the horizon draws on (attention rollout)", fontsize="medium")


def plot_positions(ax: Axes, d_model: int, length: int) -> None:
    """Draw the sinusoidal encoding of token positions as a heatmap.

    Args:
        ax: where to draw; a colour bar takes a part of it.
        d_model: width of the tokens, D.
        length: number of tokens.
    """
    from tsformer.nn.embedding import sinusoidal_positions  # which loads torch

    table = sinusoidal_positions(length, d_model).numpy()
    # About 0, so the colours have a middle.
    image = ax.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    ax.figure.colorbar(image, ax=ax, label="value")
    ax.set_xlabel("dimension (even: sine, odd: cosine)")
    ax.set_ylabel("position of the token")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=8, integer=True))


def _heatmap(
    ax: Axes,
    weights: FloatArray,
    rows: pd.DatetimeIndex,
    columns: pd.DatetimeIndex,
    names: Sequence[str],
    label: str,
) -> None:
    """Draw weights (R, C) between times (R+1,) downwards and (C+1,) to the right."""
    edges = date2num(columns), date2num(rows)
    mesh = ax.pcolormesh(*edges, weights, cmap="cividis", vmin=0, rasterized=True)
    ax.figure.colorbar(mesh, ax=ax, label=label)
    ax.invert_yaxis()  # as in a matrix, and time runs on downwards
    # The labels tell the day, as the vertical axis' offset would run into the title.
    _time_axis(ax.yaxis, rows.tz, show_offset=False)
    ax.set_ylabel(f"{names[0]} from {rows[0]:%Y-%m-%d}")
    time = _time_axis(ax.xaxis, columns.tz, show_offset=False)
    ax.set_xlabel(f"{names[1]} from {columns[0]:%Y-%m-%d}, {time}")


def _end(maps: "AttentionMaps") -> pd.DatetimeIndex:
    """Return the time behind the horizon's last step, (1,)."""
    step = (maps.horizon[-1] - maps.context[-1]) / len(maps.horizon)
    return pd.DatetimeIndex([maps.horizon[-1] + step])


def _time_axis(axis: Axis, zone: Any, *, show_offset: bool = True) -> str:
    """Let an axis tell times of a zone, or naive ones; return what it is to be called."""
    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=7)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator, tz=zone, show_offset=show_offset))
    return f"time ({zone})" if zone else "time"


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
