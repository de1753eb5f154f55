"""Let a shell complete commands, groups and settings: `eval "$(tsformer completion bash)"`."""

import sys
from pathlib import Path

from tsformer.commands import COMMANDS


def run() -> None:
    """Print the script for the shell that the argument names; it asks Hydra for settings."""
    scripts = {path.suffix[1:]: path for path in Path(__file__).with_name("completions").iterdir()}
    shell = sys.argv[1] if len(sys.argv) == 2 else ""
    if shell not in scripts:
        print(f"error: give a shell: {', '.join(sorted(scripts))}", file=sys.stderr)
        sys.exit(2)
    print(scripts[shell].read_text(encoding="utf-8").replace("COMMANDS", " ".join(COMMANDS)))
