"""Columns of a frame as arrays, or a complaint that names column, row and remedy."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from tsformer.data.calendar import step_of
from tsformer.data.types import FloatArray, IntArray
from tsformer.errors import DataError


def parse_numbers(frame: pd.DataFrame, names: Sequence[str]) -> FloatArray:
    """Return columns as (R, F) numbers, NaN where empty.

    Raises:
        DataError: a value is not a number, or infinite.
    """
    values = np.empty((len(frame), len(names)))
    for column, name in enumerate(names):
        values[:, column] = _to_floats(frame[name], name)
        infinite = np.isinf(values[:, column])
        if infinite.any():
            raise DataError(
                f"column {name!r}, row {int(np.argmax(infinite))}: infinite. "
                "Correct it, or leave it empty if the value is missing."
            )
    return values


def _to_floats(column: pd.Series, name: str) -> FloatArray:
    dtype = column.dtype
    # Dates, times and complex numbers would pass for numbers below.
    if dtype.kind in "mMc" or isinstance(dtype, pd.PeriodDtype):
        raise DataError(
            f"column {name!r} holds values of type {dtype}, not numbers. Convert them, or do not "
            "use the column."
        )
    if isinstance(dtype, pd.ArrowDtype) and (
        pa.types.is_decimal(dtype.pyarrow_dtype) or pa.types.is_float16(dtype.pyarrow_dtype)
    ):
        column = column.astype(pd.ArrowDtype(pa.float64()))  # pandas fails on these
    numbers = pd.to_numeric(column, errors="coerce")
    values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    wrong = np.isnan(values) & column.notna().to_numpy()
    # Of numbers, those alone: pandas tells NaN from NA in some types.
    if wrong.any() and not pd.api.types.is_numeric_dtype(dtype):
        row = int(np.argmax(wrong))
        raise DataError(
            f"column {name!r}, row {row}: {column.iloc[row]!r} is not a number. "
            "Correct it, leave it empty if the value is missing, or do not use the column."
        )
    return values


def parse_stamps(column: pd.Series, name: str) -> tuple[pd.DatetimeIndex, str | None]:
    """Return a column as time stamps, and their time zone; zoned stamps become UTC.

    Raises:
        DataError: a value is not a time, or none is given.
    """
    if pd.api.types.is_numeric_dtype(column):
        raise DataError(
            f"column {name!r} holds numbers, not times; it has to hold dates such as 2024-01-31 "
            "or 2024-01-31 13:00. Convert it, or name another with dataset.time_column."
        )
    try:
        with warnings.catch_warnings():  # stamps that pandas would parse one by one, each its way
            warnings.simplefilter("error", UserWarning)
            day_first = _is_day_first(column, name)
            utc = _has_changing_offset(column)
            parsed = pd.to_datetime(column, dayfirst=day_first, utc=utc)
            stamps = pd.DatetimeIndex(parsed).as_unit("us")
    except (ValueError, TypeError, UserWarning) as error:
        raise DataError(
            f"column {name!r} does not hold times of one form, such as 2024-01-31 or "
            f"2024-01-31 13:00: {error}"
        ) from error
    if stamps.hasnans:
        raise DataError(f"column {name!r}, row {int(np.argmax(stamps.isna()))}: no time is given.")
    if stamps.tz is None:
        return stamps, None
    return stamps.tz_convert("UTC"), str(stamps.tz)


def _is_day_first(column: pd.Series, name: str) -> bool:
    """Tell 31/01/2024 from 01/31/2024 by a number above 12; refuse to guess without one."""
    if not pd.api.types.is_string_dtype(column.dtype):
        return False
    parts = column.astype(str).str.extract(r"^\s*(\d{1,2})[./-](\d{1,2})[./-]\d").dropna()
    if parts.empty:
        return False
    first, second = (parts[place].astype(int).max() for place in (0, 1))
    if first <= 12 and second <= 12:
        raise DataError(
            f"column {name!r}: {column.iloc[0]!r} may begin with the day or with the month, and no "
            "row tells which. Write dates as 2024-01-31."
        )
    return bool(first > 12)


def _has_changing_offset(column: pd.Series) -> bool:
    """Tell text such as 2024-01-01 00:00+01:00 whose offset changes with summer time."""
    if not pd.api.types.is_string_dtype(column.dtype):
        return False
    offsets = column.astype(str).str.extract(r":\d\d(?:\.\d+)?\s*([+-]\d\d:?\d\d)$")[0]
    return len(offsets.dropna().unique()) > 1


def parse_ids(column: pd.Series, name: str) -> tuple[tuple[str, ...], IntArray]:
    """Return the ids as text, in order of appearance, and the index of each row's id, (R,).

    Raises:
        DataError: a row has no id.
    """
    text = column.astype(str)
    empty = (column.isna() | (text == "")).to_numpy()
    if empty.any():
        raise DataError(f"column {name!r}, row {int(np.argmax(empty))}: no series id is given.")
    codes, ids = pd.factorize(text)
    return tuple(ids), codes


def check_freq(freq: str) -> str:
    """Return a pandas offset alias as it is.

    Raises:
        DataError: pandas does not know it.
    """
    try:
        known = pd.tseries.frequencies.to_offset(freq).n > 0 and step_of(freq) > pd.Timedelta(0)
    except (ValueError, OverflowError):
        known = False
    if not known:
        raise DataError(
            f"freq={freq!r} is not a step that pandas knows, such as 30min, h, D, W-SUN, MS, QS "
            "or YS. Give another dataset.freq."
        )
    return freq


def infer_freq(stamps: pd.DatetimeIndex, time_zone: str | None = None) -> str:
    """Return the offset alias of the commonest step between ordered, distinct stamps.

    Args:
        stamps: times of one series, naive or in UTC.
        time_zone: zone of stamps in UTC, whose clock counts for steps of days and longer.

    Raises:
        DataError: fewer than two stamps.
    """
    if len(stamps) < 2:
        raise DataError("one time stamp alone has no step. Give dataset.freq.")
    if time_zone is not None and np.median(np.diff(stamps.asi8)) >= 23 * 3_600_000_000:
        stamps = wall_clock(stamps, time_zone)
    if len(stamps) >= 3:
        with warnings.catch_warnings():  # pandas 3.1 on: it will return an offset one day
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            freq = pd.infer_freq(stamps)
        if freq is not None:
            return getattr(freq, "freqstr", freq)
    steps, counts = np.unique(np.diff(stamps.to_numpy()), return_counts=True)
    commonest = pd.Timedelta(steps[np.argmax(counts)])
    if commonest >= pd.Timedelta(days=28):
        raise DataError(
            f"the steps between stamps vary around {commonest}: looks like months, quarters or "
            "years with gaps. Give dataset.freq, for example MS (month start)."
        )
    return pd.tseries.frequencies.to_offset(commonest).freqstr


def grid_stamps(stamps: pd.DatetimeIndex, time_zone: str | None, freq: str) -> pd.DatetimeIndex:
    """Return UTC stamps as they lie on a grid: days and longer follow the wall clock."""
    if time_zone is None or step_of(freq) < pd.Timedelta(days=1):
        return stamps
    return wall_clock(stamps, time_zone)


def wall_clock(stamps: pd.DatetimeIndex, time_zone: str) -> pd.DatetimeIndex:
    """Return UTC stamps as naive local time; a day without midnight still begins at 0:00."""
    local = stamps.tz_convert(time_zone).tz_localize(None)
    midnight = local.normalize()
    begins = midnight.tz_localize(time_zone, ambiguous=True, nonexistent="shift_forward")
    return local.where(begins != stamps, midnight)
