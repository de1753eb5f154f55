"""`benchmark data` and `benchmark speed`: equal outputs are compared, ratios are of their times."""

from collections.abc import Callable
from typing import Any

import pytest
from rich.table import Table

from tsformer.benchmarks import data, speed


@pytest.fixture(autouse=True)
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each action once; the first took a second, the next two, and so on."""

    def interleaved(*actions: Callable[[], Any], **_: int) -> list[float]:
        for action in actions:
            action()
        return [float(number) for number in range(1, len(actions) + 1)]

    monkeypatch.setattr(data, "interleaved", interleaved)
    monkeypatch.setattr(speed, "interleaved", interleaved)


def cells(table: Table) -> list[list[str]]:
    columns = [list(column.cells) for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def test_windows_are_timed_beside_a_dataset_of_single_ones() -> None:
    rows = cells(data.benchmark_windows(with_calendar=True, num_series=3, num_steps=600))
    assert len(rows) == 4
    assert {row[0] for row in rows} >= {"torch Dataset, an item a window"}


def test_tables_are_opened_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data.time, "sleep", lambda _: None)
    rows = cells(data.benchmark_opening(32, 50))
    assert [row[0] for row in rows] == [
        "2 series, 0.0 M rows",
        "8 series, 0.0 M rows",
        "32 series, 0.0 M rows",
    ]
    assert all(float(row[2]) > 20 for row in rows)  # MB


@pytest.mark.parametrize("part", ["train", "predict"])
def test_each_part_compares_outputs_that_are_equal(
    part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    group = speed.measure_speed([f"only={part}"])
    assert capsys.readouterr().out == f"1/1: {part}\n"
    (table,) = group.renderables
    assert isinstance(table, Table)
    assert len(cells(table)) >= 2


def test_a_training_step_raises_the_peak_of_memory(capsys: pytest.CaptureFixture[str]) -> None:
    speed.print_peak("tsformer", 96)
    assert float(capsys.readouterr().out) >= 0
