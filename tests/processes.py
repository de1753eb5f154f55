"""Real processes, for tests of what happens between several."""

import subprocess
import sys
from pathlib import Path

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
