"""How trials ended: `trial.json`, which each leaves in its run folder, and what is read of it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tsformer.data.writing import write_atomically
from tsformer.errors import TsformerError
from tsformer.sweep.space import Values

_FILE = "trial.json"


@dataclass(frozen=True)
class Result:
    """How a trial ended.

    Attributes:
        state: how.
        objective: the best validation error; None where it failed.
        seconds: that it took.
        message: why it failed.
    """

    state: Literal["complete", "pruned", "failed"]
    objective: float | None = None
    seconds: float | None = None
    message: str = ""


@dataclass(frozen=True)
class Record:
    """A trial that has ended.

    Attributes:
        number: of the trial.
        values: of the swept settings.
        folder: its run folder.
        result: how it ended.
    """

    number: int
    values: Values
    folder: Path
    result: Result


def read_result(folder: Path) -> Result | None:
    """Return how the trial of a run folder ended, or None if it has not."""
    try:
        return Result(**json.loads((folder / _FILE).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):  # not there, or damaged
        return None


def write_result(folder: Path, result: Result) -> None:
    """Keep how the trial of a run folder ended."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / _FILE, json.dumps(asdict(result), indent=1))


def forget_result(folder: Path) -> None:
    """Let a trial be run again."""
    (folder / _FILE).unlink(missing_ok=True)


def told(error: BaseException) -> str:
    """Return what an error says, with its type if the user did not cause it."""
    return str(error) if isinstance(error, TsformerError) else f"{type(error).__name__}: {error}"
