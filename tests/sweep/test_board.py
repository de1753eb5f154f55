"""sweep.csv, the leaderboard, best/ and the pictures."""

from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from tsformer.sweep.board import draw, leaderboard, point_to_best, winner, write_csv
from tsformer.sweep.result import Record, Result
from tsformer.sweep.space import Choice, Interval

SPACE = {"lr": Interval(1e-4, 1e-2, log=True), "kind": Choice(("a", "b")), "n": Choice(("1",))}


def make_records(folder: Path, *results: Result) -> list[Record]:
    records = []
    for number, result in enumerate(results):
        run = folder / str(number)
        if result.state == "complete":
            (run / "model").mkdir(parents=True, exist_ok=True)
            (run / "model" / "config.json").write_text(str(number))
        values = {"lr": f"{(number + 1) / 1000:.6g}", "kind": "ab"[number % 2], "n": "1"}
        records.append(Record(number, values, run, result))
    return records


RESULTS = (
    Result("complete", 0.5, 3.0),
    Result("failed", None, 1.0, "too wide,\nby far"),
    Result("pruned", 0.1, 2.0),
    Result("complete", 0.25, 4.0),
    Result("complete", 0.25, 4.0),
)


def test_a_row_a_trial(tmp_path: Path) -> None:
    write_csv(make_records(tmp_path, *RESULTS)[::-1], list(SPACE), tmp_path)
    table = pd.read_csv(tmp_path / "sweep.csv")
    assert list(table) == [
        *("number", "state", "objective", "lr", "kind", "n", "seconds", "folder", "message")
    ]
    assert table["number"].tolist() == [0, 1, 2, 3, 4]
    assert table["lr"].tolist() == [0.001, 0.002, 0.003, 0.004, 0.005]
    assert table["objective"].isna().tolist() == [False, True, False, False, False]
    assert table["message"][1] == "too wide,\nby far"
    assert table["folder"].tolist() == [0, 1, 2, 3, 4]


def test_the_winner_is_complete_and_the_first_of_equals(tmp_path: Path) -> None:
    records = make_records(tmp_path, *RESULTS)
    assert winner(records) is records[3]
    assert winner(records[1:3]) is None


@pytest.mark.parametrize("links", [True, False])
def test_best_follows_the_winner(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:

        def refuse(*_: object, **__: object) -> None:
            raise OSError("no links here")

        monkeypatch.setattr(Path, "symlink_to", refuse)
    records = make_records(tmp_path, *RESULTS)
    point_to_best(records[1:3], tmp_path)
    assert not (tmp_path / "best").exists()
    for known, number in ((1, 0), (5, 3), (5, 3)):
        point_to_best(records[:known], tmp_path)
        assert (tmp_path / "best" / "config.json").read_text() == str(number)
    assert (tmp_path / "best").is_symlink() == links
    assert not list(tmp_path.glob(".best-*"))
    if links:  # a sweep folder can be moved
        moved = tmp_path.rename(tmp_path.with_name("moved"))
        assert (moved / "best" / "config.json").read_text() == "3"


def test_the_leaderboard_names_the_best_first(tmp_path: Path) -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(leaderboard(make_records(tmp_path, *RESULTS), list(SPACE), "val/mae"))
    rows = [line.split() for line in capture.get().splitlines() if line.strip()]
    assert "5 trials (3 complete, 1 failed, 1 pruned)" in capture.get()
    assert rows[1] == ["trial", "val/mae", "lr", "kind", "n", "seconds"]
    assert [row[0] for row in rows[3:]] == ["3", "4", "0"]
    assert rows[3] == ["3", "0.25", "0.004", "b", "1", "4"]


@pytest.mark.parametrize("results", [RESULTS, RESULTS[3:]], ids=["several", "all alike"])
def test_pictures(results: tuple[Result, ...], tmp_path: Path) -> None:
    draw(make_records(tmp_path, *results), SPACE, {"lr": 0.9, "kind": 0.1}, "val/mae", tmp_path)
    for name in ("parallel_coordinates.png", "importances.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
