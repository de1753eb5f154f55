"""The same data from every source are the same SeriesTable."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.frames import assert_same_store, hours, long_frame, ramp, store_of
from tsformer.data.columns import Columns
from tsformer.data.sources import open_source, read_frame
from tsformer.data.store import SeriesStore
from tsformer.data.table import SeriesTable
from tsformer.errors import DataError

COLUMNS = Columns("unique_id", "ds", ("y",), ("price",))
Source = Callable[[pd.DataFrame, Path], object]
IN_MEMORY: dict[str, Source] = {
    "pandas": lambda frame, _: frame,
    "pandas, Arrow types": lambda frame, _: frame.convert_dtypes(dtype_backend="pyarrow"),
    "pandas, nullable types": lambda frame, _: frame.astype(
        {"unique_id": "string", "y": "Float64", "price": "Float64"}
    ),
    "pandas, categories": lambda frame, _: frame.astype({"unique_id": "category"}),
    "pandas, shuffled": lambda frame, _: shuffled(frame),
    "polars": lambda frame, _: polars.from_pandas(frame, nan_to_null=True),
    "polars, lazy": lambda frame, _: polars.from_pandas(frame).lazy(),
    "polars, categories": lambda frame, _: polars.from_pandas(frame).with_columns(
        polars.col("unique_id").cast(polars.Categorical)
    ),
    "pyarrow": lambda frame, _: pa.Table.from_pandas(frame),
    "pyarrow, batch": lambda frame, _: pa.Table.from_pandas(frame).combine_chunks().to_batches()[0],
}


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in another order that has the series appear in the same one."""
    firsts = ~frame["unique_id"].duplicated()
    return pd.concat([frame[firsts], frame[~firsts].sample(frac=1, random_state=0)])


def csv(name: str, **options: object) -> Source:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        frame.to_csv(folder / name, index=False, **options)
        return folder / name

    return write


def arrow_csv(name: str, codec: str) -> Source:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        with pa.output_stream(folder / name, compression=codec) as stream:
            frame.to_csv(stream, index=False)
        return folder / name

    return write


def parquet(name: str, **options: object) -> Source:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        frame.to_parquet(folder / name, **options)
        return folder / name

    return write


def feather(name: str) -> Source:
    def write(frame: pd.DataFrame, folder: Path) -> Path:
        frame.to_feather(folder / name)
        return folder / name

    return write


def parts(source: Callable[[str], Source], ending: str, pattern: str | None) -> Source:
    """Write two files, the second series in both, and give their folder or a pattern."""

    def write(frame: pd.DataFrame, folder: Path) -> Path:
        half = len(frame) // 2
        source(f"part-0{ending}")(frame[:half].reset_index(drop=True), folder)
        source(f"part-1{ending}")(frame[half:].reset_index(drop=True), folder)
        return folder / pattern if pattern else folder

    return write


def partitioned_text(frame: pd.DataFrame, folder: Path) -> Path:
    for id, rows in frame.groupby("unique_id"):
        (folder / f"unique_id={id}").mkdir()
        rows.drop(columns="unique_id").to_csv(folder / f"unique_id={id}" / "0.csv", index=False)
    return folder


ON_DISK: dict[str, Source] = {
    "csv": csv("x.csv"),
    "csv, shuffled": lambda frame, folder: csv("x.csv")(shuffled(frame), folder),
    "csv, latin-1": csv("x.csv", encoding="latin-1"),
    "csv, byte order mark": csv("x.csv", encoding="utf-8-sig"),
    "csv, semicolons": csv("x.csv", sep=";"),
    "csv, decimal commas": csv("x.csv", sep=";", decimal=","),
    "tsv": csv("x.tsv", sep="\t"),
    "txt": csv("x.txt"),
    "csv.gz": csv("x.csv.gz"),
    "csv.zst": arrow_csv("x.csv.zst", "zstd"),
    "parquet": parquet("x.parquet"),
    "pq, zstd": parquet("x.pq", compression="zstd"),
    "feather": feather("x.feather"),
    "arrow": feather("x.arrow"),
    "folder by series": parquet("x.parquet", partition_cols=["unique_id"]),
    "folder by series, text": partitioned_text,
    "folder of csv": parts(csv, ".csv", None),
    "folder of parquet": parts(parquet, ".parquet", None),
    "folder of feather": parts(feather, ".feather", None),
    "pattern of csv": parts(csv, ".csv", "part-*.csv"),
    "pattern of parquet": parts(parquet, ".parquet", "part-?.parquet"),
    "path as text": lambda frame, folder: str(parquet("x.parquet")(frame, folder)),
}


def example() -> pd.DataFrame:
    frame = long_frame(
        {"007": ramp(6) / 3, "7": [0.1, np.nan, 0.3, 1e-7], "zoé": ramp(5)}, starts={"7": 2}
    )
    return frame.assign(price=np.arange(len(frame)) * 7 % 5, note="x, y")


read_table = SeriesTable.from_


def expected(frame: pd.DataFrame) -> SeriesStore:
    return store_of(frame, target=["y"], past_covariates=["price"], freq="h")


@pytest.mark.parametrize("source", [*IN_MEMORY, *ON_DISK])
def test_every_source_gives_the_same_table(tmp_path: Path, source: str) -> None:
    frame = example()
    table = read_table(
        (IN_MEMORY | ON_DISK)[source](frame, tmp_path), past_covariates=["price"], freq="h"
    )
    assert table.columns == COLUMNS
    assert table.store.ids == ("007", "7", "zoé")
    assert_same_store(table.store, expected(frame))


numbers = st.one_of(st.none(), st.floats(-1e30, 1e30), st.integers(0, 9))
some_series = st.lists(numbers, min_size=1, max_size=5)


@pytest.mark.parametrize("source", [*IN_MEMORY, "csv", "csv.zst", "parquet", "feather"])
@settings(max_examples=5)
@given(st.dictionaries(st.sampled_from(["a", "007", "é", "x y"]), some_series, min_size=1))
def test_any_values_come_through(
    tmp_path_factory: pytest.TempPathFactory, source: str, series: dict[str, list[float | None]]
) -> None:
    frame = long_frame({id: np.array(values, dtype=float) for id, values in series.items()})
    frame["price"] = frame["y"][::-1].to_numpy()
    given = (IN_MEMORY | ON_DISK)[source](frame, tmp_path_factory.mktemp("source"))
    table = read_table(given, past_covariates=["price"], freq="h")
    assert_same_store(table.store, expected(frame))


@pytest.mark.parametrize("source", ["polars", "pyarrow", "csv", "csv.gz", "parquet", "feather"])
def test_wide_tables_are_read_too(tmp_path: Path, source: str) -> None:
    frame = pd.DataFrame({"Date": hours(5), "a": ramp(5), "b, c": ramp(5, 0.5)})
    table = read_table((IN_MEMORY | ON_DISK)[source](frame, tmp_path), freq="h")
    assert table.columns == Columns(None, "Date", ("a", "b, c"))
    assert_same_store(table.store, store_of(frame, freq="h"))


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("source", ["pandas, Arrow types", "polars", "pyarrow", "parquet"])
def test_time_zones_come_through(tmp_path: Path, source: str, zone: str | None) -> None:
    frame = example()
    frame["ds"] = frame["ds"].dt.tz_localize(zone)
    given = (IN_MEMORY | ON_DISK)[source](frame, tmp_path)
    table = read_table(given, past_covariates=["price"], freq="h")
    assert table.store.time_zone == zone
    assert_same_store(table.store, expected(frame))


TYPES = [
    *(pa.int8(), pa.int64(), pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.decimal128(25, 2), pa.string(), pa.large_string()),
    *(pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.int64())),
]


NULLABLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(),
}


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("source", ["pyarrow", "pandas", "nullable", "parquet", "feather"])
def test_targets_of_any_type_are_floats(tmp_path: Path, type: pa.DataType, source: str) -> None:
    values = pa.array([1, 0, None]).cast(pa.string() if pa.types.is_dictionary(type) else type)
    if pa.types.is_dictionary(type):
        values = values.cast(type.value_type).dictionary_encode()
    table = pa.table({"ds": pa.array(hours(3)), "y": values})
    given: object = table
    if source == "pandas":
        given = table.to_pandas(types_mapper=pd.ArrowDtype)
    elif source == "nullable":
        given = table.to_pandas(types_mapper=NULLABLE.get)
    elif source == "parquet":
        pa.parquet.write_table(table, tmp_path / "x.parquet")
        given = tmp_path / "x.parquet"
    elif source == "feather":
        pa.feather.write_feather(table, tmp_path / "x.feather")
        given = tmp_path / "x.feather"
    read = read_table(given, freq="h")
    np.testing.assert_array_equal(read.store.target, [1, 0, np.nan])
    assert read.store.target.dtype == np.float32


@pytest.mark.parametrize("column", ["unique_id", "shop"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_encoded_ids_become_text(tmp_path: Path, column: str, ending: str) -> None:
    frame = example().rename(columns={"unique_id": column}).astype({column: "category"})
    path = tmp_path / f"x{ending}"
    frame.to_csv(path, index=False) if ending == ".csv" else frame.to_parquet(path)
    table = read_table(path, id=column, target=["y"], freq="h")
    assert table.store.ids == ("007", "7", "zoé")
    assert table.columns.id == column
    assert not isinstance(read_frame(path, [column])[column].dtype, pd.CategoricalDtype)


def test_the_home_folder_may_be_abbreviated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    example().to_csv(tmp_path / "x.csv", index=False)
    assert len(read_frame("~/x.csv")) == len(read_frame("~/*.csv")) == len(example())


# Mistakes


@pytest.mark.parametrize("kind", [str, Path])
def test_what_is_wrong_within_a_source_is_said_with_its_path(
    tmp_path: Path, kind: Callable[[Path], object]
) -> None:
    frame = example()
    frame.to_csv(tmp_path / "x.csv", index=False)
    given = kind(tmp_path / "*.csv")
    with pytest.raises(DataError, match="no column 'load'") as error:
        read_table(given, target=["load"])
    assert str(error.value).startswith(f"{tmp_path}/*.csv: ")
    with pytest.raises(DataError, match="column 'note', row 0: 'x, y' is not a number") as error:
        read_table(given, past_covariates=["note"], freq="h")
    assert str(error.value).count(str(tmp_path)) == 1


def test_what_is_wrong_within_a_frame_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^no column 'load'"):
        read_table(example(), target=["load"])
    with pytest.raises(DataError, match="no rows"):
        read_table(example()[:0], past_covariates=["price"])
    with pytest.raises(DataError, match=r"builtins\.int is not a table"):
        read_table(7)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.csv", "no such file or folder"),
        ("empty", "the folder holds no files"),
        ("*.csv", "no file matches"),
        ("mixed", "different kinds"),
        ("x.xlsx", "tables of this ending are not read"),
        ("bad.parquet", "cannot be read as a table"),
        ("differing", "only one of .* has 'price'"),
        ("no rows", "the table has no rows"),
    ],
)
def test_sources_that_cannot_be_read_are_named(tmp_path: Path, name: str, message: str) -> None:
    for folder in ("empty", "mixed", "differing", "no rows"):
        (tmp_path / folder).mkdir()
    (tmp_path / "x.xlsx").touch()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1, not")
    example().to_csv(tmp_path / "mixed" / "a.csv")
    example().to_parquet(tmp_path / "mixed" / "b.parquet")
    example().to_csv(tmp_path / "differing" / "a.csv")
    example().drop(columns="price").to_csv(tmp_path / "differing" / "b.csv")
    example()[:0].to_csv(tmp_path / "no rows" / "a.csv", index=False)
    for read in (read_table, read_frame, lambda path: list(open_source(path).chunks(["y"]))):
        with pytest.raises(DataError, match=message) as error:
            read(tmp_path / name)
        assert str(tmp_path / name) in str(error.value)


# Large files


@pytest.fixture
def all_files_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsformer.data.table._LARGE", 0)


@pytest.mark.usefixtures("all_files_are_large")
@pytest.mark.parametrize("duplicates", ["error", "mean"])
@pytest.mark.parametrize("source", ["csv", "parquet", "folder by series", "pattern of parquet"])
def test_large_files_are_mapped_from_the_cache(
    tmp_path: Path, source: str, duplicates: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    given = ON_DISK[source](example(), tmp_path / "data")
    options = {"target": ["y"], "past_covariates": ["price"], "freq": "h"}
    options |= {"duplicates": duplicates, "cache": tmp_path / "cache"}
    caplog.set_level("INFO")
    tables = [read_table(given, **options) for _ in range(3)]
    assert caplog.text.count("once") == 1  # read
    for table in tables:
        assert isinstance(table.store.target, np.memmap)
        assert_same_store(table.store, expected(example()))
    assert [str(f) for f in tables[0].findings] == [str(f) for f in tables[2].findings]


@pytest.mark.usefixtures("all_files_are_large")
def test_without_a_cache_folder_the_table_is_held_in_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    example().to_parquet(tmp_path / "x.parquet")
    (tmp_path / "file").touch()
    options = {"target": ["y"], "past_covariates": ["price"], "freq": "h"}
    table = read_table(tmp_path / "x.parquet", **options, cache=tmp_path / "file" / "cache")
    assert_same_store(table.store, expected(example()))
    assert "held in memory" in caplog.text


@pytest.mark.usefixtures("all_files_are_large")
def test_a_large_file_with_faults_is_refused_and_not_cached(tmp_path: Path) -> None:
    frame = example().astype({"y": object})
    frame.loc[1, "y"] = "?"
    frame.to_csv(tmp_path / "x.csv", index=False)
    for _ in range(2):
        with pytest.raises(DataError, match=r"x\.csv: series .*'\?' is not a number"):
            read_table(tmp_path / "x.csv", target=["y"], cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*/meta.json"))


def test_small_files_are_not_cached(tmp_path: Path) -> None:
    example().to_parquet(tmp_path / "x.parquet")
    read_table(tmp_path / "x.parquet", target=["y"], cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_row_numbers_that_were_saved_twice_are_left_out(tmp_path: Path) -> None:
    long_frame({"a": ramp(5)}).to_csv(tmp_path / "x.csv")
    pd.read_csv(tmp_path / "x.csv").to_csv(tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text().startswith(",Unnamed: 0,unique_id")
    assert_same_store(store_of(tmp_path / "x.csv"), store_of(long_frame({"a": ramp(5)})))


def test_an_empty_path_names_no_file() -> None:
    with pytest.raises(DataError, match="an empty path names no file"):
        read_table("")


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("target", ["sales", "y"])
def test_a_long_table_without_a_name_for_its_ids_is_told_which_they_are(
    tmp_path: Path, target: str, large: bool, request: pytest.FixtureRequest
) -> None:
    if large:
        request.getfixturevalue("all_files_are_large")
    frame = long_frame({"a": ramp(30), "b": ramp(30)})
    frame.columns = ["shop", "ds", target]
    frame.insert(0, "kind", "food")  # which is a text too, and the same for both
    frame.to_csv(tmp_path / "sales.csv", index=False)
    message = (
        r"sales\.csv: the time '2024-01-01 00:00:00' comes several times, each with another 'shop'"
        rf".* dataset\.id_column=shop dataset\.target={target}; other columns"
    )
    with pytest.raises(DataError, match=message) as error:
        SeriesTable.from_(tmp_path / "sales.csv", cache=tmp_path / "cache")
    assert "faults" not in str(error.value)
    table = SeriesTable.from_(tmp_path / "sales.csv", id="shop", target=[target])
    assert table.store.ids == ("a", "b")


def test_rows_that_are_there_twice_are_no_sign_of_ids() -> None:
    frame = long_frame({"a": ramp(30)}).drop(columns="unique_id").assign(note="x")
    with pytest.raises(DataError, match="twice, in row 0 and row 30"):
        SeriesTable.from_(pd.concat([frame, frame], ignore_index=True))


def test_a_date_and_a_time_of_day_in_two_columns_are_no_ids() -> None:
    stamps = pd.date_range("2024-01-01", periods=100, freq="h")
    days, hours = stamps.strftime("%Y-%m-%d"), stamps.strftime("%H:%M")
    frame = pd.DataFrame({"date": days, "time": hours, "y": ramp(100)})
    with pytest.raises(DataError, match="Write 'date' and 'time' into one column"):
        SeriesTable.from_(frame)
