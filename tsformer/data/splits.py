"""Where train, validation and test rows end."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from tsformer.data.store import SeriesStore
from tsformer.errors import ConfigError


def split_ends(split: Sequence[float] | Sequence[str], store: SeriesStore) -> tuple[int, int, int]:
    """Return the grid positions where train, validation and test rows end.

    Args:
        split: three fractions, or three numbers of steps; what is left at the end is unused.
            Fractions that sum to 1 follow the published benchmarks: train and test are rounded
            down, and validation is what lies between. Or two or three times as text, in the
            table's local time: when validation begins, when the test begins, and when it ends,
            which is the first time left out.
        store: gives the grid.

    Raises:
        ConfigError: a text is not a time, times do not ascend, or lie outside the grid.
    """
    times = [part for part in split if isinstance(part, str)]
    if times:
        return _ends_at(times, split, store)
    parts = [float(part) for part in split]
    length, total = len(store.grid), sum(parts)
    if abs(total - 1) < 1e-9:
        return int(length * parts[0]), length - int(length * parts[2]), length
    if total < 1:
        parts = [part * length for part in parts]
    ends = [min(round(sum(parts[:count])), length) for count in (1, 2, 3)]
    return ends[0], ends[1], ends[2]


def _ends_at(
    times: Sequence[str], split: Sequence[float] | Sequence[str], store: SeriesStore
) -> tuple[int, int, int]:
    if len(times) != len(split) or len(split) not in (2, 3):
        raise ConfigError(
            f"dataset.split={list(split)}: give two or three times, when validation and test begin "
            "and when the test ends, or three numbers."
        )
    stamps = [grid_time("dataset.split", time, store) for time in times]
    if any(later <= earlier for earlier, later in pairwise(stamps)):
        raise ConfigError(f"dataset.split={list(split)}: these times do not ascend.")
    # A grid taken as it came may hold a stamp twice, or one out of order.
    ends = [int(np.count_nonzero(store.grid < stamp)) for stamp in stamps]
    last, behind = store.extended(1).grid[-2:]
    for time, stamp, end, latest in zip(times, stamps, ends, (last, last, behind), strict=False):
        if end == 0 or stamp > latest:
            span = store.stamps(np.array([0, len(store.grid) - 1]))
            raise ConfigError(
                f"dataset.split: {time!r} lies outside the table's times, {span[0]} to {span[1]}. "
                "Give times between them."
            )
    return ends[0], ends[1], ends[2] if len(ends) == 3 else len(store.grid)


def grid_time(name: str, time: Any, store: SeriesStore) -> pd.Timestamp:
    """Return a local time as the grid has it: naive, or in UTC.

    Args:
        name: of the setting or argument.
        time: a text, or a stamp.
        store: gives the grid, and the zone.

    Raises:
        ConfigError: it is no local time.
    """
    try:
        if isinstance(time, (int, float)):  # nanoseconds, to pandas
            raise TypeError("a number")
        stamp = pd.Timestamp(pd.to_datetime(time, format="ISO8601"))
    except (ValueError, TypeError):
        stamp = pd.NaT
    if stamp is pd.NaT or stamp.tz is not None:
        raise ConfigError(
            f"{name}: {time!r} is not a local time such as 2024-01-31 or 2024-01-31 13:00."
        )
    if store.grid.tz is None:
        return stamp
    local = stamp.tz_localize(store.time_zone, ambiguous=True, nonexistent="shift_forward")
    return local.tz_convert("UTC")
