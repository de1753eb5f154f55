"""Decimal commas in files with semicolons, against a plain oracle."""

from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsformer.data.delimited import delimited_chunks, find_dialect
from tsformer.errors import DataError

# Whether a file has decimal commas is looked for in this many rows; other rows tell it too.
LOOKED_AT = 100


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "x.csv").write_text(text)
        return tmp_path / "x.csv"

    return write


def read(path: Path, needed: Collection[str], text: Collection[str] = (), rows: int = 1000):
    frames = delimited_chunks(path, find_dialect(path), needed, text, rows)
    return pd.concat(frames, ignore_index=True)


def test_numbers_with_decimal_commas_are_read(write: Callable[[str], Path]) -> None:
    path = write("ds;y;n;e;m\n01.02.2024;1,5;1;-2,5e-3;\n02.02.2024;-,25;2;1;,5\n")
    for rows in (1, 2):
        frame = read(path, ["ds", "y", "n", "e", "m"], rows=rows)
        assert frame["ds"].tolist() == ["01.02.2024", "02.02.2024"]
        assert frame["y"].tolist() == [1.5, -0.25]
        assert frame["n"].tolist() == [1, 2]
        assert frame["e"].tolist() == [-0.0025, 1]
        np.testing.assert_array_equal(frame["m"], [np.nan, 0.5])


@pytest.mark.parametrize("before", [0, LOOKED_AT])
def test_columns_of_other_types_stay_what_they_are(
    write: Callable[[str], Path], before: int
) -> None:
    row = "2024-01-01;1;007;1,5;True;false;well, yes;\n"
    path = write("ds;y;shop;code;on;off;note;none\n" + row * before + row.replace(";1;", ";1,5;"))
    rows = read(path, path.read_text().split("\n")[0].split(";"), ["shop", "code"], before + 1)
    last = rows.iloc[-1].tolist()
    assert last[:-1] == ["2024-01-01", 1.5, "007", "1,5", True, False, "well, yes"]
    assert rows["on"].dtype == rows["off"].dtype == bool
    assert rows["none"].isna().all()
    assert pd.api.types.is_numeric_dtype(rows["none"])


@pytest.mark.parametrize("before", [0, LOOKED_AT])
def test_truth_values_may_be_missing(write: Callable[[str], Path], before: int) -> None:
    path = write("on;y\n" + ";1\n" * before + "True;1,5\n;2\nfalse;3\n")
    on = read(path, ["on", "y"], rows=before + 3)["on"]
    assert on.dropna().tolist() == [True, False]
    assert on.isna().sum() == before + 1


def test_decimal_points_are_read_beside_semicolons(write: Callable[[str], Path]) -> None:
    frame = read(write("ds;y;note\n2024-01-01;1.5;well, yes\n"), ["y", "note"])
    assert frame["y"].tolist() == [1.5]
    assert frame["note"].tolist() == ["well, yes"]


@pytest.mark.parametrize("number", ["1.234,5", "1,234.5", "1,234,567", "1.234.567", "1,5 MW"])
def test_other_ways_to_write_numbers_stay_text(write: Callable[[str], Path], number: str) -> None:
    frame = read(write(f"ds;y;z\n2024-01-01;{number};0,5\n"), ["y", "z"])
    assert frame["y"].tolist() == [number]
    assert frame["z"].tolist() == [0.5]


# What may be decimal or between thousands


def test_commas_that_may_be_of_thousands_are_refused(write: Callable[[str], Path]) -> None:
    path = write("ds;y;z\n2024-01-01;1,500;7\n2024-01-02;-12,345;\n")
    for rows in (1, 2):
        with pytest.raises(DataError, match="column 'y' may stand for decimals or for thousands"):
            read(path, ["ds", "y"], rows=rows)
    path = write("ds;y;z\n2024-01-01;1,500;7\n2024-01-02;0,345;\n")
    assert read(path, ["y"])["y"].tolist() == [1.5, 0.345]


def test_a_comma_elsewhere_may_tell_that_all_are_decimal(write: Callable[[str], Path]) -> None:
    path = write("y;z\n1,500;0,5\n")
    assert read(path, ["y"])["y"].tolist() == [1.5]


def test_commas_and_points_for_decimals_are_refused(write: Callable[[str], Path]) -> None:
    path = write("ds;a;b\n2024-01-01;1,50;2.25\n")
    with pytest.raises(DataError, match="column 'a' seems to hold decimal commas") as error:
        read(path, ["ds", "a", "b"])
    assert "column 'b' decimal points" in str(error.value)
    assert str(path) in str(error.value)
    assert read(path, ["ds", "b"])["b"].tolist() == [2.25]


@pytest.mark.parametrize("before", [0, LOOKED_AT])
def test_they_are_refused_wherever_they_are(write: Callable[[str], Path], before: int) -> None:
    path = write("a;b;c\n" + "5;5;0,5\n" * before + "1,50;5;0,5\n5;2.25;0,5\n")
    with pytest.raises(DataError, match="column 'a' seems to hold decimal commas, but column 'b'"):
        read(path, ["a", "b"], rows=before + 1)


def test_points_between_thousands_are_refused_if_other_columns_have_decimal_commas(
    write: Callable[[str], Path],
) -> None:
    path = write("ds;a;b\n2024-01-01;1,50;950\n2024-01-02;2,50;1.100\n")
    with pytest.raises(DataError, match="points in the numbers of column 'b' seem to") as error:
        read(path, ["ds", "b"])
    assert "column 'a' holds decimal commas" in str(error.value)
    assert str(path) in str(error.value)


def outcome(columns: dict[str, list[str]], needed: list[str]) -> list[list[float]] | None:
    """Numbers of the needed columns, None if they are refused."""
    certain = dict.fromkeys(",.", False)
    for sign in ",.":
        for values in columns.values():
            signed = [value for value in values if sign in value]
            if signed and not all(value in ("1,500", "1.500") for value in signed):
                certain[sign] = True
    values = [value for name in needed for value in columns[name]]
    commas, points = (any(sign in value for value in values) for sign in ",.")
    if commas and (points or not certain[","]):
        return None
    for name in needed:
        signed = [value for value in columns[name] if "." in value]
        if signed and certain[","] and set(signed) == {"1.500"}:
            return None
    return [[float(value.replace(",", ".") or "nan") for value in columns[name]] for name in needed]


cells = st.sampled_from(["5", "1,5", "1,500", "1.5", "1.500"])


@pytest.mark.parametrize(
    ("before", "rows"), [(0, 1), (0, 2), (0, 9), (LOOKED_AT, LOOKED_AT + 2), (LOOKED_AT, 2000)]
)
@given(pairs=st.lists(st.tuples(cells | st.just(""), cells), min_size=1, max_size=6))
def test_what_is_read_or_refused_does_not_depend_on_the_chunks(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], before: int, rows: int
) -> None:
    pairs = [("5", "5")] * before + pairs
    columns = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}
    path = tmp_path_factory.mktemp("x") / "x.csv"
    path.write_text("a;b\n" + "".join(f"{a};{b}\n" for a, b in pairs))
    for needed in (["a", "b"], ["a"], ["b"]):
        expected = outcome(columns, needed)
        if expected is None:
            with pytest.raises(DataError, match="nothing between thousands"):
                read(path, needed, rows=rows)
        else:
            frame = read(path, needed, rows=rows)
            np.testing.assert_array_equal(frame[needed].to_numpy(float).T, expected)
