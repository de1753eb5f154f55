"""Real processes, for tests of what happens between several."""

import subprocess
import sys


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
