"""Frames of forecasts beside their truth, as `Forecaster.cross_validate` returns them."""

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from tsformer.data.calendar import step_of
from tsformer.errors import ConfigError

STEP, HOUR, WEEKDAY, MONTH = GROUPS = "horizon step", "hour", "weekday", "month"
NOT_FORECAST = {"unique_id", "target", "ds", "cutoff", "y", *GROUPS}
DISTRIBUTION = re.compile(r"(.+)-(?:(lo|hi|q)-([0-9.]+)|sample-[0-9]+)")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def point_columns(frame: pd.DataFrame, ids: Sequence[str] = ()) -> list[str]:
    """Return the columns that hold point forecasts: the names of the methods.

    Args:
        frame: `unique_id, ds, cutoff, y`, and by method its points and, if it has some, quantiles
            and sample paths, named after it, such as `tsformer-lo-90`.
        ids: columns that tell the series, if they have other names.
    """
    methods = []
    for name in map(str, frame.columns):
        beside = DISTRIBUTION.fullmatch(name)
        is_beside = beside is not None and beside[1] in frame.columns
        if name not in NOT_FORECAST and name not in ids and not is_beside:
            methods.append(name)
    return methods


def quantile_columns(frame: pd.DataFrame, method: str) -> dict[float, str]:
    """Return a method's quantiles, level -> column, rising; the ends of intervals are some."""
    found: dict[float, str] = {}
    for name in map(str, frame.columns):
        match = DISTRIBUTION.fullmatch(name)
        if match is None or match[1] != method or match[2] is None:
            continue
        number = float(match[3])
        level = {"q": number, "lo": 0.5 - number / 200, "hi": 0.5 + number / 200}[match[2]]
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
