"""What all figures share: colours, axes, times and legends."""

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any, Literal

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_rgb
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

# Okabe & Ito's palette, distinguishable with any colour vision.
TRUTH, FORECAST, CONTEXT = "#000000", "#D55E00", "#7F7F7F"
PALETTE = (FORECAST, "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class NotebookFigure(Figure):
    """A figure that a notebook shows as the value of a cell.

    It is none of pyplot's, which keeps its own alive until they are closed; others than these are
    shown only where pyplot has set that up before.
    """

    def __init__(self, width: float, height: float) -> None:
        """Make it, of a size in inches."""
        super().__init__(figsize=(width, height), layout="constrained")

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()


def axes_or_new(ax: Axes | None, width: float, height: float) -> Axes:
    """Return axes as they are, or those of a new figure of a size in inches."""
    return NotebookFigure(width, height).subplots() if ax is None else ax


def figure_of(ax: Axes) -> Figure:
    """Return the figure that axes are in, also by way of a part of it."""
    return ax.figure.figure


def time_axis(axis: Axis, zone: Any, *, show_offset: bool = True) -> str:
    """Let an axis tell times of a zone, or naive ones; return what it is to be called."""
    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=7)
    axis.set_major_locator(locator)
    axis.set_major_formatter(ConciseDateFormatter(locator, tz=zone, show_offset=show_offset))
    return f"time ({zone})" if zone else "time"


def line_colors(number: int) -> Sequence[str]:
    """Return a colour for each of several lines, the forecast's first."""
    return [PALETTE[i % len(PALETTE)] for i in range(number)]


def tint(color: str, strength: float) -> tuple[float, ...]:
    """Return a colour mixed with white."""
    return tuple(1 - strength * (1 - part) for part in to_rgb(color))


def tidy(ax: Axes, grid: Literal["x", "y"] = "y") -> None:
    """Take away what carries no information, and draw thin lines across an axis."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis=grid, color="#DDDDDD", linewidth=0.6)


def plain_legend(owner: Axes | Figure, *arguments: Any, **style: Any) -> None:
    """Add a legend whose names are shown as they are, with any `$`."""
    legend = owner.legend(*arguments, framealpha=0.8, edgecolor="none", **style)
    for text in legend.get_texts():
        text.set_parse_math(False)


def model_first(methods: Iterable[Any]) -> list[Any]:
    """Return names of methods, tsformer first, which then has the same colour in all figures."""
    return sorted(methods, key=lambda name: name != "tsformer")
