"""scripts/check.py as users run it: it tells everything, and writes nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.data.frames import long_frame, ramp

ROOT = Path(__file__).resolve().parents[2]


def run_check(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "check.py"), "dataset=custom", *overrides]
    environment = {**os.environ, "COLUMNS": "400", "HOME": str(folder / "home")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def contents(folder: Path) -> dict[str, float]:
    return {str(path): path.stat().st_mtime for path in folder.rglob("*")}


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    frame = long_frame({"shop 1": ramp(60), "shop 2": ramp(60)}).astype({"y": object})
    frame.loc[3, "y"] = "12,5"
    frame.loc[10, "y"] = "inf"
    frame.loc[20, "unique_id"] = None
    frame["ds"] = frame["ds"].astype(str)
    frame.loc[30, "ds"] = ""
    frame.loc[40, "ds"] = "2024-01-02 16:07:00"
    frame.loc[100, "ds"] = frame.loc[99, "ds"]
    frame.to_csv(tmp_path / "my.csv", index=False)
    return tmp_path


def test_six_faults_are_told_in_one_report(faulty: Path) -> None:
    before = contents(faulty)
    result = run_check(faulty, "dataset.path=my.csv")
    assert result.returncode == 2, result.stderr
    report = result.stdout
    for kind in (
        "not a number",
        "infinite",
        "no id",
        "no time",
        "irregular step",
        "duplicate rows",
    ):
        assert sum(kind in line and "error" in line for line in report.splitlines()) == 1, report
    for place in ("row 3", "row 10", "row 20", "row 30", "row 40", "row 100", "'12,5'"):
        assert place in report
    assert contents(faulty) == before


def test_a_fit_refuses_what_check_refuses_in_the_same_words(faulty: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "fit.py")]
    overrides = ["dataset=custom", "dataset.path=my.csv"]
    result = subprocess.run([*command, *overrides], cwd=faulty, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("error: my.csv: 6 faults:\n  1. ")
    assert "series 'shop 2' has the time" in result.stderr


def test_names_in_brackets_are_printed_as_they_are(tmp_path: Path) -> None:
    long_frame({"[/b]": ramp(300), "[red]x": ramp(9)}).to_csv(tmp_path / "my.csv", index=False)
    result = run_check(tmp_path, "dataset.path=my.csv", "dataset.name='[/x]'")
    assert result.returncode == 0, result.stderr
    assert "[/x]: long table" in result.stdout
    assert "'[red]x'" in result.stdout


def test_a_good_table_is_described(tmp_path: Path) -> None:
    long_frame({"a": ramp(600), "b": ramp(20)}).to_csv(tmp_path / "my.csv", index=False)
    before = contents(tmp_path)
    result = run_check(tmp_path, "dataset.path=my.csv")
    assert result.returncode == 0, result.stderr
    report = unwrapped(result.stdout)
    assert "long table, 2 series, 620 rows of h; target y" in report
    assert "short series" in report
    assert "A fit would accept this table." in report
    assert contents(tmp_path) == before


def test_mistakes_of_the_settings_are_told_as_a_fit_tells_them(tmp_path: Path) -> None:
    frame = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=50, freq="h"), "y": 1.0})
    frame.to_csv(tmp_path / "my.csv", index=False)
    for overrides, words in (
        (["dataset.path=none.csv"], "was not found"),
        (["dataset.path=my.csv", "context_length=400"], "the longest series has 35 train steps"),
        (["dataset.path=my.csv", "model.width=1"], "width"),
    ):
        result = run_check(tmp_path, *overrides)
        assert result.returncode == 2
        assert result.stderr.startswith("error: ")
        assert words in result.stderr


def test_what_stands_out_is_told_beside_what_refuses_the_table(tmp_path: Path) -> None:
    frame = long_frame({"a": ramp(400)}).drop(columns="unique_id")
    frame.loc[0, "ds"] = frame.loc[0, "ds"].replace(year=1924)
    frame.to_csv(tmp_path / "my.csv", index=False)
    result = run_check(tmp_path, "dataset.path=my.csv")
    assert result.returncode == 2
    assert "more than nine in ten" in unwrapped(result.stdout)
    assert "error: the validation part holds no value" in result.stderr
