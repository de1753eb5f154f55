"""Tables of every kind, read in chunks: always the rows that one plain frame has."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.compute
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.frames import hours, long_frame, ramp
from tsformer.data.sources import Chunk, Source, errors_naming, open_source, read_frame
from tsformer.errors import DataError

Writer = Callable[[pd.DataFrame, Path], object]


def arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


class Stranger:
    """A table of a library nobody has heard of."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


IN_MEMORY: dict[str, Writer] = {
    "pandas": lambda frame, _: frame,
    "pandas, other index": lambda frame, _: frame.set_index(pd.Index([7] * len(frame))),
    "pandas, Arrow types": lambda frame, _: frame.convert_dtypes(dtype_backend="pyarrow"),
    "pandas, categories": lambda frame, _: frame.astype({"unique_id": "category"}),
    "polars": lambda frame, _: polars.from_pandas(frame, nan_to_null=True),
    "polars, lazy": lambda frame, _: polars.from_pandas(frame, nan_to_null=True).lazy(),
    "polars, categories": lambda frame, _: polars.from_pandas(frame).with_columns(
        polars.col("unique_id").cast(polars.Categorical)
    ),
    "pyarrow": lambda frame, _: arrow(frame),
    "pyarrow, small chunks": lambda frame, _: pa.Table.from_batches(
        arrow(frame).to_batches(2), arrow(frame).schema
    ),
    "pyarrow, batch": lambda frame, _: arrow(frame).combine_chunks().to_batches()[0],
    "pyarrow, once only": lambda frame, _: arrow(frame).to_reader(),
    "pyarrow, categories": lambda frame, _: arrow(frame).set_column(
        0, "unique_id", arrow(frame)["unique_id"].dictionary_encode()
    ),
    "another library": lambda frame, _: Stranger(arrow(frame)),
}


def csv(name: str, **options: object) -> Writer:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        frame.to_csv(folder / name, index=False, **options)
        return folder / name

    return write


def zst(name: str) -> Writer:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        with pa.output_stream(folder / name, compression="zstd") as stream:
            frame.to_csv(stream, index=False)
        return folder / name

    return write


def parquet(name: str, **options: object) -> Writer:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        pa.parquet.write_table(arrow(frame), folder / name, **options)
        return folder / name

    return write


def feather(name: str, **options: object) -> Writer:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        pa.feather.write_feather(arrow(frame), folder / name, **options)
        return folder / name

    return write


def parts(writer: Callable[[str], Writer], ending: str, pattern: str = "") -> Writer:
    """Write an empty file and two that share a series, and give their folder or a pattern."""

    def write(frame: pd.DataFrame, folder: Path) -> Path:
        half = len(frame) // 2
        for number, rows in enumerate((frame[:half], frame[:0], frame[half:])):
            writer(f"part-{number}{ending}")(rows.reset_index(drop=True), folder)
        return folder / pattern

    return write


def by_series(writer: Writer) -> Writer:
    """Write a folder for each series, numbered in the order of appearance of runs of rows."""

    def write(frame: pd.DataFrame, folder: Path) -> Path:
        runs = (frame["unique_id"] != frame["unique_id"].shift()).cumsum()
        for run, rows in frame.groupby(runs):
            within = folder / f"run {run:03}" / f"unique_id={rows['unique_id'].iloc[0]}"
            within.mkdir(parents=True)
            writer(rows.drop(columns="unique_id"), within)
        return folder

    return write


ON_DISK: dict[str, Writer] = {
    "csv": csv("x.csv"),
    "csv, latin-1": csv("x.csv", encoding="latin-1"),
    "csv, byte order mark": csv("x.csv", encoding="utf-8-sig"),
    "csv, utf-16": csv("x.csv", encoding="utf-16"),
    "csv, semicolons": csv("x.csv", sep=";"),
    "csv, decimal commas": csv("x.csv", sep=";", decimal=","),
    "tsv": csv("x.tsv", sep="\t"),
    "txt": csv("x.txt"),
    "csv.gz": csv("x.csv.gz"),
    "csv.zst": zst("x.csv.zst"),
    "parquet": parquet("x.parquet"),
    "parquet, small row groups": parquet("x.parquet", row_group_size=2),
    "parquet, plain": parquet("x.pq", use_dictionary=False, compression="zstd"),
    "feather": feather("x.feather"),
    "feather, small batches": feather("x.feather", chunksize=2),
    "arrow, not compressed": feather("x.arrow", compression="uncompressed"),
    "folder of csv": parts(csv, ".csv"),
    "folder of parquet": parts(parquet, ".parquet"),
    "folder of feather": parts(feather, ".feather"),
    "pattern of csv": parts(csv, ".csv", "part-*.csv"),
    "pattern of parquet": parts(parquet, ".parquet", "part-?.parquet"),
    "folders by series, csv": by_series(csv("x.csv")),
    "folders by series, parquet": by_series(parquet("x.parquet")),
    "path as text": lambda frame, folder: str(parquet("x.parquet")(frame, folder)),
}

EVERY = IN_MEMORY | ON_DISK


def example() -> pd.DataFrame:
    frame = long_frame(
        {"007": ramp(6) / 4, "7": [0.25, np.nan, 0.5, 1e-7], "zoé": ramp(5)}, starts={"7": 2}
    )
    return frame.assign(price=np.arange(len(frame)) * 7 % 5)


def rows_of(frame: pd.DataFrame, names: Collection[str]) -> list[tuple[object, ...]]:
    """Rows of plain values: ids and times as text, numbers as floats, None where missing."""
    columns = []
    for name in names:
        values = frame[name].astype(object)
        kind = {"ds": pd.Timestamp, "unique_id": str}.get(name, float)
        columns.append([None if pd.isna(value) else kind(value) for value in values])
    return list(zip(*columns, strict=True))


def chunks_of(source: Source, names: Collection[str] | None = None) -> list[Chunk]:
    return list(source.chunks(source.names if names is None else names))


def check_chunks(
    source: Source, chunks: list[Chunk], frame: pd.DataFrame, names: Collection[str], rows: int
) -> None:
    """Compare chunks with a frame: what they hold, and where they say that it is from."""
    found = []
    next_row: dict[Path | None, int] = {}
    for chunk in chunks:
        assert 0 < len(chunk.frame) <= rows
        assert list(chunk.frame) == [name for name in source.names if name in names]
        assert chunk.frame.index.equals(pd.RangeIndex(len(chunk.frame)))
        assert chunk.first_row == next_row.get(chunk.file, 0)
        next_row[chunk.file] = chunk.first_row + len(chunk.frame)
        found += rows_of(chunk.frame, names)
    assert found == rows_of(frame, names)
    files = [file for file in source.files if file in next_row]
    assert list(next_row) == (files if source.files else [None])


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_chunks_are_the_table_whatever_it_is(tmp_path: Path, kind: str, rows: int) -> None:
    frame = example()
    source = open_source(EVERY[kind](frame, tmp_path), chunk_values=4 * rows)
    assert sorted(source.names) == sorted(frame)
    for names in (list(frame), list(frame), ["y", "ds"], ["unique_id"], ["unique_id", "price"]):
        check_chunks(source, chunks_of(source, names), frame, names, rows)


@pytest.mark.parametrize("kind", EVERY)
def test_a_small_table_may_be_read_at_once(tmp_path: Path, kind: str) -> None:
    frame = example()
    read = read_frame(EVERY[kind](frame, tmp_path))
    assert rows_of(read, frame) == rows_of(frame, frame)


ids = st.sampled_from(["a", "007", "7", "é", "x y", "NA", "-"])
quarters = st.none() | st.integers(-400, 400).map(lambda number: number / 4)
some_rows = st.lists(st.tuples(ids, st.integers(0, 9), quarters, quarters), min_size=1, max_size=9)


@pytest.mark.parametrize(
    "kind",
    [
        "csv",
        "csv, decimal commas",
        "csv.zst",
        "folder of csv",
        "parquet",
        "parquet, small row groups",
        "folder of parquet",
        "folders by series, parquet",
        "feather",
        "feather, small batches",
        "pandas",
        "polars",
        "pyarrow, small chunks",
    ],
)
@settings(max_examples=10)
@given(rows=some_rows, size=st.sampled_from([1, 2, 3, 1000]), second=st.booleans())
def test_any_rows_come_through_in_chunks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    rows: list[tuple[str, int, float | None, float | None]],
    size: int,
    second: bool,
) -> None:
    frame = pd.DataFrame(rows, columns=["unique_id", "ds", "y", "price"])
    frame["ds"] = hours(10)[frame["ds"]]
    frame = frame.astype({"y": float, "price": float})
    source = open_source(EVERY[kind](frame, tmp_path_factory.mktemp("x")), chunk_values=4 * size)
    if second:
        chunks_of(source)
    check_chunks(source, chunks_of(source), frame, list(frame), size)
    check_chunks(source, chunks_of(source, ["y"]), frame, ["y"], size)


# What a chunk is


@pytest.mark.parametrize(
    "kind", ["parquet", "feather", "pyarrow", "polars", "folders by series, csv"]
)
def test_ids_are_categories_where_that_is_quick(tmp_path: Path, kind: str) -> None:
    frame = example()
    for chunk in chunks_of(open_source(EVERY[kind](frame, tmp_path), chunk_values=20)):
        assert isinstance(chunk.frame["unique_id"].dtype, pd.CategoricalDtype)
        assert set(chunk.frame["unique_id"].cat.categories.map(type)) == {str}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_the_column_of_ids_may_have_any_name(tmp_path: Path, ending: str) -> None:
    frame = example()[:10].rename(columns={"unique_id": "shop"})
    write = csv if ending == ".csv" else parquet
    path = write(f"x{ending}")(frame, tmp_path)
    (chunk,) = chunks_of(open_source(path, ["shop"]))
    assert chunk.frame["shop"].tolist() == frame["shop"].tolist()
    assert isinstance(chunk.frame["shop"].dtype, pd.CategoricalDtype) == (ending == ".parquet")
    assert read_frame(path, ["shop"])["shop"].tolist() == frame["shop"].tolist()
    assert not isinstance(read_frame(path, ["shop"])["shop"].dtype, pd.CategoricalDtype)


def test_ids_that_are_numbers_stay_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({"unique_id": [7, 8], "ds": hours(2), "y": [1.0, 2.0]})
    for table in (frame, arrow(frame), parquet("x.parquet")(frame, tmp_path)):
        assert read_frame(table)["unique_id"].tolist() == [7, 8]
        assert pd.api.types.is_integer_dtype(chunks_of(open_source(table))[0].frame["unique_id"])


def test_odd_dictionaries_are_read_too() -> None:
    for values in (["a", "b", "a"], ["a", None, "b"]):
        encoded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None]), pa.array(values))
        (chunk,) = chunks_of(open_source(pa.table({"unique_id": encoded, "y": [1, 2, 3, 4]})))
        assert rows_of(chunk.frame, ["unique_id"]) == [(value,) for value in [*values, None]]


def test_times_in_text_stay_text(tmp_path: Path) -> None:
    for writer in (csv("x.csv"), csv("y.csv", sep=";", decimal=",")):
        (chunk,) = chunks_of(open_source(writer(example(), tmp_path)))
        assert {type(value) for value in chunk.frame["ds"]} == {str}


def test_many_columns_make_chunks_shorter(tmp_path: Path) -> None:
    frame = pd.DataFrame({f"x{i}": ramp(100) for i in range(20)})
    for table in (frame, arrow(frame), csv("x.csv")(frame, tmp_path)):
        chunks = chunks_of(open_source(table, chunk_values=200))
        assert [len(chunk.frame) for chunk in chunks] == [10] * 10
    # The columns that are not asked for are parsed too.
    source = open_source(tmp_path / "x.csv", chunk_values=200)
    assert [len(chunk.frame) for chunk in source.chunks(["x0"])] == [10] * 10
    source = open_source(frame, chunk_values=200)
    assert [len(chunk.frame) for chunk in source.chunks(["x0"])] == [50] * 2


def test_no_columns_have_rows_all_the_same(tmp_path: Path) -> None:
    for kind in ("pandas", "polars", "csv", "parquet", "feather"):
        source = open_source(EVERY[kind](example(), tmp_path), chunk_values=20)
        assert [len(chunk.frame) for chunk in source.chunks([])] == [5, 5, 5]


# A table is read again and again


def test_a_small_table_is_read_once(tmp_path: Path) -> None:
    path = Path(str(parts(csv, ".csv")(example(), tmp_path)))
    source = open_source(path)
    first = chunks_of(source)
    for file in source.files:
        file.unlink()
    for names in (source.names, ["ds", "y"]):
        check_chunks(source, chunks_of(source, names), example(), names, 1000)
    first[0].frame["y"] = 0.0  # what is done to a chunk stays there
    first[0].frame.loc[:, "price"] += 1
    check_chunks(source, chunks_of(source), example(), source.names, 1000)


def test_a_large_table_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    csv(path.name)(example(), tmp_path)
    source = open_source(path, chunk_values=4 * len(example()) - 1)
    assert len(chunks_of(source)) == len(chunks_of(source)) == 2
    path.unlink()
    with pytest.raises(DataError, match=r"x\.csv: cannot be read"):
        chunks_of(source)


def test_what_was_left_off_is_not_taken_for_the_table() -> None:
    source = open_source(example(), chunk_values=20)
    next(iter(source.chunks(["y"])))
    assert len(chunks_of(source, ["y"])) == 3


def test_a_pandas_frame_is_left_as_it_is() -> None:
    frame = example().set_index(pd.Index(range(5, 5 + len(example()))))
    before = frame.copy()
    for chunk in open_source(frame, chunk_values=20).chunks(list(frame)):
        chunk.frame["y"] = 0.0
    pd.testing.assert_frame_equal(frame, before)


MEASURE = """
import sys
import pyarrow
from tsformer.data.sources import open_source
source = open_source(sys.argv[1], chunk_values=1 << 16)
for chunk in source.chunks(["y"]):
    pass
print(pyarrow.default_memory_pool().max_memory())
"""


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_large_row_groups_are_not_read_at_once(tmp_path: Path, ending: str) -> None:
    """What Arrow allocates at most is counted in a process of its own."""
    y = pa.array(np.random.default_rng(0).normal(size=5_000_000))
    table = pa.table({"y": y, "z": y})
    path = tmp_path / f"x{ending}"
    if ending == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=len(y))
    else:
        pa.feather.write_feather(table, path, chunksize=len(y), compression="uncompressed")
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) < y.nbytes / 2


# Mistakes


def test_columns_that_are_not_there_are_named() -> None:
    with pytest.raises(DataError, match=r"no column 'load' in the table; it has .*'price'"):
        chunks_of(open_source(example()), ["y", "load"])


def test_what_is_no_table_is_said() -> None:
    for read in (open_source, read_frame):
        with pytest.raises(DataError, match=r"builtins\.int is not a table"):
            read(7)


@pytest.mark.parametrize("convert", [lambda frame: frame, arrow, polars.from_pandas])
def test_no_rows_in_memory_are_said(convert: Callable[[pd.DataFrame], object]) -> None:
    table = convert(example()[:0])
    for read in (lambda table: chunks_of(open_source(table)), read_frame):
        with pytest.raises(DataError, match=r"^the table has no rows"):
            read(table)


def test_a_table_that_cannot_be_had_is_said() -> None:
    class Broken:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            raise ValueError("it is gone")

    for read in (open_source, read_frame):
        with pytest.raises(DataError, match=r"Broken is not a table \(it is gone\)"):
            read(Broken())


def test_the_home_folder_may_be_abbreviated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    csv("x.csv")(example(), tmp_path)
    assert len(read_frame("~/x.csv")) == len(read_frame("~/*.csv")) == len(example())
    assert open_source("~/x.csv").files == [tmp_path / "x.csv"]


@pytest.mark.parametrize("rows", [[0, 1], []], ids=["between", "within"])
def test_a_file_that_changes_while_it_is_read_is_told(rows: list[int], tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    example().to_csv(path, index=False)
    source = open_source(path, chunk_values=4)
    chunks = source.chunks(source.names)
    for _ in rows:
        next(chunks)
    example().iloc[::-1].to_csv(path, index=False)
    os.utime(path, ns=(1, 1))  # as clocks may be coarse
    with pytest.raises(DataError, match=r"x\.csv: changed while it was being read"):
        list(chunks)


def test_a_name_may_begin_as_that_of_a_home_folder(tmp_path: Path, monkeypatch) -> None:
    example().to_csv(tmp_path / "~old.csv", index=False)
    monkeypatch.chdir(tmp_path)
    assert len(read_frame("~old.csv")) == len(example())
    with pytest.raises(DataError, match=r"~new\.csv: there is no such file"):
        read_frame("~new.csv")


def test_a_damaged_end_is_said_when_it_is_reached(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"ds,y\n2024-01-01,1\n")[:-8])
    with pytest.raises(DataError, match=r"x\.csv\.gz: cannot be read"):
        open_source(path)


def test_errors_name_the_path_or_what_is_said_instead(tmp_path: Path) -> None:
    for source, expected in ((tmp_path, f"{tmp_path}: lost"), ("future", "future: lost")):
        with pytest.raises(DataError) as error, errors_naming(source):
            raise DataError("lost")
        assert str(error.value) == expected
    with pytest.raises(DataError, match=r"^lost$"), errors_naming(example()):
        raise DataError("lost")
