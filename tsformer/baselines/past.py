"""What a baseline sees of a window: the values before its origin, without gaps."""

import numpy as np

from tsformer.data.store import SeriesStore
from tsformer.data.types import FloatArray


def past_of(store: SeriesStore, series: int, origin: int, history: int) -> FloatArray:
    """Return the values of a series in the last steps before an origin, (N,), N <= `history`.

    Missing values between two others lie on the line between them, those at the end repeat the
    last one, and those at the begin are left out; so there are none where there is no value.
    """
    begin = max(int(store.starts[series]), origin - history)
    values = store.values(series, begin, origin)
    seen = np.flatnonzero(~np.isnan(values))
    if len(seen) in (0, len(values)):
        return values[: len(seen)]
    return np.interp(np.arange(seen[0], len(values)), seen, values[seen])


def is_constant(y: FloatArray) -> bool:
    """Tell whether there are no two different values."""
    return len(y) == 0 or bool((y == y[0]).all())
