"""The Hugging Face Hub, as a server on this machine or as an API that notes what it is asked."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tests.forecasters import make_forecaster, make_long
from tsformer import Forecaster
from tsformer.errors import ConfigError, ModelFolderError
from tsformer.model.folder import FILES

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """The repository org/model of a hub, in a folder; notes what is asked for."""

    folder: Path
    asked: list[str]

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = self.path.split("?")[0]
        self.asked.append(path)
        files = {file.name: file.read_bytes() for file in self.folder.iterdir()}
        name = path.rsplit("/", 1)[-1]
        if path in (f"/api/models/org/model/revision/{name}" for name in ("main", "v1")):
            body = json.dumps({"id": "org/model", "sha": COMMIT, "siblings": []}).encode()
        elif path == f"/api/models/org/model/tree/{COMMIT}":
            entries = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(data),
                    "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest(),
                }
                for name, data in files.items()
            ]
            body = json.dumps(entries).encode()
        elif path == f"/org/model/resolve/{COMMIT}/{name}" and name in files:
            body = files[name]
        else:
            is_known = path.startswith(("/api/models/org/model/", "/org/model/"))
            kind = "RevisionNotFound" if is_known else "RepoNotFound"
            self.send_response(404)
            self.send_header("X-Error-Code", kind)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        digest = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        self.send_header("ETag", f'"{digest}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, type[Hub]]]:
    """Return the address of a hub with a model that came with other files."""
    pytest.importorskip("huggingface_hub")
    make_forecaster().save(tmp_path / "repository")
    (tmp_path / "repository" / "pytorch_model.bin").write_bytes(b"a pickle")
    (tmp_path / "repository" / "modeling.py").write_text("raise SystemExit('executed')")
    handler = type("Handler", (Hub,), {"folder": tmp_path / "repository", "asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()


def run(code: str, address: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process whose hub is at an address and whose cache is in a folder."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HF_")} | {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home / "cache"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run(
        [sys.executable, "-c", f"from tsformer import Forecaster\n{code}"],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
    )


PREDICT = "Forecaster.from_pretrained({0}).predict('history.csv').to_csv('forecast.csv')"


def test_a_model_is_downloaded_and_nothing_else(hub: tuple[str, type[Hub]], tmp_path: Path) -> None:
    address, handler = hub
    make_long({"a": 30}).to_csv(tmp_path / "history.csv", index=False)
    expected = make_forecaster().predict(tmp_path / "history.csv")["tsformer"]
    for arguments in ("'org/model'", "'org/model', revision='v1'"):
        result = run(PREDICT.format(arguments), address, tmp_path)
        assert result.returncode == 0, result.stderr
        found = pd.read_csv(tmp_path / "forecast.csv")["tsformer"]
        pd.testing.assert_series_equal(found, expected, rtol=1e-5)
    fetched = {path.rsplit("/", 1)[-1] for path in handler.asked if "/resolve/" in path}
    assert fetched == set(FILES)
    cached = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert not cached & {"pytorch_model.bin", "modeling.py"}
    # The cache serves a hub that cannot be reached.
    result = run(PREDICT.format("'org/model'"), "http://127.0.0.1:9", tmp_path)
    assert result.returncode == 0, result.stderr


def test_what_is_not_there_is_named(hub: tuple[str, type[Hub]], tmp_path: Path) -> None:
    names = ["org/nothing", "org/model", "../../etc/none", "no such folder", "a/b/c"]
    code = f"""
from tsformer.errors import ModelFolderError
for name in {names}:
    try:
        Forecaster.from_pretrained(name, revision="v9")
    except ModelFolderError as error:
        print(error)
"""
    result = run(code, hub[0], tmp_path)
    for name, line in zip(names, result.stdout.splitlines(), strict=True):
        expected = f"{name}: neither a folder here nor a repository that can be downloaded at 'v9'"
        assert line.startswith(expected)
        assert len(line) < 600


def test_a_hostile_repository_is_refused(hub: tuple[str, type[Hub]], tmp_path: Path) -> None:
    address, handler = hub
    (handler.folder / "config.json").write_text('{"_target_": "os.system"}')
    result = run("Forecaster.from_pretrained('org/model')", address, tmp_path)
    assert "ModelFolderError" in result.stderr
    assert "config.json: damaged" in result.stderr


def test_a_local_folder_needs_no_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    make_forecaster().save(tmp_path / "model")
    assert Forecaster.from_pretrained(tmp_path / "model").horizon == make_forecaster().horizon


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (
        lambda: Forecaster.from_pretrained("org/model"),
        lambda: make_forecaster().push_to_hub("org/model"),
    ):
        with pytest.raises(ConfigError, match=r"pip install 'tsformer\[hub\]'"):
            call()


def test_a_push_uploads_the_three_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded: dict[str, Any] = {}

    class Api:
        def __init__(self, **_: Any) -> None: ...

        def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> None:
            uploaded.update(created=name, private=private, exist_ok=exist_ok)

        def upload_folder(self, *, folder_path: Path, **rest: Any) -> SimpleNamespace:
            uploaded.update(rest, files={x.name: x.read_bytes() for x in folder_path.iterdir()})
            return SimpleNamespace(commit_url="https://hub/org/model/commit/1")

    library = SimpleNamespace(HfApi=Api)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    forecaster = make_forecaster()
    forecaster.card = "Mine."
    address = forecaster.push_to_hub("org/model", private=True, revision="v1", message="New")
    assert address == "https://hub/org/model/commit/1"
    files = uploaded.pop("files")
    assert uploaded == {
        "created": "org/model",
        "private": True,
        "exist_ok": True,
        "repo_id": "org/model",
        "revision": "v1",
        "commit_message": "New",
        "allow_patterns": list(FILES),
    }
    assert files["README.md"] == b"Mine."
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    Forecaster.load(tmp_path)


def test_a_push_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    class Api:
        def __init__(self, **_: Any) -> None: ...

        def create_repo(self, *_: Any, **__: Any) -> None:
            raise OSError("401 Unauthorized\nand much more")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=Api))
    message = r"^org/model: the upload failed \(401 Unauthorized\)\.$"
    with pytest.raises(ModelFolderError, match=message):
        make_forecaster().push_to_hub("org/model")


def test_the_real_api_takes_what_a_push_gives() -> None:
    import inspect

    hub = pytest.importorskip("huggingface_hub")
    create = inspect.signature(hub.HfApi.create_repo).parameters
    upload = inspect.signature(hub.HfApi.upload_folder).parameters
    assert {"repo_id", "private", "exist_ok"} <= set(create)
    assert {"repo_id", "folder_path", "revision", "commit_message", "allow_patterns"} <= set(upload)
