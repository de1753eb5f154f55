from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from tests.data.frames import assert_same_store, hours, long_frame, ramp, target_of
from tsformer.config import DatasetConfig, PathsConfig
from tsformer.data.catalog import find_file, load_table
from tsformer.errors import ConfigError, DataError

PATHS = PathsConfig(data="", runs="runs", run="run")


def dataset_of(path, **settings) -> DatasetConfig:
    return DatasetConfig(name="test", path=str(path), split=[0.7, 0.1, 0.2], **settings)


@pytest.fixture
def csv(tmp_path: Path):
    def write(text: str, name: str = "load.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


# Where files are looked for


def test_file_is_found_under_the_data_folder(csv, tmp_path):
    path = csv("x")
    assert find_file(dataset_of("load.csv"), str(tmp_path)) == path


def test_absolute_path_is_taken_as_it_is(csv):
    path = csv("x")
    assert find_file(dataset_of(path), "elsewhere") == path


def test_path_from_here_wins_over_the_data_folder(csv, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    csv("x")
    csv("x", "here/load.csv")
    monkeypatch.chdir(tmp_path / "here")
    assert find_file(dataset_of("load.csv"), str(tmp_path)) == Path("load.csv")


def test_embedded_data_are_found_whatever_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_file(dataset_of("electricity/electricity.parquet"), "nowhere").is_file()


def test_folders_and_patterns_are_found_under_the_data_folder(csv, tmp_path):
    csv("x", "part-1.csv")
    dataset = dataset_of("part-*.csv")
    assert find_file(dataset, str(tmp_path)) == tmp_path / "part-*.csv"
    assert find_file(dataset_of(tmp_path.name), str(tmp_path.parent)) == tmp_path


def test_a_name_like_a_pattern_is_a_name(csv, tmp_path):
    path = csv(HOURLY, "load[1].csv")
    assert find_file(dataset_of("load[1].csv"), str(tmp_path)) == path
    assert load_table(dataset_of(path), PATHS).store.ids == ("a", "b")


@pytest.mark.parametrize("name", ["part-*.csv", "**/none.csv"])
def test_a_pattern_without_a_match_is_not_found(tmp_path, name):
    with pytest.raises(DataError, match="was not found") as error:
        find_file(dataset_of(name), str(tmp_path))
    assert str(tmp_path / name) in str(error.value)


def test_missing_file_tells_where_it_was_looked_for_and_where_to_get_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = dataset_of("ETT-small/none.csv", source="https://example.org")
    with pytest.raises(DataError) as error:
        find_file(dataset, str(tmp_path / "data"))
    for word in (
        str(tmp_path / "ETT-small" / "none.csv"),
        str(tmp_path / "data" / "ETT-small" / "none.csv"),
        "https://example.org",
        "paths.data",
        "TSFORMER_DATA",
        "dataset.path",
    ):
        assert word in str(error.value)


def test_no_path_at_all_asks_for_one():
    with pytest.raises(ConfigError, match=r"dataset\.path=my\.csv"):
        find_file(dataset_of(""), "datasets")


# How they are read


def test_csv_and_parquet_give_the_same_table(tmp_path):
    frame = long_frame({"a": ramp(5), "b": ramp(4, 0.5)}, starts={"b": 2})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    tables = [
        load_table(dataset_of(tmp_path / name), PATHS).store for name in ("x.csv", "x.parquet")
    ]
    assert_same_store(*tables)


def test_utc_stamps_survive_both_formats(tmp_path):
    frame = pd.DataFrame({"ds": hours(5).tz_localize("UTC"), "y": ramp(5)})
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_parquet(tmp_path / "x.parquet")
    tables = [
        load_table(dataset_of(tmp_path / name), PATHS).store for name in ("x.csv", "x.parquet")
    ]
    assert_same_store(*tables)
    assert tables[0].time_zone == "UTC"


@pytest.mark.parametrize("column", ["unique_id", "shop"])
def test_ids_of_digits_stay_text(csv, column):
    path = csv(f"{column},ds,y\n007,2024-01-01,1\n007,2024-01-02,2\n7,2024-01-01,3\n")
    table = load_table(dataset_of(path, id_column=column, freq="D"), PATHS)
    assert table.store.ids == ("007", "7")
    assert table.columns.id == column
    assert_array_equal(target_of(table.store, "007"), [1, 2])


def test_ids_that_look_like_missing_values_stay_text(csv):
    path = csv("unique_id,ds,y\nNA,2024-01-01,1\nnull,2024-01-01,2\nNA,2024-01-02,\n")
    table = load_table(dataset_of(path, freq="D"), PATHS)
    assert table.store.ids == ("NA", "null")  # Namibia; empty values stay missing
    assert_array_equal(target_of(table.store, "NA"), [1, np.nan])


def test_latin_1_is_read(tmp_path):
    path = tmp_path / "x.csv"
    path.write_bytes("ds,µg/m³\n2024-01-01,1\n2024-01-02,2\n".encode("latin-1"))
    assert load_table(dataset_of(path), PATHS).store.ids == ("µg/m³",)


def test_columns_and_freq_follow_the_settings(csv):
    path = csv("when,load,rain\n2024-01-01 00:00,1,5\n2024-01-01 02:00,2,6\n")
    table = load_table(
        dataset_of(path, time_column="when", target=["load"], future_covariates=["rain"], freq="h"),
        PATHS,
    )
    assert table.columns.future_covariates == ("rain",)
    assert_array_equal(table.store.lengths, [3])


# Mistakes: each message names the file, and what the user needs to mend it


HOURLY = "unique_id,ds,y\na,2024-01-01 00:00,1\na,2024-01-01 01:00,2\nb,2024-01-01 00:00,3\n"
WILD = "ds,y\n2024-01-01 00:00,1\n2024-01-01 00:01,2\n2200-01-01 00:00,3\n"


@pytest.mark.parametrize(
    ("text", "settings", "words"),
    [
        (HOURLY + "a,2024-01-01 01:00,4\n", {}, ["'a'", "2024-01-01 01:00:00", "row 1 and row 3"]),
        (HOURLY + "b,2024-01-01 00:40,4\n", {"freq": "h"}, ["'b'", "00:40", "row 3", "freq='h'"]),
        (HOURLY + "b,2024-01-01 01:00,4?\n", {}, ["column 'y', row 3: '4?' is not a number"]),
        (HOURLY + "b,2024-01-01 01:00,inf\n", {}, ["column 'y', row 3: infinite"]),
        (HOURLY + "b,,4\n", {}, ["column 'ds', row 3: no time"]),
        (HOURLY + ",2024-01-01 01:00,4\n", {}, ["column 'unique_id', row 3: no series id"]),
        (HOURLY + "b,soon,4\n", {}, ["column 'ds', row 3: 'soon' is not a time"]),
        ("ds,y\n1704067200,1\n1704070800,2\n", {}, ["'ds' holds numbers", "dataset.time_column"]),
        (HOURLY, {"freq": "hourly"}, ["freq='hourly'", "30min", "dataset.freq"]),
        ("a,b\n1,2\n", {}, ["no time column", "'a', 'b'", "dataset.time_column"]),
        (HOURLY, {"target": ["load"]}, ["no column 'load'", "'y'"]),
        (HOURLY, {"past_covariates": ["y"], "target": ["y"]}, ["'y' cannot be used twice"]),
        ("unique_id,ds,p,q\na,2024-01-01,1,2\n", {}, ["'unique_id'", "'p', 'q'"]),
        ("ds,y\n2024-01-01,1\n", {}, ["one time stamp is not enough", "dataset.freq"]),
        (
            "ds,y\n2024-01-01,1\n2024-02-01,2\n2024-04-01,3\n2024-05-01,4\n",
            {},
            ["months", "dataset.freq", "MS"],
        ),
        (HOURLY, {"regular": False, "freq": "h"}, ["dataset.regular=false"]),
        (WILD, {"freq": "min"}, ["'y'", "2200-01-01", "freq='min'", "only 3 rows"]),
        ("ds,y\n", {}, ["no rows"]),
        ("", {}, ["cannot be read"]),
        ("ds,y\n2024-01-01,1,2\n2024-01-02,1,2,3\n", {}, ["more fields than its header"]),
    ],
    ids=[
        "double row",
        "off the grid",
        "text for a number",
        "infinite",
        "no time",
        "no id",
        "text for a time",
        "number for a time",
        "unknown freq",
        "no time column",
        "no such column",
        "column twice",
        "several targets",
        "one row",
        "months with a gap",
        "irregular long table",
        "wild stamp",
        "header only",
        "empty file",
        "ragged rows",
    ],
)
def test_mistakes_in_a_csv_are_named_with_its_path(csv, text, settings, words):
    path = csv(text)
    with pytest.raises(DataError) as error:
        load_table(dataset_of(path, **settings), PATHS)
    for word in (str(path), *words):
        assert word in str(error.value)
    assert str(error.value).count(str(path)) == 1


@pytest.mark.parametrize("name", ["x.parquet", "x.PARQUET", "x.csv"])
def test_garbage_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(bytes(range(256)) * 20)
    with pytest.raises(DataError) as error:
        load_table(dataset_of(path), PATHS)
    assert str(path) in str(error.value)


def test_truncated_parquet_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    long_frame({"a": ramp(100)}).to_parquet(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match="cannot be read"):
        load_table(dataset_of(path), PATHS)


def test_parquet_without_rows_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    long_frame({"a": ramp(2)}).iloc[:0].to_parquet(path)
    with pytest.raises(DataError, match="no rows") as error:
        load_table(dataset_of(path), PATHS)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("name", [None, ""])
def test_no_cache_is_kept_without_a_folder(name, csv, tmp_path, monkeypatch):
    path = csv("unique_id,ds,y\n" + "".join(f"a,2024-01-{d:02},1\n" for d in range(1, 29)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tsformer.data.table._LARGE", 0)
    load_table(dataset_of(path), PATHS.model_copy(update={"cache": name}))
    assert list(tmp_path.iterdir()) == [path]
