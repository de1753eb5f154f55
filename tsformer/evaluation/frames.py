"""Frames of forecasts beside truth, as `Forecaster.cross_validate` returns them."""

import re
from collections.abc import Sequence

import pandas as pd

_OTHERS = {"unique_id", "target", "ds", "cutoff", "y"}
_BESIDE_POINTS = re.compile(r"-(lo|hi|q|sample)-[\d.]+$")


def point_columns(frame: pd.DataFrame, ids: Sequence[str] = ()) -> list[str]:
    """Return the columns that hold point forecasts: the names of the methods.

    Args:
        frame: `unique_id, ds, cutoff, y`, and by method its points and, if it has some, quantiles
            and sample paths, named after it, such as `tsformer-lo-90`.
        ids: columns that tell the series, if they have other names.
    """
    methods = []
    for name in map(str, frame.columns):
        beside = _BESIDE_POINTS.search(name)
        is_beside = beside is not None and name[: beside.start()] in frame.columns
        if name not in _OTHERS and name not in ids and not is_beside:
            methods.append(name)
    return methods
