"""Where a run comes from: the command, the code, the machine and the data."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tsformer.data.store import BLOCK_ROWS, SeriesStore
from tsformer.data.writing import write_atomically
from tsformer.errors import DataError
from tsformer.places import PROVENANCE

_TREE = Path(__file__).resolve().parents[2]
_PACKAGES = "tsformer", "torch", "lightning", "numpy", "pandas"


def write_provenance(run: Path, store: SeriesStore) -> None:
    """Write run.json; a run that goes on keeps the one of its beginning.

    Raises:
        DataError: the run began with other data.
    """
    path = run / PROVENANCE
    if not path.exists():
        write_atomically(path, json.dumps(describe_run(store), indent=1) + "\n")
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))["data_sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged. Remove it to resume the run.") from error
    if before != hash_store(store):
        raise DataError(
            f"{run}: the table has changed since the run started, and its training cannot continue "
            "with other rows: start a new run, or restore the table."
        )


def describe_run(store: SeriesStore) -> dict[str, Any]:
    """Return where the run of this process comes from, as JSON can hold it.

    `command` may begin with a script's path; `git` is None unless tsformer lies in a checkout of
    its source and git is there, and `git.dirty` tells of changed files that the commit holds.
    """
    packages = {name: version(name) for name in _PACKAGES}
    return {
        "command": sys.argv,
        "folder": str(Path.cwd()),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": describe_checkout(_TREE),
        "versions": {"python": platform.python_version(), **packages},
        "platform": platform.platform(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
        "world_size": int(os.environ.get("WORLD_SIZE", 1)),
        "data_sha256": hash_store(store),
    }


def describe_checkout(tree: Path) -> dict[str, Any] | None:
    """Return commit and state of a source tree, or None if it is no checkout or git is missing."""
    if not (tree / ".git").exists():  # git would look further up, and find another project
        return None
    # In a hook, git's own variables would name another repository.
    environment = {name: x for name, x in os.environ.items() if not name.startswith("GIT_")}
    told = []
    for arguments in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        command = ["git", "--no-optional-locks", "-C", str(tree), *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, timeout=30, env=environment
            )
        except (OSError, subprocess.SubprocessError):
            return None
        told.append(done.stdout.strip())
    commit, changes = told
    return {"commit": commit, "dirty": bool(changes)}


def hash_store(store: SeriesStore) -> str:
    """Return the sha256 of a table's contents: ids, columns, stamps, values and covariates.

    It is of the table as it was taken, all parts of the split, whatever file or cache it came
    from; and changes with any value, and with the order of the series.
    """
    digest = hashlib.sha256()
    texts = {
        "ids": store.table_ids,
        "targets": store.targets,
        "freq": store.freq,
        "time_zone": store.time_zone,
        "categories": {name: list(texts) for name, texts in sorted(store.categories.items())},
    }
    digest.update(json.dumps(texts).encode())
    grid = store.grid.tz_localize(None).to_numpy().astype("datetime64[us]")
    arrays = {
        "grid": (grid, "<i8"),
        "starts": (store.starts, "<i8"),
        "offsets": (store.offsets, "<i8"),
        "centers": (store.centers, "<f8"),
        "target": (store.target, "<f4"),
        "covariate_base": (store.covariate_base, "<i8"),
        "covariates": (store.covariates, "<f8"),
        "static": (store.static, "<f8"),
        "weights": (np.empty(0) if store.weights is None else store.weights, "<f8"),
    }
    for name, (array, kind) in arrays.items():
        digest.update(f"{name}{array.shape}".encode())
        for begin in range(0, len(array), BLOCK_ROWS):  # of mapped rows no more need be in memory
            block = np.ascontiguousarray(array[begin : begin + BLOCK_ROWS].astype(kind, copy=False))
            digest.update(block.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
