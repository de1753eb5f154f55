"""Columns of a frame as arrays; what is wrong in them is found and named."""

import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from tsformer.data.calendar import step_of
from tsformer.data.findings import Finding, Findings
from tsformer.data.types import FloatArray, IntArray
from tsformer.errors import DataError

_ISO_DATE = r"\s*\d{4}-\d\d-\d\d"
_QUARTER = "quarter"
# Formats that pandas does not infer, or not where some ISO times have the time of day and others
# not, by the form of their texts.
_FORMS = {
    "ISO8601": _ISO_DATE,
    "%m/%d/%Y %I:%M %p": r"\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d\d [AaPp][Mm]$",
    "%m/%d/%Y %I:%M:%S %p": r"\d{1,2}/\d{1,2}/\d{4} \d{1,2}:\d\d:\d\d [AaPp][Mm]$",
    "%Y%m%d": r"(?:1[89]|2[01])\d{6}$",
    _QUARTER: r"(\d{4})-?Q([1-4])$",
}
_LARGEST = np.finfo(np.float32).max
# Names a cell: from its column and the number of its row to "series 'a', column 'y', row 3".
Place = Callable[[str, int], str]


def plain_place(name: str, row: int) -> str:
    """Name a cell of a frame whose rows are counted from 0."""
    return f"column {name!r}, row {row}"


def shown(value: object) -> str:
    """Return a cell as a message shows it: text in quotes, and cut if it is long."""
    text = str(value)
    text = text if len(text) <= 40 else f"{text[:40]}..."
    return repr(text) if isinstance(value, str) else text


def parse_numbers(
    frame: pd.DataFrame,
    names: Sequence[str],
    findings: Findings | None = None,
    place: Place = plain_place,
) -> FloatArray:
    """Return columns as (R, F) numbers, NaN where empty or wrong.

    Args:
        frame: has the columns.
        names: of the columns, F.
        findings: receives what is not a number, or infinite; None raises it.
        place: names a cell.

    Raises:
        DataError: a value is not a number, or infinite, and there are no `findings`.
    """
    found = Findings() if findings is None else findings
    values = np.empty((len(frame), len(names)))
    for number, name in enumerate(names):
        values[:, number] = _to_floats(frame[name], name, found, place)
    if findings is None:
        found.refuse()
    return values


def _to_floats(column: pd.Series, name: str, findings: Findings, place: Place) -> FloatArray:
    dtype = column.dtype
    # Dates, times and complex numbers would pass for numbers below.
    if dtype.kind in "mMc" or isinstance(dtype, pd.PeriodDtype):
        findings.add(
            Finding(
                "error",
                "not numbers",
                f"column {name!r} holds values of type {dtype}, not numbers",
                "Convert them, or do not use the column.",
            ),
            name,
        )
        return np.full(len(column), np.nan)
    if isinstance(dtype, pd.ArrowDtype) and (
        pa.types.is_decimal(dtype.pyarrow_dtype) or pa.types.is_float16(dtype.pyarrow_dtype)
    ):
        column = column.astype(pd.ArrowDtype(pa.float64()))  # pandas fails on these
    if isinstance(dtype, pd.CategoricalDtype):
        column = pd.Series(np.asarray(column), index=column.index)
    try:
        numbers = pd.to_numeric(column, errors="coerce")
    except OverflowError as error:
        raise DataError(
            f"column {name!r} holds a whole number with hundreds of digits ({error}). Correct it, "
            "or do not use the column."
        ) from error
    values: FloatArray = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    # Of numbers, no NaN is wrong: pandas tells NaN from NA in some types.
    if not pd.api.types.is_numeric_dtype(dtype):
        wrong = np.isnan(values) & column.notna().to_numpy()
        if wrong.any():
            row = int(np.argmax(wrong))
            findings.add(
                Finding(
                    "error",
                    "not a number",
                    f"{place(name, row)}: {shown(column.iloc[row])} is not a number",
                    "Correct it, leave it empty if the value is missing, do not use the column, "
                    "or name it in dataset.categorical if it holds categories.",
                    int(wrong.sum()),
                ),
                name,
            )
    infinite = np.abs(values) > _LARGEST
    if infinite.any():
        row = int(np.argmax(infinite))
        what = "infinite" if np.isinf(values[row]) else f"{values[row]:g} is too large"
        findings.add(
            Finding(
                "error",
                "infinite",
                f"{place(name, row)}: {what}",
                "Correct it, or leave it empty if the value is missing.",
                int(infinite.sum()),
            ),
            name,
        )
        values = np.where(infinite, np.nan, values)
    return values


def parse_texts(
    column: pd.Series, name: str, as_text: Callable[[Any], str] = str
) -> tuple[list[str], IntArray]:
    """Return the distinct values as text, and the number of each row's, (R,); -1 where missing.

    Args:
        column: values of any type.
        name: of the column.
        as_text: of one value.

    Raises:
        DataError: the values are lists or the like, or hold what is no Unicode.
    """
    try:
        codes, values = pd.factorize(column)
    except (TypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"column {name!r} holds values of type {column.dtype} that are not category names "
            f"({error}). Convert them to text, or do not use the column."
        ) from error
    texts = [as_text(value) for value in values]
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:  # which pandas can hold, but neither files nor a terminal
        raise DataError(
            f"column {name!r}: {error.object[error.start]!a} is no character but half of one. "
            "Read the file in its encoding, or correct the text."
        ) from error
    codes = codes.astype(np.int64)
    merged: dict[str, int] = {}  # the number 1 and the text 1 are one
    index = [merged.setdefault(text, len(merged)) if text else -1 for text in texts]
    codes = np.array([*index, -1], dtype=np.int64)[codes]  # the last stands for -1
    return list(merged), codes


def parse_ids(column: pd.Series, name: str) -> tuple[list[str], IntArray]:
    """Return what `parse_texts` does; the number 1.0 is 1, but the text 1.0 is not."""
    return parse_texts(column, name, id_text)


def id_text(value: Any) -> str:
    """Return an id as text; whole numbers are alike as integers and, beside gaps, as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def category_text(value: Any) -> str:
    """Return a category as text; whole numbers are alike also where they were read as text."""
    return re.sub(r"^(-?\d+)\.0$", r"\1", str(value))


def parse_stamps(
    column: pd.Series,
    name: str,
    findings: Findings | None = None,
    place: Place = plain_place,
    day_first: bool | None = None,
) -> tuple[pd.DatetimeIndex, str | None]:
    """Return a column as time stamps, and their time zone; zoned stamps become UTC.

    Args:
        column: times, or text that says them in one form.
        name: of the column.
        findings: receives what is not a time, which becomes NaT; None raises it.
        place: names a cell.
        day_first: whether 01/02/2024 is in February; None: as other rows tell.

    Raises:
        DataError: no value is a time, or, without `findings`, one is not or is missing.
    """
    found = Findings() if findings is None else findings
    stamps, zone = _to_stamps(column, name, found, place, day_first)
    if findings is None:
        found.refuse()
    return stamps, zone


def _to_stamps(
    column: pd.Series, name: str, findings: Findings, place: Place, day_first: bool | None
) -> tuple[pd.DatetimeIndex, str | None]:
    if column.isna().all():
        column = pd.Series(pd.NaT, index=column.index, dtype="datetime64[us]")
    if _holds_dates_as_numbers(column):
        column = column.astype("Int64").astype("string")
    if pd.api.types.is_numeric_dtype(column):
        raise DataError(
            f"column {name!r} holds numbers, not times; it has to hold dates such as 2024-01-31 "
            "or 2024-01-31 13:00. Convert it, or name another with dataset.time_column."
        )
    codes, distinct = None, column
    if isinstance(column.dtype, pd.CategoricalDtype) or is_text(column):
        # Series share most of their stamps: each is parsed once.
        codes, values = pd.factorize(column)
        distinct = pd.Series(np.asarray(values, dtype=object)).infer_objects()
    if day_first is None:
        day_first = find_day_first([distinct], name)
    utc = _has_changing_offset(distinct, name)
    try:
        stamps = _parse_distinct(distinct, day_first, utc, errors="raise")
    except (ValueError, TypeError, UserWarning) as error:
        stamps = _of_one_form(distinct, name, day_first, utc, error)
    zone = None if stamps.tz is None else str(stamps.tz)
    if zone is not None:
        stamps = stamps.tz_convert("UTC")
    if codes is not None:
        stamps = stamps.append(pd.DatetimeIndex([pd.NaT], dtype=stamps.dtype)).take(codes)
    absent = stamps.isna()
    if absent.any():
        missing = column.isna().to_numpy() | (column.astype(str).isin(["", "NaT"])).to_numpy()
        for kind, rows, what, remedy in (
            ("no time", absent & missing, "no time is given", "Fill it in, or remove the row."),
            (
                "not a time",
                absent & ~missing,
                "is not a time in the format of the other rows",
                "Write all times in one form, such as 2024-01-31 13:00.",
            ),
        ):
            if rows.any():
                row = int(np.argmax(rows))
                value = "" if kind == "no time" else f"{shown(column.iloc[row])} "
                example = f"{place(name, row)}: {value}{what}"
                findings.add(Finding("error", kind, example, remedy, int(rows.sum())), name)
    return stamps, zone


def _parse_distinct(
    distinct: pd.Series, day_first: bool, utc: bool, errors: str
) -> pd.DatetimeIndex:
    with warnings.catch_warnings():  # stamps that pandas would parse one by one, each its way
        warnings.simplefilter("error", UserWarning)
        format = _format_of(distinct, day_first)
        if format == _QUARTER:
            parts = distinct.str.extract(_FORMS[_QUARTER]).apply(pd.to_numeric).astype("Int64")
            distinct = parts[0].astype("string") + "-" + (3 * parts[1] - 2).astype("string")
            format = "%Y-%m"
        parsed = pd.to_datetime(distinct, format=format, dayfirst=day_first, utc=utc, errors=errors)
        return pd.DatetimeIndex(parsed).as_unit("us")


def _format_of(distinct: pd.Series, day_first: bool) -> str | None:
    """Return the format of texts, by most of them; None: as pandas infers it from the first."""
    if not is_text(distinct):
        return None
    text = distinct.astype(str)
    for format, form in _FORMS.items():
        if 2 * text.str.match(form).sum() > len(text):
            return format.replace("%m/%d", "%d/%m") if day_first else format
    return None


def _of_one_form(
    distinct: pd.Series, name: str, day_first: bool, utc: bool, error: Exception
) -> pd.DatetimeIndex:
    """Parse what can be; a column none or most of which can not is refused as a whole."""
    try:
        stamps = _parse_distinct(distinct, day_first, utc, errors="coerce")
    except (ValueError, TypeError, UserWarning):
        stamps = pd.DatetimeIndex([])
    if 2 * stamps.notna().sum() <= len(distinct):
        raise DataError(
            f"column {name!r} does not hold times of one form, such as 2024-01-31 or "
            f"2024-01-31 13:00; the first is {shown(distinct.iloc[0])}. Write them so."
        ) from error
    return stamps


def _holds_dates_as_numbers(column: pd.Series) -> bool:
    """Tell whole numbers such as 20240131, which are all dates."""
    if not pd.api.types.is_integer_dtype(column.dtype):
        return False
    numbers = column.dropna().to_numpy(np.int64)
    years, months, days = numbers // 10_000, numbers // 100 % 100, numbers % 100
    are_years = (years >= 1800) & (years < 2200)
    return bool((are_years & np.isin(months, range(1, 13)) & np.isin(days, range(1, 32))).all())


def is_text(column: pd.Series) -> bool:
    """Tell a column of text, of whatever type."""
    return bool(pd.api.types.is_string_dtype(column.dtype))


def find_day_first(columns: Iterable[pd.Series], name: str) -> bool:
    """Tell 31/01/2024 from 01/31/2024 by a number above 12; refuse to guess without one.

    Args:
        columns: the column, a piece after the other; no more are looked at than needed.
        name: of the column.

    Raises:
        DataError: some may be either, and none tells which.
    """
    ambiguous = None
    for column in columns:
        parts = day_and_month(column)
        if parts.empty:
            continue
        first, second = (parts[place].astype(int).max() for place in (0, 1))
        if first > 12 or second > 12:
            return bool(first > 12)
        ambiguous = ambiguous or column.reset_index(drop=True).loc[parts.index[0]]
    if ambiguous:
        raise DataError(
            f"column {name!r}: {ambiguous!r} may begin with the day or with the month, and no "
            "row tells which. Write dates as 2024-01-31."
        )
    return False


def day_and_month(column: pd.Series) -> pd.DataFrame:
    """Return the first two numbers of texts such as 31/01/2024, and no row of others."""
    if not is_text(column):
        return pd.DataFrame()
    text = column.reset_index(drop=True).astype(str)
    return text.str.extract(r"^\s*(\d{1,2})[./-](\d{1,2})[./-]\d").dropna()


def _has_changing_offset(column: pd.Series, name: str) -> bool:
    """Tell text such as 2024-01-01 00:00+01:00 whose offset changes with summer time.

    Raises:
        DataError: some times have an offset and some have none, which pandas would take for UTC.
    """
    if not is_text(column):
        return False
    text = column.astype(str)
    offsets = text.str.extract(r":\d\d(?:\.\d+)?\s*([+-]\d\d(?::?\d\d)?|Z)\s*$", expand=False)
    has_zone = offsets.notna()
    if not has_zone.any():
        return False
    has_none = ~has_zone & text.str.match(_ISO_DATE)
    if has_none.any():
        raise DataError(
            f"column {name!r}: some times have a time zone ({text[has_zone].iloc[0]}), others have "
            f"none ({text[has_none].iloc[0]}). Give all of them a zone, or none."
        )
    return len(offsets.dropna().unique()) > 1


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
        raise DataError("one time stamp is not enough to find the step. Give dataset.freq.")
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
    days, rest = divmod(commonest, pd.Timedelta(days=1))
    if rest:
        return pd.tseries.frequencies.to_offset(commonest).freqstr
    weekdays = np.unique(stamps.day_of_week)
    if days == 1 and len(stamps) >= 10 and weekdays.max() < 5:
        return "B"
    if days == 7 and len(weekdays) == 1:
        return f"W-{stamps[0].day_name()[:3].upper()}"
    return "D" if days == 1 else f"{days}D"


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
