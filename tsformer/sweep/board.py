"""What a sweep leaves beside its run folders: sweep.csv, a leaderboard, pictures, best/."""

import csv
import io
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from rich import box
from rich.table import Table

from tsformer.data.writing import write_atomically, write_picture
from tsformer.sweep.result import Record
from tsformer.sweep.space import Dimension

_MODEL = "model"  # of a run folder


def winner(records: Sequence[Record]) -> Record | None:
    """Return the completed trial with the least objective, the first of several, or None."""
    complete = [record for record in records if record.result.state == "complete"]
    return min(complete, key=objective, default=None)


def write_csv(records: Sequence[Record], keys: Sequence[str], folder: Path) -> None:
    """Write sweep.csv, a row a trial, in the order of their numbers.

    Args:
        records: trials that have ended.
        keys: the swept settings, which are columns.
        folder: of the sweep.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["number", "state", "objective", *keys, "seconds", "folder", "message"])
    for record in sorted(records, key=lambda record: record.number):
        result = record.result
        values = (record.values.get(key) for key in keys)
        ended = (result.seconds, os.path.relpath(record.folder, folder), result.message)
        writer.writerow([record.number, result.state, result.objective, *values, *ended])
    write_atomically(folder / "sweep.csv", text.getvalue())


def point_to_best(records: Sequence[Record], folder: Path) -> None:
    """Make `best` the model of the winner: a link, or a copy where there are no links."""
    best = winner(records)
    if best is None:
        return
    link, partial = folder / "best", folder / f".best-{uuid4().hex[:8]}"
    model = best.folder / _MODEL
    try:
        partial.symlink_to(os.path.relpath(model, folder), target_is_directory=True)
        partial.replace(link)
    except OSError:
        partial.unlink(missing_ok=True)
        shutil.copytree(model, partial)
        shutil.rmtree(link, ignore_errors=True)
        partial.rename(link)


def leaderboard(records: Sequence[Record], keys: Sequence[str], monitor: str) -> Table:
    """Return the ten best trials, and how many ended how, as a table.

    Args:
        records: trials that have ended.
        keys: the swept settings.
        monitor: what the objective is.
    """
    counts = Counter(record.result.state for record in records)
    ended = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    table = Table(title=f"Sweep: {len(records)} trials ({ended})", box=box.SIMPLE_HEAD)
    table.add_column("trial", justify="right")
    table.add_column(monitor, justify="right")
    for key in keys:
        table.add_column(key, justify="right", overflow="fold")
    table.add_column("seconds", justify="right")
    complete = [record for record in records if record.result.state == "complete"]
    for record in sorted(complete, key=objective)[:10]:
        values = (_short(record.values.get(key, "")) for key in keys)
        seconds = f"{record.result.seconds:.0f}" if record.result.seconds is not None else ""
        table.add_row(str(record.number), f"{objective(record):.4g}", *values, seconds)
    return table


def draw(
    records: Sequence[Record],
    space: Mapping[str, Dimension],
    importances: Mapping[str, float],
    monitor: str,
    folder: Path,
) -> None:
    """Draw parallel_coordinates.png, and importances.png where they are known.

    Args:
        records: trials that have ended; those that failed are left out.
        space: what was searched.
        importances: of the settings, summing to 1; none: unknown.
        monitor: what the objective is.
        folder: of the sweep.
    """
    from tsformer.sweep.pictures import draw_importances, draw_parallel  # matplotlib takes time

    drawn = [record for record in records if record.result.objective is not None]
    pictures = {"parallel_coordinates.png": draw_parallel(drawn, space, monitor)}
    if importances:
        pictures["importances.png"] = draw_importances(importances, monitor)
    for name, figure in pictures.items():
        write_picture(figure, folder / name)


def objective(record: Record) -> float:
    """Return the objective of a trial that has one."""
    assert record.result.objective is not None
    return record.result.objective


def _short(value: str) -> str:
    """Return a number with four digits, anything else as it is."""
    try:
        return value if value.lstrip("+-").isdigit() else f"{float(value):.4g}"
    except ValueError:
        return value
