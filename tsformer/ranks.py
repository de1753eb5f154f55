"""The processes of one training: those that torchrun or SLURM started, or ones that we start.

Lightning's own launcher runs the command line again for each rank, with its sweep and its run
folder. So ranks are started here, with the settings as plain values, and Lightning joins them.
"""

import builtins
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any, Literal, NoReturn, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist

from tsformer import errors
from tsformer.errors import RankError, TsformerError

T = TypeVar("T")
log = logging.getLogger(__name__)

# Others wait for the first rank while it downloads, reads and caches the data; to find each other
# takes less.
_PATIENCE, _MEETING = timedelta(hours=2), timedelta(minutes=10)
# What ends a fit, after a step and with a checkpoint: Ctrl+C, kill, and what SLURM is told to
# send before a job's time is up (--signal=USR1@120).
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


def gets_signals() -> bool:
    """Tell whether this thread may take signals: the main one alone does."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def signals_given_back() -> Iterator[None]:
    """Restore the handlers of `STOP_SIGNALS` at the end, whoever has taken them in between."""
    numbers = STOP_SIGNALS if gets_signals() else ()
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Interrupted(SystemExit):
    """A signal has ended a training; the exit code is 128 and its number, as in a shell."""

    def __init__(self, number: int) -> None:
        """Remember the signal's number."""
        super().__init__(128 + number)
        self.number = number


@dataclass(frozen=True)
class World:
    """This process among the others.

    Attributes:
        rank: its number, from 0.
        size: how many there are.
        local_size: how many of them are on this machine.
    """

    rank: int = 0
    size: int = 1
    local_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this one writes the run folder."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all the others."""
        if self.size > 1:
            dist.barrier()

    def broadcast(self, value: T) -> T:
        """Return the first rank's value."""
        if self.size == 1:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0)
        return values[0]

    def largest(self, number: int) -> int:
        """Return the largest of all ranks' numbers."""
        if self.size == 1:
            return number
        device = "cuda" if dist.get_backend() == "nccl" else "cpu"
        values = torch.tensor(number, device=device)
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return int(values)


ALONE = World()


def find_world() -> World | None:
    """Return the ranks that torchrun or SLURM's srun started; None where this process is alone."""
    if "RANK" not in os.environ and int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        os.environ.update(_ranks_of_slurm(os.environ))
    size = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if size == 1:
        return None
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    return World(int(os.environ["RANK"]), size, local_size)


def uses_cuda(accelerator: str) -> bool:
    """Tell whether a training of this `trainer.accelerator` is on GPUs that are there."""
    return device_kind(accelerator) == "cuda" and torch.cuda.is_available()


def device_kind(accelerator: str) -> Literal["cpu", "cuda"]:
    """Return what a training of this `trainer.accelerator` is on.

    Lightning would take a Mac's GPU too, which has no double precision to add up errors in.
    """
    if accelerator == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return "cpu" if accelerator == "cpu" else "cuda"


def is_restart() -> bool:
    """Tell whether torchrun or SLURM starts this process's job once more."""
    counts = (
        os.environ.get(name) for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")
    )
    return any(int(count or 0) > 0 for count in counts)


def _ranks_of_slurm(step: os._Environ[str]) -> dict[str, str]:
    """Return torchrun's variables of a SLURM step; all ranks find the same address and port."""
    nodes = step.get("SLURM_STEP_NODELIST") or step["SLURM_NODELIST"]
    first = re.sub(r"\[(\d+).*?\]", r"\1", nodes).split(",")[0]  # of node[03-07,9],other
    local = re.match(r"\d+", step.get("SLURM_STEP_TASKS_PER_NODE", "1"))  # of 4(x2),1
    return {
        "RANK": step["SLURM_PROCID"],
        "LOCAL_RANK": step["SLURM_LOCALID"],
        "GROUP_RANK": step["SLURM_NODEID"],
        "WORLD_SIZE": step["SLURM_STEP_NUM_TASKS"],
        "LOCAL_WORLD_SIZE": local.group() if local else "1",
        "MASTER_ADDR": step.get("MASTER_ADDR", first),
        "MASTER_PORT": step.get("MASTER_PORT", str(15_000 + int(step["SLURM_JOB_ID"]) % 10_000)),
    }


@contextmanager
def joined_ranks(world: World, *, cuda: bool) -> Iterator[None]:
    """Join the other ranks; all but the first are silent.

    Args:
        world: of this process; one that is alone joins nothing.
        cuda: each rank has a GPU of its own.
    """
    if world.size == 1:
        yield
        return
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    elif "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max((os.cpu_count() or 1) // world.local_size, 1))
    if not world.is_first:
        logging.disable(logging.WARNING)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=_meeting_place(world),
        rank=world.rank,
        world_size=world.size,
        timeout=_PATIENCE,
    )
    yield
    dist.destroy_process_group()  # not after an error: it would wait for the others


def _meeting_place(world: World) -> Any:
    """Return the store where ranks find each other.

    The launcher's is the same for all restarts, and still holds the addresses of ranks that died.
    """
    launched = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(  # type: ignore[attr-defined]
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world.size,
        is_master=world.is_first and not launched,
        timeout=_MEETING,
    )
    store.set_timeout(_PATIENCE)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"start {attempt}", store)  # type: ignore[attr-defined]


def start_ranks(
    task: Callable[..., T], arguments: Sequence[Any], *, num_ranks: int, max_restarts: int
) -> T:
    """Run a task in several processes of this machine; return what the first one returns.

    A rank that dies ends the others. Torch's elastic launcher starts and watches them.

    Args:
        task: a function of a module, in each rank.
        arguments: of the task; they are pickled.
        num_ranks: processes.
        max_restarts: how often all ranks start anew when one has failed.

    Raises:
        TsformerError: that of the rank that failed first, or what it died of.
        Interrupted: a signal ended the ranks.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=max_restarts,
        start_method="spawn",
        monitor_interval=0.1,
    )

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SignalException("stopped", signal.Signals(number))

    # It would print the tracebacks of all that the death of one has ended.
    for name in logging.root.manager.loggerDict:
        # Each has a level of its own.
        if name.startswith(("torch.distributed.elastic", "torch.multiprocessing")):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    root = logging.getLogger()
    files = [h.baseFilename for h in root.handlers if isinstance(h, logging.FileHandler)]
    try:
        with signals_given_back():
            if gets_signals():
                signal.signal(signal.SIGUSR1, stop)  # the launcher minds the others
            start = elastic_launch(config, _run_rank)
            results = start(task, tuple(arguments), files, root.level, os.getpid())
    except ChildFailedError as error:
        raise _error_of_rank(error) from None
    except SignalException as stopped:
        raise Interrupted(stopped.sigval) from None
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT) from None
    return results[0]


def _run_rank(
    task: Callable[..., T],
    arguments: Sequence[Any],
    log_files: Sequence[str],
    level: int,
    launcher: int,
) -> T:
    """Run the task with the log of the process that started the rank, as long as that lives."""
    # The system sends it when that process dies; Python would wait for a library that waits.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if os.getppid() != launcher:  # it died before the system was asked
        raise SystemExit(1)
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout)]
    handlers += [logging.FileHandler(file) for file in log_files]
    logging.basicConfig(format="%(message)s", level=level, handlers=handlers, force=True)
    return task(*arguments)


def _error_of_rank(error: Any) -> BaseException:
    """Return what the rank that failed first ended with; print the traceback of a bug."""
    rank, failure = error.get_first_failure()
    if failure.exitcode - 128 in STOP_SIGNALS:
        return Interrupted(failure.exitcode - 128)
    told = failure.message if isinstance(failure.message, dict) else {"message": failure.message}
    name, _, message = told["message"].partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, TsformerError):
        return kind(message)
    if isinstance(kind := getattr(builtins, name, None), type) and issubclass(kind, OSError):
        return OSError(message)  # with the file's name, such as of a full disk
    if "extraInfo" in told:
        print(told["extraInfo"]["py_callstack"], file=sys.stderr)
    return RankError(f"process {rank} of the training failed: {told['message']}")
