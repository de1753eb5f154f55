"""What a fit has to know of a table's series, given its lengths and its split."""

from collections.abc import Sequence

import numpy as np

from tsformer.data.findings import Finding, Findings
from tsformer.data.scaling import find_too_small_for_log1p, find_values
from tsformer.data.store import SeriesStore
from tsformer.data.types import BoolArray, IntArray

_MOST_NAMES = 5


def find_short(
    store: SeriesStore,
    groups: IntArray,
    findings: Findings,
    *,
    train_end: int,
    context_length: int,
    horizon: int,
    short_series: str,
) -> BoolArray:
    """Find series that are too short for a window, or that begin too late to be trained on.

    Args:
        store: the series.
        groups: those that are forecast together, (N, C).
        findings: receives what is found.
        train_end: grid position after the last train row.
        context_length: L.
        horizon: H.
        short_series: `pad` or `drop`, what to do with series shorter than L + H.

    Returns:
        Which groups are dropped, (N,).
    """
    begins, ends = store.starts[groups].min(axis=1), store.ends[groups].max(axis=1)
    short = ends - begins < context_length + horizon
    late = ~short & (begins >= train_end)
    done = "padded on the left" if short_series == "pad" else "left out"
    needed = f"context_length + horizon = {context_length + horizon} steps"
    for rows, kind, text, remedy in (
        (short, "short series", f"shorter than {needed}: {done}", "See dataset.short_series."),
        (
            late,
            "late series",
            f"no row before the train part ends, at {store.grid[train_end - 1]}",
            "They are scaled like the others, but not trained on. Change dataset.split to train "
            "on them.",
        ),
    ):
        if rows.any():
            names = [store.ids[series] for series in groups[rows, 0]]
            findings.add(Finding("warning", kind, f"{listed(names)}: {text}", remedy, len(names)))
    return short if short_series == "drop" else np.zeros(len(groups), dtype=bool)


def check_transform(store: SeriesStore, transform: str, findings: Findings) -> None:
    """Find values that a transform of the target cannot take."""
    if transform == "log1p" and (finding := find_too_small_for_log1p(store)):
        findings.add(finding)


def check_counts(store: SeriesStore, head: str, findings: Findings) -> None:
    """Find values that are not counts, which the head `negative_binomial` cannot take."""
    if head != "negative_binomial":
        return
    finding = find_values(
        store,
        # Whole as far as float32 tells, in which a store holds them.
        lambda values: (values < 0) | (np.abs(values - values.round()) > 1e-7 * values),
        "values that are not counts",
        "is not a count such as 0, 1 or 2, which model.head=negative_binomial needs",
        "Set model.head=quantile.",
    )
    if finding:
        findings.add(finding)


def listed(names: Sequence[str]) -> str:
    """Name the first few of some series."""
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    more = len(names) - _MOST_NAMES
    return f"series {shown}{f' and {more:,} more' if more > 0 else ''}"
