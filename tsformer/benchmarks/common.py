"""Timing things against each other, tables of what came out, and where it came out."""

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

from tsformer.errors import ConfigError
from tsformer.places import CONF
from tsformer.settings import tell_unknown


def with_defaults(settings: Sequence[str], **defaults: str) -> dict[str, str]:
    """Return `key=value` settings over their defaults.

    Raises:
        ConfigError: there is no such setting.
    """
    given = {key: value for key, _, value in (setting.partition("=") for setting in settings)}
    if unknown := given.keys() - defaults.keys():
        raise ConfigError(tell_unknown(min(unknown), defaults))
    return defaults | given


def count(name: str, value: str) -> int:
    """Return the number from 1 up that a setting gives.

    Raises:
        ConfigError: it gives none.
    """
    try:
        number = int(value)
    except ValueError as error:
        raise ConfigError(f"{name}={value}: give a whole number.") from error
    if number < 1:
        raise ConfigError(f"{name}={value}: give a number from 1 up.")
    return number


def interleaved(
    *actions: Callable[[], Any], runs: int = 15, repeats: int = 10, warmups: int = 2
) -> list[float]:
    """Return the median seconds of each action, run in turn so that noise meets all alike."""
    times: list[list[float]] = [[] for _ in actions]
    for run in range(warmups + runs):
        for action, own in zip(actions, times, strict=True):
            began = time.perf_counter()
            for _ in range(repeats):
                action()
            if run >= warmups:
                own.append((time.perf_counter() - began) / repeats)
    return [statistics.median(own) for own in times]


def new_table(title: str, *columns: str) -> Table:
    """Return an empty table of figures."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="right")
    return table


def same_imports() -> dict[str, str]:
    """Return the environment of a process that can import all that this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def machine() -> str:
    """Return processor, cores, and version and threads of torch, in words."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    threads = torch.get_num_threads()
    return f"{name}, {os.cpu_count()} cores, torch {torch.__version__} with {threads} thread(s)"


def commit() -> str:
    """Return the commit of this source tree, marked if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    found = subprocess.run(command, cwd=CONF, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"
