"""How far a batch forecast is: a bar in a terminal, lines elsewhere."""

import time
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tsformer.batch.part import Done

_SECONDS = 60  # between two lines


def following(
    written: Iterable[Done], num_parts: int, num_known: int, shown: bool | None
) -> Iterator[Done]:
    """Yield parts as they are written, and show their number, series a second, and time left.

    Args:
        written: the parts.
        num_parts: in all.
        num_known: of them, written before.
        shown: whether to show a bar; None: in a terminal, and a line a minute elsewhere.
    """
    console = Console(stderr=True)
    if shown is False:
        yield from written
    elif shown or console.is_terminal:
        yield from _with_bar(written, num_parts, num_known, console)
    else:
        yield from _with_lines(written, num_parts, num_known, console)


def _with_lines(
    written: Iterable[Done], num_parts: int, num_known: int, console: Console
) -> Iterator[Done]:
    if num_known:
        console.print(f"{num_known:,} of {num_parts:,} parts were forecast before")
    told = time.monotonic()
    for number, done in enumerate(written, num_known + 1):
        if time.monotonic() - told >= _SECONDS:
            told = time.monotonic()
            console.print(f"{number:,} of {num_parts:,} parts")
        yield done


def _with_bar(
    written: Iterable[Done], num_parts: int, num_known: int, console: Console
) -> Iterator[Done]:
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
