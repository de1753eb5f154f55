"""Frames of forecasts beside their truth, as `Forecaster.cross_validate` returns them."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from tsformer.data.calendar import step_of
from tsformer.data.frames import as_pandas
from tsformer.data.parsing import parse_stamps
from tsformer.errors import ConfigError, DataError

STEP, HOUR, WEEKDAY, MONTH = GROUPS = "horizon step", "hour", "weekday", "month"
NOT_FORECAST = {"unique_id", "target", "ds", "cutoff", "y", *GROUPS}
DISTRIBUTION = re.compile(r"(.+)-(?:(lo|hi|q)-([0-9]+(?:\.[0-9]+)?)|sample-[0-9]+)")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def read_forecasts(forecasts: Any) -> pd.DataFrame:
    """Return forecasts as a pandas frame, with times where they were read as text.

    Args:
        forecasts: `unique_id, ds`, forecasts, and `cutoff` and `y` where they are known; a
            pandas or Polars frame, or a pyarrow table.

    Raises:
        DataError: two columns have one name, an id is missing, a time is none, or a forecast or a
            truth is infinite.
    """
    frame = as_pandas(forecasts)
    if "unique_id" in frame and frame["unique_id"].isna().any():
        raise DataError("forecasts: some rows have no unique_id. Fill it in, or remove them.")
    times = {
        name: _times(frame[name], name)
        for name in ("ds", "cutoff")
        if name in frame and not pd.api.types.is_datetime64_any_dtype(frame[name])
    }
    frame = frame.assign(**times) if times else frame
    if {"ds", "cutoff"} <= set(frame) and (frame["ds"].dt.tz is None) != (
        frame["cutoff"].dt.tz is None
    ):
        raise DataError("forecasts: one of ds and cutoff has a time zone. Give both the same.")
    methods = point_columns(frame)
    values = [name for method in methods for name in quantile_columns(frame, method).values()]
    for name in [*(["y"] if "y" in frame else []), *methods, *values]:
        if not is_number(frame[name]):
            raise DataError(f"forecasts: column {name!r} holds no numbers. Convert it.")
        if np.isinf(frame[name].to_numpy(np.float64, na_value=np.nan)).any():
            raise DataError(
                f"forecasts: column {name!r} holds infinite values. Leave them empty, as "
                "NaN, where there is no forecast."
            )
    return frame


def _times(column: pd.Series, name: str) -> pd.Series:
    try:
        stamps, zone = parse_stamps(column, name)
    except DataError as error:
        raise DataError(f"forecasts: {error}") from error
    return pd.Series(stamps if zone is None else stamps.tz_convert(zone), column.index)


def is_number(column: pd.Series) -> bool:
    """Tell columns of numbers, which forecasts are, from remarks, flags and times."""
    types = pd.api.types
    dtype = column.dtype
    return (
        types.is_numeric_dtype(dtype)
        and not types.is_bool_dtype(dtype)
        and not types.is_complex_dtype(dtype)
    )


def point_columns(frame: pd.DataFrame, ids: Sequence[str] = ()) -> list[str]:
    """Return the columns that hold point forecasts, numbers: the names of the methods.

    Args:
        frame: `unique_id, ds, cutoff, y`, and by method its points and, if it has some, quantiles
            and sample paths, named after it, such as `tsformer-lo-90`.
        ids: columns that tell the series, if they have other names.
    """
    methods = []
    for name in map(str, frame.columns):
        beside = DISTRIBUTION.fullmatch(name)
        if name in NOT_FORECAST or name in ids or (beside and beside[1] in frame.columns):
            continue
        if is_number(frame[name]):
            methods.append(name)
    return methods


def quantile_columns(frame: pd.DataFrame, method: str) -> dict[float, str]:
    """Return a method's quantiles, level -> column, rising; the ends of intervals are some.

    Raises:
        ConfigError: a column's name gives a level that there is not.
    """
    found: dict[float, str] = {}
    for name in map(str, frame.columns):
        match = DISTRIBUTION.fullmatch(name)
        if match is None or match[1] != method or match[2] is None:
            continue
        number = float(match[3])
        level = {"q": number, "lo": 0.5 - number / 200, "hi": 0.5 + number / 200}[match[2]]
        if not 0 < level < 1:
            raise ConfigError(
                f"column {name!r}: there is no such level. Quantiles are named such as "
                f"{method}-q-0.9, intervals {method}-lo-90 and {method}-hi-90."
            )
        found.setdefault(round(level, 9), name)
    return dict(sorted(found.items()))


def interval_columns(frame: pd.DataFrame, method: str) -> dict[float, tuple[str, str]]:
    """Return a method's central intervals, coverage -> columns of the ends, widest first."""
    columns = quantile_columns(frame, method)
    return {
        round(1 - 2 * level, 9): (lower, columns[round(1 - level, 9)])
        for level, lower in columns.items()
        if level < 0.5 and round(1 - level, 9) in columns
    }


def require_columns(frame: pd.DataFrame, names: Iterable[str]) -> None:
    """Refuse forecasts that lack a column.

    Raises:
        ConfigError: names those that are missing.
    """
    if missing := [name for name in names if name not in frame]:
        raise ConfigError(f"the forecasts lack the columns {missing}; they have {list(frame)}.")


def with_groups(
    frame: pd.DataFrame, freq: str | None = None, zone: str | None = None
) -> pd.DataFrame:
    """Return the frame with the groups that its errors are told by.

    Args:
        frame: one row for each step of each window.
        freq: step of the series; None: one below an hour.
        zone: whose clock tells hour, weekday and month of stamps that carry a zone.

    Returns:
        With the columns `horizon step` (1..H), and `hour`, `weekday` and `month` of the step that
        is forecast, in their order, where the step is shorter than these go on.

    Raises:
        ConfigError: the frame lacks `unique_id`, `ds` or `cutoff`.
    """
    require_columns(frame, ("unique_id", "ds", "cutoff"))
    window = [name for name in ("unique_id", "target", "cutoff") if name in frame]
    stamps = frame["ds"]
    if zone is not None and stamps.dt.tz is not None:
        stamps = stamps.dt.tz_convert(zone)
    rank = frame.groupby(window, sort=False, observed=True)["ds"].rank(method="first")
    groups = {STEP: rank.astype(int)}
    step = pd.Timedelta(0) if freq is None else step_of(freq)
    if step < pd.Timedelta(days=1):
        groups[HOUR] = stamps.dt.hour
    if step <= pd.Timedelta(days=1):
        groups[WEEKDAY] = _named(stamps.dt.day_of_week, _WEEKDAYS)
    if step < pd.Timedelta(days=360):
        groups[MONTH] = _named(stamps.dt.month - 1, _MONTHS)
    return frame.assign(**groups)


def groups_of(frame: pd.DataFrame) -> list[str]:
    """Return which columns of `with_groups` tell groups apart."""
    return [name for name in GROUPS if name in frame and len(frame[name].unique()) > 1]


def _named(numbers: pd.Series, names: tuple[str, ...] | list[str]) -> pd.Series:
    named = pd.Categorical.from_codes(numbers, categories=list(names), ordered=True)
    return pd.Series(named, index=numbers.index)
