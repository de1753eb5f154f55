"""CSV files as people make them."""

import gzip
from collections.abc import Callable, Collection
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsformer.data.delimited import delimited_chunks, delimited_names, find_dialect
from tsformer.errors import DataError


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, encoding: str = "utf-8", name: str = "x.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode(encoding))
        return path

    return write


def names_of(path: Path) -> list[str]:
    return delimited_names(path, find_dialect(path))


def read(
    path: Path,
    needed: Collection[str] | None = None,
    text: Collection[str] = (),
    rows: int = 1_000_000,
) -> pd.DataFrame:
    dialect = find_dialect(path)
    names = delimited_names(path, dialect)
    frames = list(delimited_chunks(path, dialect, needed or names, text, rows))
    assert max(map(len, frames)) <= rows
    return pd.concat(frames, ignore_index=True)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_follows_from_the_header(write: Callable[..., Path], delimiter: str) -> None:
    path = write("ds|'a, b; c'|y\n2024-01-01|1|2.5\n".replace("|", delimiter).replace("'", '"'))
    frame = read(path)
    assert list(frame) == names_of(path) == ["ds", "a, b; c", "y"]
    assert frame.iloc[0].tolist() == ["2024-01-01", 1, 2.5]


def test_commas_in_names_do_not_mislead(write: Callable[..., Path]) -> None:
    path = write("\n\nds;Temperature, C;Load, MW\n2024-01-01;1;2\n")
    assert names_of(path) == ["ds", "Temperature, C", "Load, MW"]


def test_a_single_column_is_one(write: Callable[..., Path]) -> None:
    assert names_of(write("ds\n2024-01-01\n")) == ["ds"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_encodings_are_found_out(write: Callable[..., Path], encoding: str, quote: str) -> None:
    path = write(f"{quote}straße{quote},ds,µg/m³\nGrün,2024-01-01,1\n", encoding)
    frame = read(path)
    assert list(frame) == names_of(path) == ["straße", "ds", "µg/m³"]
    assert frame["straße"].tolist() == ["Grün"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_utf_16_is_known_by_its_byte_order_mark(tmp_path: Path, encoding: str, ending: str) -> None:
    text = ("" if encoding == "utf-16" else "\ufeff") + "straße;ds;y\r\nGrün;2024-01-01;1,5\r\n"
    path = tmp_path / f"x.csv{ending}"
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if ending else data)
    assert read(path).to_dict("list") == {"straße": ["Grün"], "ds": ["2024-01-01"], "y": [1.5]}


@pytest.mark.parametrize("before", range(-3, 2))
@pytest.mark.parametrize("cut", [False, True])
def test_a_character_may_lie_in_two_blocks(tmp_path: Path, before: int, cut: bool) -> None:
    """The file is looked at in blocks of a power of two; half a character makes it Latin-1."""
    head, sign = b"id,y\n", "€".encode()
    path = tmp_path / "x.csv"
    filler = b"a" * ((1 << 20) + before - len(head))
    path.write_bytes(head + filler + (sign[:-1] if cut else sign) + b",1\n")
    expected = "â\x82" if cut else "€"
    assert read(path)["id"].iloc[0] == "a" * len(filler) + expected


@given(st.binary(max_size=8))
def test_whatever_python_decodes_as_utf_8_is(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("x") / "x.csv"
    path.write_bytes(b"id,y\n" + data)
    try:
        data.decode()
        expected = "utf-8-sig"
    except UnicodeDecodeError:
        expected = "latin-1"
    assert find_dialect(path).encoding == expected


def test_latin_1_far_behind_the_header_is_read(write: Callable[..., Path]) -> None:
    path = write("id,y\n" + "a,1\n" * 300_000 + "Grün,2\n", "latin-1")
    assert read(path)["id"].iloc[-1] == "Grün"


@pytest.mark.parametrize(("ending", "codec"), [(".gz", "gzip"), (".zst", "zstd"), (".GZ", "gzip")])
def test_compressed_files_are_read(tmp_path: Path, ending: str, codec: str) -> None:
    path = tmp_path / f"x.csv{ending}"
    with pa.output_stream(path, compression=codec) as stream:
        stream.write(b"ds;y\n" + b"2024-01-01;1,5\n" * 100_000)
    assert names_of(path) == ["ds", "y"]
    assert read(path)["y"].sum() == 150_000


def test_files_compressed_piece_by_piece_are_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"ds,y\n2024-01-01,1\n") + gzip.compress(b"2024-01-02,2\n"))
    assert read(path)["y"].tolist() == [1, 2]


def test_text_columns_stay_text(write: Callable[..., Path]) -> None:
    path = write("shop;y\n007;1,5\n1,5;2\n")
    frame = read(path, text=["shop", "unique_id"])
    assert frame["shop"].tolist() == ["007", "1,5"]
    assert frame["y"].tolist() == [1.5, 2.0]


def test_needed_columns_alone_are_kept(write: Callable[..., Path]) -> None:
    assert list(read(write("a,b,c\n1,2,3\n"), ["c", "a"])) == ["c", "a"]


@pytest.mark.parametrize("delimiter", ["\t", ","])
def test_commas_in_numbers_stay_where_they_are_not_decimal(
    write: Callable[..., Path], delimiter: str
) -> None:
    path = write(f'ds{delimiter}y\n2024-01-01{delimiter}"1,5"\n')
    assert read(path)["y"].tolist() == ["1,5"]


def test_the_type_of_a_column_does_not_depend_on_its_place(write: Callable[..., Path]) -> None:
    path = write("ds;y\n" + "2024-01-01;1\n" * 300_000 + "2024-01-01;x\n")
    assert read(path)["y"].map(type).unique().tolist() == [str]


@pytest.mark.parametrize("row", ["2024-01-01,1,2", "2024-01-01,1,"])
@pytest.mark.parametrize("needed", [None, ["ds", "y"]])
def test_rows_longer_than_the_header_are_refused(
    write: Callable[..., Path], row: str, needed: list[str] | None
) -> None:
    with pytest.raises(DataError, match="its rows have more fields than its header"):
        read(write(f"ds,y\n{row}\n{row}\n"), needed)


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
@pytest.mark.parametrize("long", range(1, 6))
@pytest.mark.parametrize(("excess", "place"), [(",7", "row {0} "), (",7,8", "line {1} ")])
def test_a_row_longer_than_the_others_is_refused_wherever_it_is(
    write: Callable[..., Path], rows: int, long: int, excess: str, place: str
) -> None:
    lines = [f"2024-01-0{day},1" for day in range(1, 7)]
    lines[long] += excess
    path = write("\n".join(["\nds,y", *lines]))
    with pytest.raises(DataError, match="more fields than the header") as error:
        read(path, ["ds"], rows=rows)
    # pandas 2 lets the first row of a chunk pass as far as it goes.
    found = str(error.value)
    assert place.format(long, long + 3) in found or f"row {long} " in found
    assert str(path) in found


def test_rows_come_before_the_end_of_the_file_is_parsed(write: Callable[..., Path]) -> None:
    path = write("ds,y\n" + "2024-01-01,1\n" * 300_000 + "2024-01-01,1,2\n")
    chunks = delimited_chunks(path, find_dialect(path), ["y"], [], 1000)
    assert next(chunks)["y"].sum() == 1000
    with pytest.raises(DataError, match="row 300000 has more fields"):
        list(chunks)


def test_short_rows_end_in_missing_values(write: Callable[..., Path]) -> None:
    assert read(write("ds,y,z\n2024-01-01\n2024-01-02,1\n"), rows=1)["y"].tolist()[1] == 1
    assert read(write("ds,y\n2024-01-01\n"))["y"].isna().all()


def test_a_nameless_index_column_is_no_series(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    pd.DataFrame({"ds": ["2024-01-01", "2024-01-02"], "a": [1.0, 2.0]}).to_csv(path)
    assert names_of(path) == list(read(path)) == ["ds", "a"]


def test_a_header_may_hold_line_breaks(write: Callable[..., Path]) -> None:
    path = write('\r\n"ds\n(UTC)","5"" pipe",y\r\n2024-01-01,1,2\r\n')
    assert names_of(path) == list(read(path)) == ["ds\n(UTC)", '5" pipe', "y"]
    assert read(path).iloc[0].tolist() == ["2024-01-01", 1, 2]


@pytest.mark.parametrize("text", ["", "\n\n", "  \n"])
def test_a_file_without_header_is_refused(write: Callable[..., Path], text: str) -> None:
    with pytest.raises(ValueError, match="no header"):
        names_of(write(text))


def test_a_file_without_rows_has_names(write: Callable[..., Path]) -> None:
    for text in ("ds,y", "ds,y\n", "ds,y\n\n"):
        path = write(text)
        assert list(read(path)) == names_of(path) == ["ds", "y"]
        assert len(read(path)) == 0
