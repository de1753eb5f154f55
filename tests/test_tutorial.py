"""docs/tutorial.md runs as it is written, block by block."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_each_block_runs_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    blocks = BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == ["python", "bash", "bash", "bash", "bash", "python"]
    for kind, code in blocks:
        command = ["bash", "-ec", code] if kind == "bash" else [sys.executable, "-c", code]
        result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert result.returncode == 0, f"{code}\n{result.stdout}\n{result.stderr}"
        assert "Warning" not in result.stderr, result.stderr
    for run in ("first", "evaluation"):
        assert (tmp_path / "runs" / "sales" / run / "report.html").is_file()
    assert (tmp_path / "forecast.png").is_file()
