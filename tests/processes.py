"""Real processes, for tests of what happens between several."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import REPO


def run_script(name: str, folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    """Run one of `scripts/` in a folder, as users do."""
    command = [sys.executable, str(REPO / "scripts" / f"{name}.py"), *overrides]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def start_python(code: str, *arguments: str) -> subprocess.Popen:
    """Start a process that runs code, and wait until it prints "ready"."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes, which is as if the disk were full."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
