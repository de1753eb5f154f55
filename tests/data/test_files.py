"""Files, folders and patterns: which files count, and what is said about those that cannot."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.data.frames import long_frame, ramp
from tsformer.data.files import find_layout, list_files
from tsformer.data.sources import open_source
from tsformer.errors import DataError

FRAME = long_frame({"a": ramp(3), "b": ramp(3, 0.5)})
WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".parquet": lambda frame, path: frame.to_parquet(path),
    ".feather": lambda frame, path: frame.to_feather(path),
}


def write(frame: pd.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    WRITERS[path.suffix](frame.reset_index(drop=True), path)
    return path


def read(path: Path, *names: str) -> pd.DataFrame:
    source = open_source(path)
    frames = [chunk.frame for chunk in source.chunks(names or source.names)]
    return pd.concat(frames, ignore_index=True)


# Which files count


def test_files_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b.csv", "a/2.csv", "a/10.csv", "c.CSV"):
        write(FRAME, (tmp_path / name).with_suffix(".csv")).rename(tmp_path / name)
    expected = ["a/10.csv", "a/2.csv", "b.csv", "c.CSV"]
    assert list_files(tmp_path) == [tmp_path / name for name in expected]
    assert list_files(tmp_path / "**" / "*.csv") == [tmp_path / name for name in expected[:3]]
    assert list_files(tmp_path / "?.csv") == [tmp_path / "b.csv"]


def test_what_other_programs_leave_beside_the_data_does_not_count(tmp_path: Path) -> None:
    path = write(FRAME, tmp_path / "part-0.parquet")
    for name in ("_SUCCESS", ".part-0.parquet.crc", "_delta_log/0.json", ".hidden/x.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert list_files(tmp_path) == [path]


def test_a_folder_of_a_hidden_folder_counts(tmp_path: Path) -> None:
    path = write(FRAME, tmp_path / ".cache" / "_data" / "x.csv")
    assert list_files(path.parent) == [path]


def test_links_lead_to_files_and_folders_and_none_is_passed_over(tmp_path: Path) -> None:
    elsewhere, data = tmp_path / "elsewhere", tmp_path / "data"
    write(FRAME, elsewhere / "1.csv")
    write(FRAME, data / "0.csv")
    (data / "more").symlink_to(elsewhere)
    assert list_files(data) == [data / "0.csv", data / "more" / "1.csv"]
    (data / "2.csv").symlink_to(elsewhere / "removed.csv")
    for asked in (data, data / "*.csv"):
        with pytest.raises(DataError, match=r"2\.csv: cannot be read as a table.*No such file"):
            read(asked)
    (data / "2.csv").unlink()
    (data / "again").symlink_to(data)
    (data / "yet again").symlink_to(elsewhere)
    assert [file.name for file in list_files(data)] == ["0.csv", "1.csv"]


def test_a_folder_below_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch) -> None:
    write(FRAME, tmp_path / "0" / "x.csv")
    write(FRAME, tmp_path / "1" / "x.csv")
    scan = os.scandir

    def refuse(path):  # modes do not stop every user that runs tests
        if Path(path).name == "1":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"cannot be read .*Permission denied: '\S+1'"):
        list_files(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.csv")
    with pytest.raises(DataError, match=r"neither a file nor a folder.*Write it to a file"):
        list_files(tmp_path / "x.csv")


@pytest.mark.parametrize(
    "name", ["x.csv", "x.CSV", "x.csv.gz", "x.tsv.zst", "x.y.txt", "x.pq", "x.feather", "x.arrow"]
)
def test_known_endings_are_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert list_files(tmp_path / name) == [tmp_path / name]


@pytest.mark.parametrize("name", ["x.xlsx", "x", "x.gz", "x.parquet.gz", "x.csv.zip", ".csv"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    with pytest.raises(DataError, match=r"\.csv, .*\.parquet, .*\.feather.*\.csv\.gz") as error:
        list_files(path)
    assert str(path) in str(error.value)


def test_kinds_are_not_mixed(tmp_path: Path) -> None:
    write(FRAME, tmp_path / "a.csv")
    write(FRAME, tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"a\.csv and b\.parquet are of different kinds") as error:
        list_files(tmp_path)
    assert f"'{tmp_path}/**/*.csv'" in str(error.value)
    assert list_files(tmp_path / "**" / "*.csv") == [tmp_path / "a.csv"]


def test_texts_of_several_endings_are_one_kind(tmp_path: Path) -> None:
    write(FRAME, tmp_path / "a.csv")
    FRAME.to_csv(tmp_path / "b.tsv.gz", index=False, sep="\t")
    assert len(read(tmp_path)) == 2 * len(FRAME)


def test_a_stranger_among_the_files_is_named(tmp_path: Path) -> None:
    write(FRAME, tmp_path / "a.csv")
    (tmp_path / "readme.md").touch()
    with pytest.raises(DataError, match=r"readme\.md: tables of this ending"):
        list_files(tmp_path)


def test_nothing_to_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the folder holds no files") as error:
        list_files(tmp_path)
    assert str(tmp_path) in str(error.value)
    with pytest.raises(DataError, match="no file matches this pattern") as error:
        list_files(tmp_path / "*.csv")
    assert str(tmp_path / "*.csv") in str(error.value)
    with pytest.raises(DataError, match=r"none\.csv: there is no such file or folder"):
        list_files(tmp_path / "none.csv")


# What is read


@pytest.mark.parametrize("ending", WRITERS)
def test_parts_are_put_one_below_the_other(tmp_path: Path, ending: str) -> None:
    write(FRAME[:2], tmp_path / f"part-0{ending}")
    write(FRAME[:0], tmp_path / f"part-1{ending}")  # some writers leave empty parts
    write(FRAME[["y", "ds", "unique_id"]][2:], tmp_path / f"part-2{ending}")
    frame = read(tmp_path)
    assert list(frame) == list(FRAME)
    assert frame["y"].tolist() == FRAME["y"].tolist()
    assert frame["unique_id"].tolist() == FRAME["unique_id"].tolist()
    assert frame.index.tolist() == list(range(len(FRAME)))


@pytest.mark.parametrize("ending", WRITERS)
def test_needed_columns_alone_are_read(tmp_path: Path, ending: str) -> None:
    path = write(FRAME.assign(much=0, more=1), tmp_path / "shop=7" / f"x{ending}")
    layout = find_layout(tmp_path, path)
    assert layout.all_names == ["unique_id", "ds", "y", "much", "more", "shop"]
    assert list(read(tmp_path, "y", "more")) == ["y", "more"]
    assert list(read(tmp_path, "y", "shop")) == ["y", "shop"]
    assert list(read(path)) == ["unique_id", "ds", "y", "much", "more"]


@pytest.mark.parametrize("ending", WRITERS)
def test_types_may_differ_between_parts(tmp_path: Path, ending: str) -> None:
    write(FRAME.assign(y=FRAME["y"].astype(int)), tmp_path / f"part-0{ending}")
    write(FRAME.assign(y=FRAME["y"] + 0.25), tmp_path / f"part-1{ending}")
    assert read(tmp_path)["y"].tolist() == [0, 1, 2, 0, 1, 2, 0.25, 1.25, 2.25, 0.75, 1.75, 2.75]


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("needed", [(), ("y",)])
def test_differing_columns_are_refused(
    tmp_path: Path, ending: str, needed: tuple[str, ...]
) -> None:
    first = write(FRAME, tmp_path / f"part-0{ending}")
    write(FRAME, tmp_path / f"part-1{ending}")
    third = write(FRAME.rename(columns={"ds": "time"}), tmp_path / f"part-2{ending}")
    with pytest.raises(DataError, match="has 'ds', 'time'") as error:
        read(tmp_path, *needed)
    assert str(first) in str(error.value)
    assert str(third) in str(error.value)


@pytest.mark.parametrize("ending", WRITERS)
def test_names_of_folders_are_columns_of_text(tmp_path: Path, ending: str) -> None:
    for shop in ("007", "7", "a%20b%2Fc", "__HIVE_DEFAULT_PARTITION__"):
        write(FRAME[["ds", "y"]], tmp_path / f"shop={shop}" / "year=2024" / f"x{ending}")
    for path in (tmp_path, tmp_path / "shop=*" / "*" / f"*{ending}"):
        frame = read(path)
        assert list(frame) == ["ds", "y", "shop", "year"]
        assert frame["shop"].dropna().unique().tolist() == ["007", "7", "a b/c"]
        assert frame["shop"].isna().sum() == len(FRAME)
        assert frame["year"].unique().tolist() == ["2024"]


def test_folders_above_what_was_asked_for_say_nothing(tmp_path: Path) -> None:
    path = write(FRAME, tmp_path / "run=1" / "data" / "x.csv")
    for asked in (path, path.parent, path.parent / "*.csv"):
        assert list(read(asked)) == list(FRAME)


def test_a_column_of_the_file_beats_the_name_of_its_folder(tmp_path: Path) -> None:
    write(FRAME, tmp_path / "unique_id=0" / "x.parquet")
    assert read(tmp_path)["unique_id"].tolist() == FRAME["unique_id"].tolist()


def test_a_file_outside_the_folders_lacks_their_column(tmp_path: Path) -> None:
    write(FRAME[["ds", "y"]], tmp_path / "shop=7" / "x.csv")
    write(FRAME[["ds", "y"]], tmp_path / "y.csv")
    with pytest.raises(DataError, match="has 'shop'"):
        read(tmp_path)


def test_an_index_of_pandas_is_a_column_if_it_has_a_name(tmp_path: Path) -> None:
    FRAME.set_index("ds").to_parquet(tmp_path / "named.parquet")
    assert set(read(tmp_path / "named.parquet")) == set(FRAME)
    assert "ds" in read(tmp_path / "named.parquet", "ds", "y")
    FRAME.set_axis([5, 3, 1, 0, 2, 4]).to_parquet(tmp_path / "nameless.parquet")
    assert list(read(tmp_path / "nameless.parquet")) == list(FRAME)


@pytest.mark.parametrize("name", ["x.csv.gz", "x.csv.zst", "x.parquet", "x.feather"])
@pytest.mark.parametrize("content", [b"", b"unique_id,ds,y\na,2024-01-01,1\n", bytes(range(256))])
def test_damaged_files_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    for asked in (path, tmp_path):
        with pytest.raises(DataError, match="cannot be read as a table") as error:
            read(asked)
        assert str(path) in str(error.value)
    with pytest.raises(DataError, match="cannot be read as a table"):
        find_layout(path, path)


@pytest.mark.parametrize("ending", WRITERS)
def test_no_rows_at_all_are_said(tmp_path: Path, ending: str) -> None:
    for part in (0, 1):
        write(FRAME[:0], tmp_path / f"part-{part}{ending}")
    with pytest.raises(DataError, match="no rows") as error:
        read(tmp_path)
    assert str(tmp_path) in str(error.value)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".feather"])
def test_double_names_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    table = pa.Table.from_arrays([pa.array([1])] * 3, names=["ds", "y", "y"])
    if ending == ".csv":
        path.write_text("ds,y,y\n1,1,1\n")
    elif ending == ".parquet":
        pa.parquet.write_table(table, path)
    else:
        pa.feather.write_feather(table, path)
    with pytest.raises(DataError, match="two columns 'y'") as error:
        read(path)
    assert str(path) in str(error.value)


def test_many_small_parts_are_read(tmp_path: Path) -> None:
    for shop in range(200):
        folder = tmp_path / f"unique_id={shop}"
        folder.mkdir()
        (folder / "0.csv").write_text("ds,y\n2024-01-01,1\n2024-01-02,2\n")
    assert read(tmp_path)["unique_id"].nunique() == 200
