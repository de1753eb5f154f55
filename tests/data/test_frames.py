"""Tables of other libraries as pandas frames."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest

from tsformer.data.frames import as_pandas, as_table
from tsformer.errors import DataError

DAYS = [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)]


def test_frames_are_not_copied() -> None:
    frame = pd.DataFrame({"ds": DAYS, "y": [1.0, 2.0]})
    assert as_pandas(frame) is as_table(frame) is frame
    assert as_table(POLARS) is POLARS  # Polars may copy what it gives away


def test_numbers_as_names_become_text() -> None:
    frame = pd.DataFrame({"ds": DAYS, 0: [1.0, 2.0], ("a", 1): [3.0, 4.0]})
    assert list(as_pandas(frame)) == ["ds", "0", "('a', 1)"]
    assert list(frame) == ["ds", 0, ("a", 1)]


POLARS = polars.DataFrame(
    {
        "unique_id": polars.Series(["b", "a"], dtype=polars.Categorical),
        "kind": polars.Series(["x", None], dtype=polars.Enum(["x", "y"])),
        "name": ["007", None],
        "ds": DAYS,
        "day": [x.date() for x in DAYS],
        "y": polars.Series([Decimal("1.25"), None], dtype=polars.Decimal(10, 2)),
        "n": polars.Series([1, None], dtype=polars.UInt8),
        "on": [True, None],
    }
)


class Stranger:
    """A table of a library nobody has heard of."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return POLARS.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "table",
    [
        POLARS,
        POLARS.lazy(),
        POLARS.to_arrow(),
        POLARS.to_arrow().to_batches()[0],
        POLARS.to_arrow().to_reader(),
        Stranger(),
    ],
    ids=lambda table: f"{type(table).__module__.split('.')[0]} {type(table).__name__}",
)
def test_tables_of_other_libraries_become_plain_columns(table: object) -> None:
    frame = as_pandas(table)
    assert list(frame) == POLARS.columns
    assert frame["unique_id"].tolist() == ["b", "a"]
    assert not isinstance(frame["unique_id"].dtype, pd.CategoricalDtype)
    assert frame["kind"].tolist()[0] == "x"
    assert frame["name"].tolist()[0] == "007"
    assert frame["kind"].isna().tolist() == frame["name"].isna().tolist() == [False, True]
    assert frame["ds"].tolist() == frame["day"].tolist() == list(map(pd.Timestamp, DAYS))
    np.testing.assert_array_equal(frame["y"], [1.25, np.nan])
    assert frame["y"].dtype == np.float64
    np.testing.assert_array_equal(frame["n"], [1.0, np.nan])
    assert frame["on"].tolist()[0] is True


@pytest.mark.parametrize("type", [pa.string(), pa.int64(), pa.bool_(), pa.timestamp("us", "UTC")])
def test_encoded_columns_become_what_they_encode(type: pa.DataType) -> None:
    values = pa.array([1, 0, None, 1]).cast(type)
    plain = as_pandas(pa.table({"x": values}))
    encoded = as_pandas(pa.table({"x": values.dictionary_encode()}))
    pd.testing.assert_frame_equal(encoded, plain)


def test_a_named_index_kept_by_pandas_is_a_column() -> None:
    frame = pd.DataFrame({"y": [1.0, 2.0]}, index=pd.Index(DAYS, name="ds"))
    assert sorted(as_pandas(pa.Table.from_pandas(frame))) == ["ds", "y"]


@pytest.mark.parametrize(
    ("thing", "name"),
    [
        (None, "NoneType"),
        ([1, 2], "list"),
        ({"y": [1]}, "dict"),
        (np.ones(3), "numpy.ndarray"),
        (polars.Series([1, 2]), "polars.series.series.Series"),
        (POLARS.group_by("ds"), "GroupBy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_table_is_named(thing: object, name: str) -> None:
    with pytest.raises(DataError, match="not a table") as error:
        as_pandas(thing)
    assert name in str(error.value)


def test_the_message_says_what_is_accepted() -> None:
    with pytest.raises(DataError) as error:
        as_pandas(3)
    for word in ("builtins.int", "pandas", "Polars", "pyarrow", "__arrow_c_stream__", "path"):
        assert word in str(error.value)


def test_columns_of_one_name_are_refused() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["y", "y"])
    for table in (frame, pa.Table.from_arrays([pa.array([1])] * 2, names=["y", "y"])):
        with pytest.raises(DataError, match="two columns 'y'"):
            as_table(table)
