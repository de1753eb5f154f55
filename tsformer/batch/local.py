"""The local engine: parts are forecast by this process, or by several on this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeAlias, cast

import torch

from tsformer.batch.part import Done, Job, forecast_part, part_name
from tsformer.errors import BatchError, TsformerError
from tsformer.forecaster import Forecaster

Written: TypeAlias = Generator[Done, None, None]


def forecast_local(job: Job, numbers: Sequence[int], num_workers: int) -> Written:
    """Forecast parts, and yield each that is written.

    Args:
        job: what to forecast.
        numbers: of the parts.
        num_workers: processes; with 0 and 1 this one.

    Raises:
        TsformerError: a part cannot be forecast.
        BatchError: a process died.
        OSError: a part cannot be written.
    """
    if num_workers > 1 and len(numbers) > 1:
        yield from _forecast_by_workers(job, numbers, min(num_workers, len(numbers)))
    elif numbers:
        forecaster = Forecaster.load(job.model, job.device)
        for number in numbers:
            yield forecast_part(forecaster, job, number)


def _forecast_by_workers(job: Job, numbers: Sequence[int], num_workers: int) -> Written:
    context = multiprocessing.get_context("spawn")
    num_threads = max(torch.get_num_threads() // num_workers, 1)
    waiting = list(reversed(numbers))
    workers: dict[Connection, BaseProcess] = {}
    busy: dict[Connection, int] = {}

    def hand_out(connection: Connection) -> None:
        busy[connection] = waiting.pop()
        with suppress(BrokenPipeError):  # of a dead worker; to receive from it is an error too
            connection.send(busy[connection])

    try:
        for _ in range(num_workers):
            connection, theirs = context.Pipe()
            worker = context.Process(target=_work, args=(theirs, job, num_threads), daemon=True)
            worker.start()
            theirs.close()  # so that the end of the worker ends the connection
            workers[connection] = worker
            hand_out(connection)
        while busy:
            for connection in cast(list[Connection], wait(list(busy))):
                number = busy.pop(connection)
                try:
                    answer = connection.recv()
                except (EOFError, ConnectionResetError) as error:
                    raise _death(workers[connection], number) from error
                if isinstance(answer, Exception):
                    raise answer
                if waiting:
                    hand_out(connection)
                yield answer
    finally:
        for process in workers.values():
            process.terminate()
        for process in workers.values():
            process.join()


def _work(connection: Connection, job: Job, num_threads: int) -> None:
    """Forecast the parts whose numbers come, until this process is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(num_threads)
    forecaster = Forecaster.load(job.model, job.device)
    while True:
        number = connection.recv()
        try:
            answer: Done | Exception = forecast_part(forecaster, job, number)
        except (TsformerError, OSError) as error:
            answer = error
        connection.send(answer)


def _end_with_parent() -> None:
    """End this process as soon as its parent is dead: it must not write beside a next forecast."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _death(worker: BaseProcess, number: int) -> BatchError:
    worker.join()
    code = worker.exitcode or 0
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    reason = ", perhaps because memory ran out" if code == -9 else ""
    return BatchError(
        f"{part_name(number)}: the process that forecast it {how}{reason}. Finished parts stay: "
        "run the same command again to continue. If memory is short, lower num_workers or "
        "rows_per_part."
    )
