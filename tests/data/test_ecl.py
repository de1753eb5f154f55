"""UCI's quarter-hours to hours, on small files of its form with answers known by hand."""

import importlib.util
import re
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from tsformer.data import ecl
from tsformer.data.ecl import name_as_benchmark, read_hours
from tsformer.errors import DataError

STEP = 2.97619047619048  # kW that one count of a meter stands for


def write(path: Path, table: pd.DataFrame) -> Path:
    """Write a table as UCI does: quoted stamps and names, semicolons, decimal commas."""
    quoted = table.set_axis([f'"{name}"' for name in table.columns], axis=1)
    quoted.index = table.index.strftime('"%Y-%m-%d %H:%M:%S"')
    quoted.index.name = '""'
    text = quoted.to_csv(sep=";", decimal=",", quoting=3)
    path.write_text(re.sub("(?<=;)0,0(?=[;\n])", "0", text))
    return path


def quarters(start: str, hours: int, **clients) -> pd.DataFrame:
    """Return a table of quarter-hours; a client is one value or one a row."""
    stamps = pd.date_range(start, periods=4 * hours, freq="15min")
    return pd.DataFrame(clients, index=stamps, dtype=float)


def span(start: str, hours: int) -> dict[str, pd.Timestamp]:
    return {"start": pd.Timestamp(start), "end": pd.Timestamp(start) + hours * ecl.HOUR}


def test_an_hour_is_the_sum_of_its_quarters_rounded_up(tmp_path):
    counts = np.array([0, 1, 2, 3, 10, 10, 10, 10])
    file = write(tmp_path / "x.txt", quarters("2012-01-01", 2, MT_001=counts * STEP, MT_002=7.0))
    assert file.read_text().splitlines()[:3] == [
        '"";"MT_001";"MT_002"',
        '"2012-01-01 00:00:00";0;7,0',
        '"2012-01-01 00:15:00";2,97619047619048;7,0',
    ]
    table = read_hours(file, **span("2012-01-01", 2))
    assert list(table.columns) == ["MT_001", "MT_002"]
    assert_array_equal(table["MT_001"], [0 + 3 + 6 + 9, 4 * 30])
    assert_array_equal(table["MT_002"], [28, 28])
    assert list(table.index) == list(pd.date_range("2012-01-01", periods=2, freq="h"))


def test_rows_before_and_after_the_table_are_left_out(tmp_path):
    file = write(tmp_path / "x.txt", quarters("2011-12-31 20:00", 8, MT_001=np.arange(32.0)))
    table = read_hours(file, **span("2012-01-01", 2))
    assert_array_equal(table["MT_001"], [16 + 17 + 18 + 19, 20 + 21 + 22 + 23])


def test_the_whole_table_has_26304_hours(tmp_path):
    rows = 4 * 24 * (365 + 366 + 365 + 365)
    values = quarters("2011-01-01", rows // 4, MT_001=np.arange(rows) % 96).shift(freq="15min")
    table = read_hours(write(tmp_path / "x.txt", values))
    assert len(table) == 26_304
    assert str(table.index[0]) == "2012-01-01 00:00:00"
    assert str(table.index[-1]) == "2014-12-31 23:00:00"
    # The value stamped 00:00 is the last of the day before: 95.
    assert_array_equal(table["MT_001"].iloc[[0, 1, -1]], [95 + 0 + 1 + 2, 18, 91 + 92 + 93 + 94])


def test_the_hours_at_the_changes_of_the_clock_stay_as_they_are(tmp_path):
    spring = quarters("2012-03-25", 4, MT_001=np.repeat([5.0, 0.0, 5.0, 5.0], 4))
    autumn = quarters("2012-10-28", 4, MT_001=np.repeat([5.0, 10.0, 5.0, 5.0], 4))
    for values, expected in ((spring, [20, 0, 20, 20]), (autumn, [20, 40, 20, 20])):
        day = str(values.index[0])
        start = write(tmp_path / "x.txt", values)
        table = read_hours(start, **span(day, 4), started_by=values.index[-1])
        assert_array_equal(table["MT_001"], expected)


def test_clients_that_start_late_are_left_out(tmp_path):
    start = np.array([0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1])
    values = quarters(
        "2012-01-07 23:00",
        3,
        MT_001=1.0,
        MT_002=start,  # from 23:45, in time
        MT_003=np.append(0, start[:-1]),  # from 2012-01-08 00:00, late
        MT_004=0.0,
        MT_005=1 - start,  # ends early, which does not matter
    )
    table = read_hours(write(tmp_path / "x.txt", values), **span("2012-01-07 23:00", 3))
    assert list(table.columns) == ["MT_001", "MT_002", "MT_005"]
    assert_array_equal(table["MT_002"], [1, 4, 4])


def test_a_start_before_the_table_counts(tmp_path):
    values = quarters("2011-06-01", 1, MT_001=1.0, MT_002=0.0)
    later = quarters("2012-01-01", 1, MT_001=0.0, MT_002=0.0)
    file = write(tmp_path / "x.txt", pd.concat([values, later]))
    assert list(read_hours(file, **span("2012-01-01", 1)).columns) == ["MT_001"]


def test_chunks_that_cut_hours_change_nothing(tmp_path, monkeypatch):
    values = quarters("2012-01-01", 5, MT_001=np.arange(20.0), MT_002=STEP * np.arange(20))
    file = write(tmp_path / "x.txt", values)
    whole = read_hours(file, **span("2012-01-01", 5))
    monkeypatch.setattr(ecl, "CHUNK", 3)
    pd.testing.assert_frame_equal(read_hours(file, **span("2012-01-01", 5)), whole)


def test_the_archive_is_read_without_unpacking_it(tmp_path):
    file = write(tmp_path / "x.txt", quarters("2012-01-01", 2, MT_001=1.5))
    with ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("__MACOSX/._LD2011_2014.txt", b"\0\5\26\7")
        archive.write(file, "LD2011_2014.txt")
    table = read_hours(tmp_path / "x.zip", **span("2012-01-01", 2))
    assert_array_equal(table["MT_001"], [8, 8])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.txt", "x.zip"]


def test_the_names_are_those_of_the_benchmark(tmp_path):
    values = quarters("2012-01-01", 2, **{f"MT_00{i}": float(i) for i in range(1, 5)})
    table = name_as_benchmark(read_hours(write(tmp_path / "x.txt", values), **span("2012", 2)))
    assert list(table.columns) == ["date", "0", "1", "2", "OT"]
    assert_array_equal(table["OT"], [16, 16])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[:3] + rows[4:], "hour 2012-01-01 00:00:00: 3"),
        (lambda rows: [*rows[:5], rows[4], *rows[5:]], "hour 2012-01-01 00:00:00: 5"),
        (lambda rows: rows[:-1], "hour 2012-01-01 01:00:00: 3"),
        (lambda rows: rows[:1], "four rows"),
        (lambda rows: [], "not UCI's"),
        (lambda rows: [row.replace("1,5", "much") for row in rows], "not UCI's"),
        (lambda rows: [row.replace("2012-", "") for row in rows], "not UCI's"),
        (lambda rows: [row.replace(";", ",") for row in rows], "not UCI's"),
    ],
    ids=["gap", "double", "short", "header", "empty", "text", "stamps", "comma separated"],
)
def test_another_file_is_refused_with_its_name(tmp_path, change, words):
    file = write(tmp_path / "x.txt", quarters("2012-01-01", 2, MT_001=1.5))
    file.write_text("\n".join(change(file.read_text().splitlines())))
    with pytest.raises(DataError) as error:
        read_hours(file, **span("2012-01-01", 2))
    assert words in str(error.value)
    assert str(file) in str(error.value)


def test_missing_files_and_wrong_archives_are_refused(tmp_path):
    (tmp_path / "text.zip").write_text("no archive")
    with ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("other.txt", "x")
    for name, words in (("none", "no such file"), ("text", "not UCI's"), ("other", "holds no LD")):
        with pytest.raises(DataError, match=words):
            read_hours(tmp_path / f"{name}.zip")


# The script


@pytest.fixture
def build(repo, monkeypatch):
    spec = importlib.util.spec_from_file_location("build", repo / "datasets" / "ecl" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    hours = pd.date_range("2012-01-01", periods=3, freq="h")
    clients = [f"MT_{i:03d}" for i in range(1, 322)]
    table = pd.DataFrame(np.arange(963.0).reshape(3, 321), index=hours, columns=clients)
    monkeypatch.setattr(module, "read_hours", lambda source: table)
    return module


def test_the_script_writes_and_compares(build, tmp_path, capsys):
    output, other = tmp_path / "new" / "electricity.csv", tmp_path / "other.csv"
    other.write_text("date,0,1,OT\nx,0,1,320\nx,321,322.0,641\nx,642,7,962\n")
    assert build.main(["uci.zip", "--output", str(output), "--compare", str(other)]) == 0
    told = capsys.readouterr().out
    assert "3 rows x 321 clients" in told
    assert "8 of 9 values" in told
    assert "row 2, column 1, 643.0 here, 7.0 there" in told
    lines = output.read_text().splitlines()
    assert lines[0].startswith("date,0,1,2,")
    assert lines[0].endswith(",319,OT")
    assert lines[1].startswith("2012-01-01 00:00:00,0,1,2,")
    assert [path.name for path in output.parent.iterdir()] == ["electricity.csv"]


def test_the_script_replaces_no_file(build, tmp_path, capsys):
    (tmp_path / "electricity.csv").write_text("mine")
    assert build.main(["uci.zip", "--output", str(tmp_path / "electricity.csv")]) == 1
    assert "is there already" in capsys.readouterr().err
    assert (tmp_path / "electricity.csv").read_text() == "mine"
