"""Parts of an input: each row in one, no series in two, read in place where that goes."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.cases import batch_settings
from tsformer.batch import plan
from tsformer.batch.config import parse_batch
from tsformer.batch.part import Job
from tsformer.batch.plan import Place
from tsformer.batch.prepare import Input, lay_out_parts
from tsformer.data.columns import Columns
from tsformer.data.sources import Span, open_source, read_frame

COLUMNS = Columns("unique_id", "ds", ("y",))


def write_files(folder: Path, files: list[list[str]], ending: str = "parquet") -> list[Path]:
    """Write rows of ids, numbered by y, three rows a row group."""
    folder.mkdir()
    paths, first = [], 0
    for number, ids in enumerate(files):
        frame = pd.DataFrame({"unique_id": ids, "y": np.arange(first, first + len(ids))})
        frame.insert(1, "ds", "2024-01-01")
        first += len(ids)
        paths.append(folder / f"{number}.{ending}")
        if ending == "parquet":
            schema = pa.schema([("unique_id", pa.string()), ("ds", pa.string()), ("y", pa.int64())])
            table = pa.Table.from_pandas(frame, schema, preserve_index=False)
            pq.write_table(table, paths[-1], row_group_size=3)
        else:
            frame.to_csv(paths[-1], index=False)
    return paths


def laid_out(
    home: Path, table: Path, rows: int, series: int = 1000, at_least: int = 1, chunk: int = 1 << 20
) -> tuple[list[Place], list[pd.DataFrame]]:
    """Return the places of the parts of a table, and their rows."""
    settings = batch_settings(input=table, rows_per_part=rows, series_per_part=series)
    found = Input(open_source(table, chunk_values=chunk), None, COLUMNS, "unique_id", None)
    output = home / "out"
    output.mkdir()
    places, id_type = lay_out_parts(found, parse_batch(settings), output, at_least)
    assert id_type == "string"
    job = Job(
        home, table, None, output, places, "unique_id", "string", None, "", {}, "raise", "cpu"
    )
    return places, [read_frame(job.history(number, [])) for number in range(len(places))]


@given(
    files=st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=14), min_size=1, max_size=4),
    is_sorted=st.booleans(),
    rows=st.integers(1, 20),
    series=st.integers(1, 9),
    at_least=st.integers(1, 9),
    ending=st.sampled_from(["parquet", "csv"]),
    chunk=st.sampled_from([16, 1000]),
)
def test_each_row_is_in_one_part_and_each_series_whole(
    files: list[list[str]],
    is_sorted: bool,
    rows: int,
    series: int,
    at_least: int,
    ending: str,
    chunk: int,
) -> None:
    if not any(files):
        files = [["a"]]
    if is_sorted:
        ids = iter(sorted(id for file in files for id in file))
        files = [[next(ids) for _ in file] for file in files]
    given = [id for file in files for id in file]
    with TemporaryDirectory() as scratch:
        home = Path(scratch)
        write_files(home / "table", files, ending)
        places, parts = laid_out(home, home / "table", rows, series, at_least, chunk)
    together = pd.concat(parts)
    assert sorted(together["y"]) == list(range(len(given)))
    assert [given[row] for row in together["y"]] == together["unique_id"].tolist()
    homes = [set(part["unique_id"]) for part in parts]
    assert sum(map(len, homes)) == len(set(given))
    for part in parts:
        for _, own in part.groupby("unique_id"):
            assert own["y"].is_monotonic_increasing
    assert len(parts) >= min(at_least, len(set(given)))
    assert all(len(home) <= max(series, 1) for home in homes)
    assert together["unique_id"].drop_duplicates().tolist() == list(dict.fromkeys(given))
    assert all(len(part) <= rows or len(set(part["unique_id"])) == 1 for part in parts)
    if None not in places:
        assert together["y"].tolist() == list(range(len(given)))


def test_a_sorted_file_is_cut_between_series_and_not_copied(tmp_path: Path) -> None:
    [file] = write_files(tmp_path / "table", [list("aaaabbbccccdd")])
    places, _ = laid_out(tmp_path, file, rows=7)
    assert places == [(Span(file, (0, 7)),), (Span(file, (7, 13)),)]
    assert not list((tmp_path / "out").iterdir())


def test_unsorted_files_of_series_of_their_own_are_read_whole(tmp_path: Path) -> None:
    files = write_files(tmp_path / "table", [list("abab"), list("dcdc"), list("efee")])
    places, _ = laid_out(tmp_path, tmp_path / "table", rows=8)
    assert places == [(Span(files[0]), Span(files[1])), (Span(files[2]),)]


def test_text_is_never_cut_within_a_file(tmp_path: Path) -> None:
    files = write_files(tmp_path / "table", [list("aab"), list("bcc"), list("dee")], "csv")
    places, _ = laid_out(tmp_path, tmp_path / "table", rows=6)
    assert places == [(Span(files[0]), Span(files[1])), (Span(files[2]),)]


def test_a_series_that_goes_on_in_the_next_file_stays_whole(tmp_path: Path) -> None:
    files = write_files(tmp_path / "table", [list("aaab"), list("bbcc")])
    places, _ = laid_out(tmp_path, tmp_path / "table", rows=3)
    assert places == [
        (Span(files[0], (0, 3)),),
        (Span(files[0], (3, 4)), Span(files[1], (0, 2))),
        (Span(files[1], (2, 4)),),
    ]


def test_folders_named_by_ids_are_parts_of_their_own(tmp_path: Path) -> None:
    for id in ("007", "8"):
        (tmp_path / "table").mkdir(exist_ok=True)
        write_files(tmp_path / "table" / f"unique_id={id}", [["x"] * 4])
    for file in (tmp_path / "table").rglob("*.parquet"):
        pd.read_parquet(file).drop(columns="unique_id").to_parquet(file)
    places, parts = laid_out(tmp_path, tmp_path / "table", rows=4)
    assert None not in places
    assert [part["unique_id"].unique().tolist() for part in parts] == [["007"], ["8"]]


@pytest.mark.parametrize("most_sampled", [4, 1000])
def test_rows_of_too_many_runs_to_remember_are_gathered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_sampled: int
) -> None:
    monkeypatch.setattr(plan, "_MOST_RUNS", 50)
    monkeypatch.setattr(plan, "_MOST_SAMPLED", most_sampled)
    ids = [f"s{number % 20}" for number in range(100)]
    write_files(tmp_path / "table", [ids])
    places, parts = laid_out(tmp_path, tmp_path / "table", rows=30, chunk=80)
    assert set(places) == {None}
    assert len(places) > 1
    assert sorted(pd.concat(parts)["y"]) == list(range(100))
    assert sum(part["unique_id"].nunique() for part in parts) == 20
