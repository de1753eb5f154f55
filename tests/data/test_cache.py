"""The cache of stores: what is found again, what is built anew, and processes that meet there."""

import errno
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from tests.data.test_storing import assert_same_store, simple_store
from tests.processes import start_python
from tsformer.data import cache, locking
from tsformer.data.cache import CacheError, cached_store
from tsformer.data.findings import Finding, Findings
from tsformer.data.store import SeriesStore
from tsformer.data.storing import create_rows, save_store
from tsformer.errors import DataError


class Table:
    """Two files of numbers whose store is cached; counts what is done."""

    def __init__(self, home: Path) -> None:
        self.home, self.root, self.folder = home, home / "table", home / "cache"
        self.files = [self.root / "a.csv", self.root / "b" / "c.csv"]
        self.settings = {"freq": "h", "columns": ["y"]}
        self.builds = 0

    def build(self, folder: Path) -> None:
        self.builds += 1
        save_store(self.read(), Findings(), folder)

    def read(self) -> SeriesStore:
        values = [np.loadtxt(file, ndmin=1).astype(np.float32) for file in self.files]
        store = simple_store(tuple(map(len, values)), num_covariates=0)
        store.target[:] = np.concatenate(values)
        return store

    def ask(self) -> SeriesStore:
        """Ask for the store, which has to be that of the files as they are."""
        arguments = self.folder, self.root, self.files, self.settings, self.build
        store, _ = cached_store(*arguments)
        assert_same_store(store, self.read())
        return store

    def left(self) -> set[str]:
        """What lies in the cache besides whole stores, which it has of."""
        names = {path.name for path in self.folder.iterdir()} - {"digests"}
        return {name for name in names if not (self.folder / name / "meta.json").exists()}

    def only_store(self) -> Path:
        [meta] = self.folder.glob("*/meta.json")
        return meta.parent


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path)
    (table.root / "b").mkdir(parents=True)
    table.files[0].write_text("1\n2\n3\n")
    table.files[1].write_text("4\n5\n")
    return table


def test_a_store_is_built_once_and_nothing_else_is_left(table):
    for _ in range(3):
        assert isinstance(table.ask().target, np.memmap)
    assert table.builds == 1
    assert table.left() == set()


def test_findings_are_kept_with_the_store(table):
    findings = Findings()
    findings.add(Finding("note", "gaps", "series 's0': 2 steps"), "y")

    def build(folder: Path) -> None:
        save_store(table.read(), findings, folder)

    for _ in range(2):
        _, found = cached_store(table.folder, table.root, table.files, {}, build)
        assert found == findings


def test_touched_files_give_the_same_store(table):
    table.ask()
    for file in table.files:
        file.touch()
    table.ask()
    os.utime(table.files[0], (1e9, 1e9))
    table.ask()
    assert table.builds == 1


def test_copied_and_moved_files_give_the_same_store(table):
    table.ask()
    moved = table.root.with_name("moved")
    table.root.rename(moved)
    copied = shutil.copytree(moved, table.root.with_name("copied"))
    for root in (moved, copied):
        table.files = [root / file.relative_to(table.root) for file in table.files]
        table.root = root
        table.ask()
    assert table.builds == 1


def test_other_settings_give_another_store_and_both_are_kept(table):
    first = table.settings
    for settings in (first, {"freq": "D", "columns": ["y"]}, {"columns": ["y"]}, first):
        table.settings = settings
        table.ask()
    assert table.builds == 3
    table.settings = {"columns": ("y",), "freq": "h"}  # in another order, as a tuple
    table.ask()
    assert table.builds == 3


def rename(table: Table) -> None:
    table.files[1] = table.files[1].rename(table.root / "d.csv")


def swap_contents(table: Table) -> None:
    first, second = (file.read_text() for file in table.files)
    table.files[0].write_text(second)
    table.files[1].write_text(first)


def move_a_line(table: Table) -> None:
    table.files[0].write_text("1\n2\n")
    table.files[1].write_text("3\n4\n5\n")


CHANGES = {
    "contents": lambda table: table.files[0].write_text("1\n2\n3\n9\n"),
    "a byte": lambda table: table.files[0].write_text("1\n7\n3\n"),
    "a file less": lambda table: table.files.pop(),
    "another order": lambda table: table.files.reverse(),
    "another name": rename,
    "swapped contents": swap_contents,
    "the same bytes in all": move_a_line,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_changed_files_give_another_store(table, change):
    table.ask()
    change(table)
    table.ask()
    assert table.builds == 2


# What is remembered of files


@pytest.fixture
def reads(monkeypatch) -> list[str]:
    """Names of the files whose contents have been read, to be cleared by the test."""
    names = []
    digest = cache._digest
    monkeypatch.setattr(cache, "_digest", lambda file: names.append(file.name) or digest(file))
    return names


def later(monkeypatch, seconds: float) -> None:
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + int(seconds * 1e9))


def change_unseen(file: Path, text: str) -> None:
    """Change a file, but neither its size nor the time of its last change."""
    before = file.stat()
    assert len(text) == before.st_size
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns


def test_files_that_have_not_changed_are_not_read_again(table, reads, monkeypatch):
    later(monkeypatch, 5)
    table.ask()
    assert sorted(reads) == ["a.csv", "c.csv"]
    reads.clear()
    table.ask()
    assert reads == []
    table.files[1].touch()
    table.ask()
    assert reads == ["c.csv"]
    assert table.builds == 1


def test_files_that_have_just_changed_are_read_again(table, reads, monkeypatch):
    for seconds in (0, 1.5, 5, 6):
        later(monkeypatch, seconds)
        table.ask()
    assert len(reads) == 6


def test_a_change_that_a_young_file_hides_is_found(table):
    table.ask()
    change_unseen(table.files[0], "1\n7\n3\n")
    table.ask()
    assert table.builds == 2


def test_a_change_whose_time_was_set_back_is_found(table, monkeypatch):
    later(monkeypatch, 5)
    table.ask()
    change_unseen(table.files[0], "1\n7\n3\n")
    table.ask()
    assert table.builds == 2


def test_tables_in_one_folder_do_not_forget_each_others_files(table, reads, monkeypatch):
    later(monkeypatch, 5)
    both = table.files
    for table.files in (both[:1], both[1:], both[:1], both):
        table.ask()
    assert sorted(reads) == ["a.csv", "c.csv"]


@pytest.mark.parametrize(
    "content", ["{", "null", "[]", "5", '{"PATH": 5}', '{"PATH": []}', "[" * 100_000]
)
def test_a_damaged_record_is_not_used(table, content, monkeypatch):
    later(monkeypatch, 5)
    table.ask()
    [record] = (table.folder / "digests").iterdir()
    record.write_text(content.replace("PATH", str(table.files[0].absolute())))
    table.ask()
    assert table.builds == 1


# What goes wrong


@pytest.mark.parametrize("name", ["target.npy", "offsets.npy", "meta.json"])
def test_a_damaged_store_is_built_anew(table, name):
    table.ask()
    os.truncate(table.only_store() / name, 60)
    table.ask()
    table.ask()
    assert table.builds == 2
    assert table.left() == set()


def test_a_deleted_cache_is_made_again_and_stores_in_use_stay(table):
    before = table.ask()
    shutil.rmtree(table.folder)
    assert_same_store(before, table.read())
    table.ask()
    assert table.builds == 2


def failing(table: Table, error: Exception):
    def build(folder: Path) -> None:
        create_rows(folder, "target", (100,))
        raise error

    return lambda: cached_store(table.folder, table.root, table.files, {}, build)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), ValueError("a fault"), DataError("a fault")]
)
def test_a_failed_build_leaves_nothing(table, error):
    with pytest.raises(type(error)):
        failing(table, error)()
    assert table.left() == set()
    assert list(table.folder.glob("*/meta.json")) == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_with_the_folder_and_the_setting(table, number):
    with pytest.raises(DataError) as error:
        failing(table, OSError(number, os.strerror(number)))()
    assert not isinstance(error.value, CacheError)
    for word in (str(table.folder), str(table.root), os.strerror(number), "paths.cache=..."):
        assert word in str(error.value)
    assert table.left() == set()


def test_a_file_that_changes_while_it_is_read_is_told_and_its_store_not_kept(table):
    def build(folder: Path) -> None:
        table.build(folder)
        change_unseen(table.files[1], "4\n8\n")

    with pytest.raises(DataError, match=r"b.c\.csv: changed while it was being read\. Run the"):
        cached_store(table.folder, table.root, table.files, table.settings, build)
    assert table.left() == set()
    table.ask()
    assert table.builds == 2


def test_a_file_that_is_removed_while_it_is_read_is_told(table):
    def build(folder: Path) -> None:
        table.build(folder)
        table.files[0].unlink()

    with pytest.raises(DataError, match=r"a\.csv: cannot be read"):
        cached_store(table.folder, table.root, table.files, table.settings, build)
    assert table.left() == set()


def test_a_missing_file_is_told(table):
    table.files.append(table.root / "none.csv")
    with pytest.raises(DataError, match=r"none\.csv: cannot be read"):
        table.ask()


@pytest.mark.parametrize("folder", ["file", "file/below", "file/far/below"])
def test_a_folder_that_cannot_be_made_has_an_error_of_its_own(table, tmp_path, folder):
    (tmp_path / "file").write_text("in the way")
    table.folder = tmp_path / folder
    with pytest.raises(CacheError, match="the cache folder cannot be used") as error:
        table.ask()
    assert str(table.folder) in str(error.value)
    assert table.builds == 0


def test_a_store_is_found_where_neither_lock_nor_record_can_be_written(table, monkeypatch):
    table.ask()
    (table.folder / "digests").write_text("in the way")
    table.only_store().with_suffix(".lock").mkdir()
    later(monkeypatch, 5)
    table.ask()
    assert table.builds == 1
    table.settings = {}  # builds another, which has a lock of its own
    table.ask()
    assert table.builds == 2


def test_a_lock_that_cannot_be_made_has_an_error_of_its_own(table):
    table.ask()
    table.only_store().with_suffix(".lock").mkdir()
    (table.only_store() / "meta.json").unlink()
    with pytest.raises(CacheError, match="the cache folder cannot be used"):
        table.ask()


def test_a_build_that_writes_no_store_is_told(table):
    with pytest.raises(CacheError, match="holds no whole store after it was built"):
        cached_store(table.folder, table.root, table.files, {}, lambda folder: None)


# Several processes

CALL = """
import sys, time
from pathlib import Path
from tests.data.test_cache import Table
from tsformer.data.cache import cached_store
from tsformer.data.findings import Findings
from tsformer.data.storing import create_rows, save_store

table = Table(Path(sys.argv[1]))

def build(folder):
    create_rows(folder, "target", (5,))
    with (table.home / "builds").open("a") as builds:
        builds.write("x")
    while not (table.home / "go on").exists():
        time.sleep(0.01)
    save_store(table.read(), Findings(), folder)

print("ready", flush=True)
store, _ = cached_store(table.folder, table.root, table.files, table.settings, build)
assert store.target.tolist() == [1, 2, 3, 4, 5]
"""


def start(table: Table) -> subprocess.Popen:
    return start_python(CALL, str(table.home))


def start_building(table: Table) -> subprocess.Popen:
    process = start(table)
    end = time.monotonic() + 30
    while not (table.home / "builds").exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    return process


def let_end(table: Table, *processes: subprocess.Popen) -> None:
    time.sleep(0.3)  # those that wait have come to the lock by now
    (table.home / "go on").touch()
    for process in processes:
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors


def kill(process: subprocess.Popen) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_of_several_processes_one_builds_and_all_get_its_store(table):
    let_end(table, *(start(table) for _ in range(3)))
    assert (table.home / "builds").read_text() == "x"
    table.ask()
    assert table.builds == 0
    assert table.left() == set()


def test_what_a_killed_builder_left_is_removed_by_the_next(table):
    kill(start_building(table))
    assert any(".part-" in name for name in table.left())
    table.ask()
    table.ask()
    assert table.builds == 1
    assert table.left() == set()


def test_a_waiting_process_takes_over_from_a_builder_that_is_killed(table):
    first, second = start_building(table), start(table)
    time.sleep(0.3)
    kill(first)
    let_end(table, second)
    assert (table.home / "builds").read_text() == "xx"
    assert table.left() == set()


def test_without_file_locks_the_first_to_end_is_kept(table, monkeypatch):
    monkeypatch.setattr(locking, "_lock", lambda file, wait: False)
    other = Table(table.home)

    def build(folder: Path) -> None:
        table.build(folder)
        other.ask()  # another process builds the same meanwhile

    store, _ = cached_store(table.folder, table.root, table.files, table.settings, build)
    assert_same_store(store, table.read())
    assert table.builds == other.builds == 1
    table.ask()
    assert table.builds == 1
    assert table.left() == set()
