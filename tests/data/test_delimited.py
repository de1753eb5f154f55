"""CSV files as people make them."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from tsformer.data.delimited import delimited_names, read_delimited
from tsformer.errors import DataError


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, encoding: str = "utf-8", name: str = "x.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_follows_from_the_header(write: Callable[..., Path], delimiter: str) -> None:
    path = write("ds|'a, b; c'|y\n2024-01-01|1|2.5\n".replace("|", delimiter).replace("'", '"'))
    frame, names = read_delimited(path)
    assert names == delimited_names(path) == ["ds", "a, b; c", "y"]
    assert frame.iloc[0].tolist() == ["2024-01-01", 1, 2.5]


def test_commas_in_names_do_not_mislead(write: Callable[..., Path]) -> None:
    path = write("\n\nds;Temperature, C;Load, MW\n2024-01-01;1;2\n")
    assert delimited_names(path) == ["ds", "Temperature, C", "Load, MW"]


def test_a_single_column_is_one(write: Callable[..., Path]) -> None:
    assert delimited_names(write("ds\n2024-01-01\n")) == ["ds"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_encodings_are_found_out(write: Callable[..., Path], encoding: str, quote: str) -> None:
    path = write(f"{quote}straße{quote},ds,µg/m³\nGrün,2024-01-01,1\n", encoding)
    frame, names = read_delimited(path)
    assert names == delimited_names(path) == ["straße", "ds", "µg/m³"]
    assert frame["straße"].tolist() == ["Grün"]


def test_latin_1_far_behind_the_header_is_read(write: Callable[..., Path]) -> None:
    path = write("id,y\n" + "a,1\n" * 300_000 + "Grün,2\n", "latin-1")
    assert read_delimited(path)[0]["id"].iloc[-1] == "Grün"


@pytest.mark.parametrize(("ending", "codec"), [(".gz", "gzip"), (".zst", "zstd"), (".GZ", "gzip")])
def test_compressed_files_are_read(tmp_path: Path, ending: str, codec: str) -> None:
    path = tmp_path / f"x.csv{ending}"
    with pa.output_stream(path, compression=codec) as stream:
        stream.write(b"ds;y\n" + b"2024-01-01;1,5\n" * 100_000)
    assert delimited_names(path) == ["ds", "y"]
    assert read_delimited(path)[0]["y"].sum() == 150_000


def test_files_compressed_piece_by_piece_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"ds,y\n2024-01-01,1\n") + gzip.compress(b"2024-01-02,2\n"))
    assert read_delimited(path)[0]["y"].tolist() == [1, 2]


def test_text_columns_stay_text(write: Callable[..., Path]) -> None:
    path = write("shop;y\n007;1,5\n1,5;2\n")
    frame, _ = read_delimited(path, text=["shop", "unique_id"])
    assert frame["shop"].tolist() == ["007", "1,5"]
    assert frame["y"].tolist() == [1.5, 2.0]


def test_needed_columns_alone_are_kept(write: Callable[..., Path]) -> None:
    frame, names = read_delimited(write("a,b,c\n1,2,3\n"), needed=["c", "a", "d"])
    assert list(frame) == ["a", "c"]
    assert names == ["a", "b", "c"]


def test_decimal_commas_are_read(write: Callable[..., Path]) -> None:
    text = "ds;y;n;e;m\n01.02.2024;1,5;1;-2,5e-3;\n02.02.2024;-,25;2;1;,5\n"
    frame, _ = read_delimited(write(text))
    assert frame["ds"].tolist() == ["01.02.2024", "02.02.2024"]
    assert frame["y"].tolist() == [1.5, -0.25]
    assert frame["n"].tolist() == [1, 2]
    assert frame["e"].tolist() == [-0.0025, 1]
    assert frame["m"].iloc[1] == 0.5


def test_decimal_points_are_read_beside_semicolons(write: Callable[..., Path]) -> None:
    frame, _ = read_delimited(write("ds;y;note\n2024-01-01;1.5;well, yes\n"))
    assert frame["y"].tolist() == [1.5]
    assert frame["note"].tolist() == ["well, yes"]


@pytest.mark.parametrize("number", ["1.234,5", "1,234,567", "1,5 MW"])
def test_other_ways_to_write_numbers_stay_text(write: Callable[..., Path], number: str) -> None:
    frame, _ = read_delimited(write(f"ds;y;z\n2024-01-01;{number};0,5\n"))
    assert frame["y"].tolist() == [number]
    assert frame["z"].tolist() == [0.5]


def test_commas_that_may_be_of_thousands_are_refused(write: Callable[..., Path]) -> None:
    path = write("ds;y;z\n2024-01-01;1,500;7\n2024-01-02;-12,345;\n")
    with pytest.raises(DataError, match="column 'y' may stand for decimals or for thousands"):
        read_delimited(path)
    path = write("ds;y;z\n2024-01-01;1,500;7\n2024-01-02;0,345;\n")
    assert read_delimited(path)[0]["y"].tolist() == [1.5, 0.345]


@pytest.mark.parametrize("delimiter", ["\t", ","])
def test_commas_in_numbers_stay_where_they_are_not_decimal(
    write: Callable[..., Path], delimiter: str
) -> None:
    path = write(f'ds{delimiter}y\n2024-01-01{delimiter}"1,5"\n')
    assert read_delimited(path)[0]["y"].tolist() == ["1,5"]


def test_the_type_of_a_column_does_not_depend_on_its_place(write: Callable[..., Path]) -> None:
    path = write("ds;y\n" + "2024-01-01;1\n" * 300_000 + "2024-01-01;x\n")
    assert read_delimited(path)[0]["y"].map(type).unique().tolist() == [str]


def test_commas_and_points_for_decimals_are_refused(write: Callable[..., Path]) -> None:
    path = write("ds;a;b\n2024-01-01;1,50;2.25\n")
    with pytest.raises(DataError, match="column 'a' seems to hold decimal commas") as error:
        read_delimited(path)
    assert "column 'b' decimal points" in str(error.value)
    assert str(path) in str(error.value)
    assert read_delimited(path, needed=["ds", "b"])[0]["b"].tolist() == [2.25]


@pytest.mark.parametrize("row", ["2024-01-01,1,2", "2024-01-01,1,"])
@pytest.mark.parametrize("needed", [None, ["ds", "y"]])
def test_rows_longer_than_the_header_are_refused(
    write: Callable[..., Path], row: str, needed: list[str] | None
) -> None:
    with pytest.raises(DataError, match="more fields than its header"):
        read_delimited(write(f"ds,y\n{row}\n{row}\n"), needed)


def test_a_row_longer_than_the_others_is_refused(write: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match="line 3"):
        read_delimited(write("ds,y\n2024-01-01,1\n2024-01-02,1,2\n"), ["ds"])


def test_a_nameless_index_column_is_no_series(tmp_path):
    path = tmp_path / "wide.csv"
    pd.DataFrame({"ds": ["2024-01-01", "2024-01-02"], "a": [1.0, 2.0]}).to_csv(path)
    assert delimited_names(path) == ["ds", "a"]
    assert list(read_delimited(path)[0]) == ["ds", "a"]


def test_double_names_are_refused(tmp_path):
    path = tmp_path / "double.csv"
    path.write_text("ds,y,y\n2024-01-01,1,2\n")
    with pytest.raises(DataError, match="two columns 'y'"):
        delimited_names(path)
