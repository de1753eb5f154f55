"""The bar that shows how far a batch forecast is."""

import time
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tsformer.batch.part import Done


def following(
    written: Iterable[Done], num_parts: int, num_known: int, shown: bool | None
) -> Iterator[Done]:
    """Yield parts as they are written, and show their number, series a second, and time left.

    Args:
        written: the parts.
        num_parts: in all.
        num_known: of them, written before.
        shown: None: in a terminal.
    """
    console = Console(stderr=True)
    if not (console.is_terminal if shown is None else shown):
        yield from written
        return
    columns = (
        TextColumn("parts"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    began, series, errors = time.perf_counter(), 0, 0
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=num_parts, completed=num_known, speed="")
        for done in written:
            series, errors = series + done.series, errors + len(done.errors)
            speed = f"{series / (time.perf_counter() - began):,.0f} series/s"
            if errors:
                speed += f", {errors:,} errors"
            progress.update(task, advance=1, speed=speed)
            yield done
