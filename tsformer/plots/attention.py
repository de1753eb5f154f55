"""Attention, and the encoding of positions, as heatmaps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tsformer.data.types import FloatArray
from tsformer.errors import ConfigError
from tsformer.plots.style import axes_or_new, figure_of, time_axis

if TYPE_CHECKING:
    from tsformer.prediction.attention_maps import AttentionMaps


def plot_attention(
    maps: "AttentionMaps",
    kind: str = "cross",
    *,
    layer: int | None = None,
    head: int | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draw who attends to whom as a heatmap: rows attend, columns are attended to.

    `plot_attention(...).savefig("attention.png")` saves the figure; a notebook shows it as it is.

    Args:
        maps: one of those that `Forecaster.attention` returns.
        kind: `encoder`, `decoder` or `cross`; see `AttentionMaps`.
        layer: which one, from 0; None: their mean.
        head: which one, from 0; None: their mean.
        ax: where to draw, a colour bar takes a part of it; None: a new figure.

    Returns:
        The figure.

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
    ax = axes_or_new(ax, 7, 4.5)
    _heatmap(ax, weights, rows, columns, names, "attention weight")
    title = "cross-attention" if kind == "cross" else f"{kind} self-attention"
    ax.set_title(f"{title}, {', '.join(told)}", fontsize="medium")
    return figure_of(ax)


def plot_draws_on(maps: "AttentionMaps", *, ax: Axes | None = None) -> Figure:
    """Draw which steps of the context each step of the horizon draws on, as a heatmap.

    Args:
        maps: one of those that `Forecaster.attention` returns; see `AttentionMaps.draws_on`.
        ax: where to draw, a colour bar takes a part of it; None: a new figure.

    Returns:
        The figure.
    """
    context, horizon = maps.context.append(maps.horizon[:1]), maps.horizon.append(_end(maps))
    ax = axes_or_new(ax, 7, 4.5)
    percent = 100 * maps.draws_on().to_numpy()
    _heatmap(
        ax, percent, horizon, context, ("horizon", "context"), "share of each context step (%)"
    )
    ax.set_title("what the horizon draws on (attention rollout)", fontsize="medium")
    return figure_of(ax)


def plot_positions(d_model: int, length: int, *, ax: Axes | None = None) -> Figure:
    """Draw the sinusoidal encoding of token positions as a heatmap.

    Args:
        d_model: width of the tokens, D.
        length: number of tokens.
        ax: where to draw, a colour bar takes a part of it; None: a new figure.

    Returns:
        The figure.
    """
    from tsformer.nn.embedding import sinusoidal_positions  # which loads torch

    ax = axes_or_new(ax, 7, 4.5)
    table = sinusoidal_positions(length, d_model).numpy()
    # About 0, so the colours have a middle.
    image = ax.imshow(table, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="none")
    ax.figure.colorbar(image, ax=ax, label="value")
    ax.set_xlabel("dimension (even: sine, odd: cosine)")
    ax.set_ylabel("position of the token")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    return figure_of(ax)


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
    time_axis(ax.yaxis, rows.tz, show_offset=False)
    ax.set_ylabel(f"{names[0]} from {rows[0]:%Y-%m-%d}")
    time = time_axis(ax.xaxis, columns.tz, show_offset=False)
    ax.set_xlabel(f"{names[1]} from {columns[0]:%Y-%m-%d}, {time}")


def _end(maps: "AttentionMaps") -> pd.DatetimeIndex:
    """Return the time after the horizon's last step, (1,)."""
    step = (maps.horizon[-1] - maps.context[-1]) / len(maps.horizon)
    return pd.DatetimeIndex([maps.horizon[-1] + step])
