"""Downloads from a real server on 127.0.0.1 that can be told to fail in the ways servers do."""

import hashlib
import os
import signal
import subprocess
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.processes import start_python
from tsformer.config import DatasetConfig, PathsConfig, parse_fit
from tsformer.data.catalog import find_file, load_table
from tsformer.data.download import download
from tsformer.errors import ConfigError, DataError
from tsformer.settings import parse

CONTENT = b"ds,y\n" + b"".join(
    b"2024-01-01 %02d:%02d:00,%d\n" % (minute // 60, minute % 60, minute) for minute in range(1440)
)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
HALF = len(CONTENT) // 2


class Site:
    """What the server serves, what it was asked for, and how it shall fail.

    `faults` holds one entry a request; when it is used up, replies are right.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/load.csv"
        self.content = CONTENT
        self.ranges: list[str | None] = []  # the Range header of each request
        self.faults: list[str] = []
        self.gate = threading.Event()  # a reply with the fault "stops" goes on when it is set


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        site: Site = self.server.site  # type: ignore[attr-defined]
        asked = self.headers.get("Range")
        site.ranges.append(asked)
        fault = site.faults.pop(0) if site.faults else ""
        if fault.isdecimal():
            return self.send_error(int(fault))
        first = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if fault == "ignores the range":
            first = 0
        if first >= len(site.content):
            return self.send_error(416)
        body = site.content[first:]
        if fault == "damages a byte":
            body = body[:-1] + b"!"
        if first:
            self.send_response(206)
            start = 0 if fault == "sends another range" else first
            whole = len(site.content)
            self.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        else:
            self.send_response(200)
        if fault != "gives no length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        middle = len(body) // 2
        self.wfile.write(body[:middle])
        if fault == "breaks off":
            return None
        if fault == "stops":
            self.wfile.flush()
            site.gate.wait(20)
        self.wfile.write(body[middle:])
        return None

    def handle(self) -> None:
        with suppress(ConnectionError):  # the other end was killed
            super().handle()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.site = Site(server.server_port)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.site  # type: ignore[attr-defined]
    server.site.gate.set()  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "folder" / "load.csv"


def part_of(path: Path, content: bytes = CONTENT[:HALF]) -> Path:
    """Leave what a broken download would have left."""
    path.parent.mkdir(parents=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(content)
    return part


def fails(url: str, path: Path, sha256: str | None = SHA256, **options) -> str:
    with pytest.raises(DataError) as error:
        download(url, path, sha256=sha256, wait=0, **options)
    assert not path.exists()
    assert not path.with_name(path.name + ".lock").exists()
    return str(error.value)


def test_a_file_comes_whole_and_leaves_nothing_beside_it(site, path):
    download(site.url, path, sha256=SHA256.upper())
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert site.ranges == [None]


@pytest.mark.parametrize("fault", ["", "gives no length"])
def test_without_a_sha256_any_file_is_taken(site, path, fault):
    site.faults = [fault]
    download(site.url, path)
    assert path.read_bytes() == CONTENT


def test_a_file_that_is_there_is_left_alone(site, path):
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    download(site.url, path, sha256=SHA256)
    assert path.read_text() == "mine"
    assert site.ranges == []


def test_a_file_url_is_copied(tmp_path, path):
    source = tmp_path / "source.csv"
    source.write_bytes(CONTENT)
    part_of(path)
    download(source.as_uri(), path, sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert source.exists()


def test_nothing_is_drawn_where_there_is_no_terminal(site, path, capfd):
    download(site.url, path)
    assert capfd.readouterr() == ("", "")


# What an earlier download left


def test_a_part_is_continued(site, path):
    part_of(path)
    download(site.url, path, sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert site.ranges == [f"bytes={HALF}-"]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "faults", "ranges"),
    [
        (CONTENT[:HALF], ["ignores the range"], [f"bytes={HALF}-"]),
        (CONTENT[:HALF], ["416"], [f"bytes={HALF}-", None]),
        (CONTENT[:HALF], ["sends another range"], [f"bytes={HALF}-", None]),
        (CONTENT, [], [f"bytes={len(CONTENT)}-", None]),
        (CONTENT + b"more", [], [f"bytes={len(CONTENT) + 4}-", None]),
        (b"", [], [None]),
    ],
    ids=["server without ranges", "416", "wrong range", "whole part", "too long", "empty part"],
)
def test_a_part_that_cannot_be_continued_is_begun_anew(site, path, content, faults, ranges):
    part_of(path, content)
    site.faults = faults
    download(site.url, path, sha256=SHA256, wait=0)
    assert path.read_bytes() == CONTENT
    assert site.ranges == ranges


def test_without_a_sha256_a_part_is_not_trusted(site, path):
    part_of(path, b"of another file")
    download(site.url, path)
    assert path.read_bytes() == CONTENT
    assert site.ranges == [None]


# What goes wrong


def test_a_broken_connection_is_taken_up_again(site, path):
    site.faults = ["breaks off", "503", "breaks off"]
    download(site.url, path, sha256=SHA256, wait=0)
    assert path.read_bytes() == CONTENT
    assert len(site.ranges) == 4
    assert site.ranges[:2] == [None, f"bytes={HALF}-"]


def test_a_reply_that_stays_too_short_is_told_and_kept(site, path):
    site.faults = ["breaks off"] * 2
    message = fails(site.url, path, tries=2)
    have = HALF + (len(CONTENT) - HALF) // 2
    for word in (site.url, "2 tries", f"{have:,} of {len(CONTENT):,} bytes", str(path) + ".part"):
        assert word in message
    assert message.endswith(f"place it at {path}")
    download(site.url, path, sha256=SHA256)
    assert path.read_bytes() == CONTENT
    assert site.ranges[-1] == f"bytes={have}-"


def test_damaged_bytes_are_removed_and_both_sums_told(site, path):
    site.faults = ["damages a byte"]
    message = fails(site.url, path)
    for word in (site.url, SHA256, hashlib.sha256(CONTENT[:-1] + b"!").hexdigest(), str(path)):
        assert word in message
    assert list(path.parent.iterdir()) == []


def test_a_part_of_another_file_does_not_get_in(site, path):
    part_of(path, b"?" * HALF)
    assert "sha256 expected" in fails(site.url, path)
    download(site.url, path, sha256=SHA256)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("status", ["404", "403"])
def test_an_address_that_the_server_refuses_is_asked_once(site, path, status):
    site.faults = [status]
    message = fails(site.url, path)
    assert f"the server answers {status}" in message
    assert site.url in message
    assert site.ranges == [None]


def test_no_server_there_is_told(site, path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    message = fails(f"http://127.0.0.1:{port}/load.csv", path, tries=2)
    assert "cannot be reached" in message
    assert "refused" in message


def test_a_silent_server_is_told(site, path):
    site.faults = ["stops"] * 2
    assert "timed out" in fails(site.url, path, tries=2, timeout=0.2)


@pytest.mark.parametrize(
    "url", ["ftp://example.org/x", "load.csv", "", "http://[", "data:,x", "http://a b/", "http://"]
)
def test_what_is_no_url_of_a_file_is_refused(path, url):
    assert repr(url) in fails(url, path, tries=1) or url in fails(url, path, tries=1)


def test_a_missing_file_url_is_told(tmp_path, path):
    assert "1 tries" in fails((tmp_path / "none").as_uri(), path)


def test_a_folder_that_cannot_be_made_is_told(site, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot be written"):
        download(site.url, tmp_path / "file" / "load.csv")


# Several processes


CALL = """
import sys
from pathlib import Path
from tsformer.data.download import download
print("ready", flush=True)
download(sys.argv[1], Path(sys.argv[2]), sha256=sys.argv[3])
"""


def start(site: Site, path: Path) -> subprocess.Popen:
    return start_python(CALL, site.url, str(path), SHA256)


def wait_for(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_of_several_processes_one_downloads_and_all_end_well(site, path):
    site.faults = ["stops"]
    processes = [start(site, path) for _ in range(3)]
    wait_for(lambda: site.ranges)
    time.sleep(0.2)  # the others have come to the lock by now
    site.gate.set()
    for process in processes:
        _, errors = process.communicate(timeout=20)
        assert process.returncode == 0, errors
    assert path.read_bytes() == CONTENT
    assert site.ranges == [None]
    assert list(path.parent.iterdir()) == [path]


def test_a_waiting_process_takes_over_from_one_that_is_killed(site, path):
    site.faults = ["stops"]
    part = path.with_name(path.name + ".part")
    first = start(site, path)
    wait_for(lambda: part.exists() and part.stat().st_size > 0)
    second = start(site, path)
    time.sleep(0.2)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    _, errors = second.communicate(timeout=20)
    assert second.returncode == 0, errors
    assert path.read_bytes() == CONTENT
    assert len(site.ranges) == 2
    assert 0 < int(str(site.ranges[1]).removeprefix("bytes=").removesuffix("-")) <= HALF
    assert list(path.parent.iterdir()) == [path]


# Named datasets


def dataset_of(site: Site, **settings) -> DatasetConfig:
    settings = {"url": site.url, "sha256": SHA256} | settings
    return DatasetConfig(name="load", path="deep/load.csv", split=[0.7, 0.1, 0.2], **settings)


def test_a_missing_file_is_downloaded_once_and_read(site, tmp_path):
    folder = tmp_path / "data"
    dataset = dataset_of(site, freq="min")
    paths = PathsConfig(data=str(folder), download=True, runs="runs", run="run")
    table = load_table(dataset, paths)
    assert table.store.lengths.tolist() == [1440]
    assert find_file(dataset, str(folder)) == folder / "deep" / "load.csv"
    load_table(dataset, paths)
    assert site.ranges == [None]


def test_files_that_users_put_there_are_not_checked(site, tmp_path):
    file = tmp_path / "deep" / "load.csv"
    file.parent.mkdir()
    file.write_text("ds,y\n2024-01-01,1\n")
    assert find_file(dataset_of(site), str(tmp_path), allow_download=True) == file
    assert site.ranges == []


def test_without_leave_nothing_is_downloaded_and_the_command_is_told(site, tmp_path):
    with pytest.raises(DataError) as error:
        find_file(dataset_of(site, licence="CC BY 4.0"), str(tmp_path))
    for word in (
        site.url,
        "CC BY 4.0",
        str(tmp_path / "deep" / "load.csv"),
        "python scripts/fit.py dataset=load paths.download=true",
    ):
        assert word in str(error.value)
    assert site.ranges == []


def test_a_dataset_without_url_cannot_be_downloaded(site, tmp_path):
    with pytest.raises(DataError, match=r"there is no dataset\.url"):
        find_file(dataset_of(site, url=None), str(tmp_path), allow_download=True)


def test_the_settings_of_a_fit_lead_to_the_file(site, tmp_path, compose, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = compose(
        "dataset=custom",
        "dataset.path=load.csv",
        f"dataset.url={site.url}",
        f"dataset.sha256={SHA256}",
        "paths.download=true",
    )
    config = parse_fit(settings)
    path = find_file(config.dataset, config.paths.data, allow_download=config.paths.download)
    assert path == Path("datasets/load.csv")
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("digits", ["abc", "g" * 64, "0" * 65])
def test_a_sha256_has_64_hexadecimal_digits(digits):
    values = {"name": "x", "path": "x", "split": [1, 1, 1], "sha256": digits}
    with pytest.raises(ConfigError, match="64 hexadecimal digits"):
        parse(DatasetConfig, values)


NAMES = ("etth1", "etth2", "ettm1", "ettm2", "exchange", "illness", "weather", "ecl")


@pytest.mark.parametrize("name", [*NAMES, "electricity"])
def test_named_datasets_have_a_licence_a_sum_and_an_address(compose, repo, name):
    dataset = parse(DatasetConfig, compose(f"dataset={name}")["dataset"])
    assert dataset.licence
    assert dataset.sha256
    cards = "".join(card.read_text() for card in (repo / "datasets").glob("*/README.md"))
    assert dataset.sha256 in cards
    if name != "electricity":
        assert dataset.url is not None
        assert dataset.url.startswith("https://")
        assert dataset.url.endswith(Path(dataset.path).name)
        assert dataset.url.removesuffix(dataset.path) in cards


@pytest.mark.parametrize("name", NAMES)
def test_the_sums_are_those_of_the_files_that_results_were_made_with(compose, data_folder, name):
    dataset = parse(DatasetConfig, compose(f"dataset={name}")["dataset"])
    file = data_folder / dataset.path
    if not file.exists():
        pytest.skip(f"no {file}")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == dataset.sha256
