"""Where things lie: configs and embedded data, and the files of a run folder."""

import os
from pathlib import Path

# Configs and data are in the source tree, or in the installed package.
_PACKAGE = Path(__file__).resolve().parent
SOURCE = _PACKAGE.parent if (_PACKAGE.parent / "conf" / "fit.yaml").is_file() else None
CONF = (SOURCE or _PACKAGE) / "conf"
DATASETS = (SOURCE or _PACKAGE) / "datasets"

# Of a run folder.
SETTINGS, METRICS, PROVENANCE = "config.yaml", "metrics.json", "run.json"
REPORT, CHECKPOINTS = "report.html", "checkpoints"


def expand(path: str | Path) -> Path:
    """Return a path with the home folder for `~` or `~user`; others, as `~old.csv`, stay."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path's own refuses the others


def command(name: str) -> str:
    """Return how a command is called here, such as `python scripts/fit.py`."""
    return f"tsformer {name}" if SOURCE is None else f"python scripts/{name}.py"
