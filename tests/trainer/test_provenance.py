"""run.json: where a run comes from."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.data.frames import hours, long_frame
from tsformer.data.findings import Findings
from tsformer.data.store import SeriesStore
from tsformer.data.storing import open_store, save_store
from tsformer.data.table import SeriesTable
from tsformer.trainer.provenance import describe_checkout, hash_store, write_provenance


def make_store(**frame: object) -> SeriesStore:
    rng = np.random.default_rng(0)
    table = long_frame({"a": rng.normal(size=50), "b": rng.normal(size=40)})
    table = table.assign(x=rng.normal(size=90), colour=["red", "blue"] * 45, size=1.0)
    return SeriesTable.from_(
        table.assign(**frame),
        past_covariates=["x", "colour"],
        static_covariates=["size"],
        categorical=["colour"],
    ).store


def changed(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[-1] += 1
    return array


CHANGES = {
    "value": lambda s: replace(s, target=changed(s.target)),
    "missing": lambda s: replace(s, target=np.where(s.target == s.target[3], np.nan, s.target)),
    "covariate": lambda s: replace(s, covariates=changed(s.covariates)),
    "static": lambda s: replace(s, static=changed(s.static)),
    "center": lambda s: replace(s, centers=changed(s.centers)),
    "id": lambda s: replace(s, table_ids=("a", "c")),
    "target": lambda s: replace(s, targets=("z",)),
    "category": lambda s: replace(s, categories={"colour": ("red", "green")}),
    "stamps": lambda s: replace(s, grid=s.grid + pd.Timedelta(minutes=1)),
    "zone": lambda s: replace(s, time_zone="Europe/Berlin"),
    "freq": lambda s: replace(s, freq="min"),
    "start": lambda s: replace(s, starts=changed(s.starts)),
    "length": lambda s: replace(s, offsets=np.array([0, 49, 90])),
    "weights": lambda s: replace(s, weights=np.ones(2)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_hash_changes_with_all_that_a_table_holds(change: str) -> None:
    store = make_store()
    assert hash_store(CHANGES[change](store)) != hash_store(store)


def test_the_hash_is_the_same_in_each_run_and_from_the_cache(tmp_path: Path) -> None:
    store = make_store()
    assert hash_store(make_store()) == hash_store(store)
    save_store(store, Findings(), tmp_path)
    opened = open_store(tmp_path)
    assert opened is not None
    assert isinstance(opened[0].target, np.memmap)
    assert hash_store(opened[0]) == hash_store(store)


def test_the_unit_of_the_stamps_does_not_matter() -> None:
    seconds = make_store()
    units = [replace(seconds, grid=seconds.grid.as_unit(unit)) for unit in ("s", "us", "ns")]
    assert len({hash_store(store) for store in units}) == 1


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hash_store(make_store())
    monkeypatch.setattr("tsformer.trainer.provenance.BLOCK_ROWS", 7)
    assert hash_store(make_store()) == whole


def test_an_empty_table_of_covariates_is_hashed() -> None:
    frame = pd.DataFrame({"ds": hours(10), "a": np.arange(10.0)})
    assert len(hash_store(SeriesTable.from_(frame).store)) == 64


def git(tree: Path, *arguments: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(tree), *own, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_a_checkout_tells_its_commit_and_whether_it_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    git(tree, "init", "-q")
    (tree / "code.py").write_text("x = 1\n")
    assert describe_checkout(tree) is None  # nothing was committed yet
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "first")
    commit = git(tree, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))  # as in a hook
    (tree / "my.csv").write_text("ds,y\n")  # is no part of the source
    assert describe_checkout(tree) == {"commit": commit, "dirty": False}
    (tree / "code.py").write_text("x = 2\n")
    assert describe_checkout(tree) == {"commit": commit, "dirty": True}
    (tree / "installed").mkdir()
    assert describe_checkout(tree / "installed") is None  # the tree is another project's
    monkeypatch.setenv("PATH", "")
    assert describe_checkout(tree) is None


def test_the_file_tells_the_command_and_stays_when_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["scripts/fit.py", "seed=3"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    store = make_store()
    write_provenance(tmp_path, store)
    told = json.loads((tmp_path / "run.json").read_text())
    assert told["command"] == ["scripts/fit.py", "seed=3"]
    assert told["world_size"] == 2
    assert told["data_sha256"] == hash_store(store)
    assert pd.Timestamp(told["started"]).tz is not None
    assert set(told["versions"]) == {"python", "tsformer", "torch", "lightning", "numpy", "pandas"}
    monkeypatch.setattr("sys.argv", ["scripts/fit.py", "resume=..."])
    write_provenance(tmp_path, store)
    assert json.loads((tmp_path / "run.json").read_text()) == told
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
