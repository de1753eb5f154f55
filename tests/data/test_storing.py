"""Stores that are written to disk and opened again."""

import errno
import json
import os
import shutil
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsformer.data.findings import Finding, Findings
from tsformer.data.store import SeriesStore
from tsformer.data.storing import META, create_rows, open_store, save_store


def simple_store(lengths: tuple[int, ...] = (5, 3), num_covariates: int = 2) -> SeriesStore:
    """A store of hourly series that all begin with the grid."""
    count, rows = len(lengths), sum(lengths)
    offsets = np.cumsum([0, *lengths])
    rng = np.random.default_rng(rows)
    target = rng.normal(size=rows).astype(np.float32)
    target[::3] = np.nan
    return SeriesStore(
        table_ids=tuple(f"s{series}" for series in range(count)),
        targets=("y",),
        grid=pd.date_range("2024-01-01", periods=max(lengths), freq="h"),
        freq="h",
        time_zone=None,
        starts=np.zeros(count, np.int64),
        offsets=offsets,
        centers=rng.normal(size=count),
        target=target,
        covariate_base=offsets[:-1],
        covariates=rng.normal(size=(rows, num_covariates)).astype(np.float32),
        static=rng.normal(size=(count, 1)).astype(np.float32),
        weights=None,
        categories={},
    )


def assert_same_store(left: SeriesStore, right: SeriesStore) -> None:
    for name in (field.name for field in fields(SeriesStore)):
        a, b = getattr(left, name), getattr(right, name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b, err_msg=name)
        elif name == "grid":
            assert a.dtype == b.dtype
            assert a.equals(b)
        else:
            assert a == b, name


def opened(folder: Path) -> tuple[SeriesStore, Findings]:
    found = open_store(folder)
    assert found is not None
    return found


@st.composite
def stores(draw) -> SeriesStore:
    lengths = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any))
    store = simple_store(tuple(lengths), draw(st.integers(0, 3)))
    count = len(lengths)
    zone = draw(st.sampled_from([None, "UTC", "Europe/Berlin"]))
    grid = store.grid.as_unit(draw(st.sampled_from(["s", "us", "ns"])))
    ids = draw(st.lists(st.text(), min_size=count, max_size=count, unique=True))
    texts = st.lists(st.text(), max_size=3).map(tuple)
    return replace(
        store,
        table_ids=tuple(ids),
        grid=grid if zone is None else grid.tz_localize("UTC"),
        time_zone=zone,
        weights=draw(st.none() | st.just(np.arange(1.0, count + 1))),
        categories=draw(st.dictionaries(st.text(), texts, max_size=2)),
    )


@given(stores())
def test_a_store_comes_back_as_it_was_with_its_rows_mapped(store):
    with tempfile.TemporaryDirectory() as name:
        save_store(store, Findings(), Path(name))
        again, _ = opened(Path(name))
        assert_same_store(store, again)
        for rows in (again.target, again.covariates):
            assert isinstance(rows, np.memmap)
            assert not rows.flags.writeable


def test_findings_come_back_and_add_up_as_before(tmp_path):
    findings = Findings()
    findings.add(Finding("note", "gaps", "series 'a': 2 steps", "Fill them", 2))
    findings.add(Finding("warning", "text", "column 'x': 'ü'"), "x")
    findings.add(Finding("warning", "text", "column 'z': '?'"), "z")
    save_store(simple_store(), findings, tmp_path)
    _, again = opened(tmp_path)
    assert again == findings
    again.add(Finding("warning", "text", "column 'z': '!'"), "z")
    assert [finding.count for finding in again] == [1, 2, 2]


def test_rows_that_were_made_in_the_folder_are_kept(tmp_path):
    store = simple_store((40, 2))
    target = create_rows(tmp_path, "target", store.target.shape)
    covariates = create_rows(tmp_path, "covariates", store.covariates.shape)
    assert not target.any()
    target[:], covariates[:] = store.target, store.covariates
    inode = (tmp_path / "target.npy").stat().st_ino
    save_store(replace(store, target=target, covariates=covariates), Findings(), tmp_path)
    assert (tmp_path / "target.npy").stat().st_ino == inode
    assert_same_store(store, opened(tmp_path)[0])


def test_rows_mapped_from_another_folder_are_copied(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    store = simple_store()
    save_store(store, Findings(), tmp_path / "one")
    save_store(opened(tmp_path / "one")[0], Findings(), tmp_path / "two")
    (tmp_path / "one" / "target.npy").write_bytes(b"")
    assert_same_store(store, opened(tmp_path / "two")[0])


def test_rows_take_their_place_on_the_disk_when_they_are_made(tmp_path):
    create_rows(tmp_path, "covariates", (50_000, 4))
    assert (tmp_path / "covariates.npy").stat().st_blocks * 512 >= 800_000


def test_rows_that_the_disk_cannot_hold_are_refused_before_they_fill_it(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=399)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    create_rows(tmp_path, "target", (99,))
    with pytest.raises(OSError, match=r"covariates\.npy") as error:
        create_rows(tmp_path, "covariates", (25, 4))
    assert error.value.errno == errno.ENOSPC
    assert not (tmp_path / "covariates.npy").exists()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def change_meta(path: Path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def break_header(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:12].ljust(len(content), b"("))


DAMAGES = {
    "truncated rows": lambda folder: truncate(folder / "target.npy"),
    "truncated starts": lambda folder: truncate(folder / "starts.npy"),
    "longer": lambda folder: os.truncate(folder / "static.npy", 10_000),
    "missing": lambda folder: (folder / "covariates.npy").unlink(),
    "no meta": lambda folder: (folder / META).unlink(),
    "truncated meta": lambda folder: truncate(folder / META),
    "empty meta": lambda folder: (folder / META).write_bytes(b""),
    "binary meta": lambda folder: (folder / META).write_bytes(b"\xff" * 50),
    "other meta": lambda folder: (folder / META).write_text("[1]"),
    "another schema": lambda folder: change_meta(folder / META, schema_version=0),
    "an array less": lambda folder: change_meta(folder / META, sizes={}),
    "no array": lambda folder: (folder / "offsets.npy").write_bytes(
        b"?" * (folder / "offsets.npy").stat().st_size
    ),
    "broken header": lambda folder: (folder / "starts.npy").write_bytes(
        (folder / "starts.npy")
        .read_bytes()[:12]
        .ljust((folder / "starts.npy").stat().st_size, b"(")
    ),
    "deep meta": lambda folder: (folder / META).write_text("[" * 100_000),
    "unknown finding": lambda folder: change_meta(folder / META, findings=[{"place": ""}]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_what_is_not_whole_is_no_store(tmp_path, damage):
    save_store(simple_store(), Findings(), tmp_path)
    assert open_store(tmp_path) is not None
    damage(tmp_path)
    assert open_store(tmp_path) is None


def test_a_missing_folder_or_a_file_is_no_store(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert open_store(tmp_path / "none") is None
    assert open_store(tmp_path / "file") is None
    assert open_store(tmp_path / "file" / "below") is None


def test_objects_are_never_pickled(tmp_path):
    store = replace(simple_store(), static=np.array([["a"], ["b"]], dtype=object))
    with pytest.raises(ValueError, match="Python objects"):
        save_store(store, Findings(), tmp_path)
    save_store(simple_store(), Findings(), tmp_path)
    np.save(tmp_path / "static.npy", store.static, allow_pickle=True)
    size = (tmp_path / "static.npy").stat().st_size
    sizes = json.loads((tmp_path / META).read_text())["sizes"] | {"static": size}
    change_meta(tmp_path / META, sizes=sizes)
    assert open_store(tmp_path) is None
