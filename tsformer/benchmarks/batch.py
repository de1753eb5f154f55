"""Batch forecasts: how fast any number of series is forecast, in how much memory."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from tsformer.benchmarks.common import count, new_table, same_imports, with_defaults
from tsformer.benchmarks.speed import random_forecaster
from tsformer.errors import ConfigError

CONTEXT_LENGTH, HORIZON = 168, 24
SERIES_PER_FILE, SERIES_PER_GROUP, SERIES_IN_MEMORY = 50_000, 1_000, 5_000


def measure_batch(settings: Sequence[str]) -> Table:
    """Time and weigh forecasts of a folder of Parquet files, each in processes of its own.

    Args:
        settings: `series=1000000`, `steps=200`, and `ways=local,local-2,ray-1`, engines and
            their numbers of workers.
    """
    given = with_defaults(settings, series="10_000", steps="200", ways="local,local-2")
    num_series, num_steps = (count(name, given[name]) for name in ("series", "steps"))
    ways = given["ways"].split(",")
    if strange := [way for way in ways if not re.fullmatch(r"(local|ray)(-\d+)?", way)]:
        raise ConfigError(f"ways={strange[0]}: give local, local-2, ray-1 and the like.")
    table = new_table(
        f"{num_series:,} series of {num_steps} steps, {HORIZON} forecast",
        "s",
        "CPU s",
        "series/s",
        "series/CPU s",
        "peak MB",
    )
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        forecaster = random_forecaster(CONTEXT_LENGTH, HORIZON, patch_len=24)
        forecaster.save(home / "model")
        write_series(home / "in", num_series, num_steps)
        frame = read_first(home / "in", min(num_series, SERIES_IN_MEMORY), num_steps)
        forecaster.predict(frame)
        began, used = time.perf_counter(), time.process_time()
        forecaster.predict(frame)
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        add_row(table, "predict, in memory", min(num_series, SERIES_IN_MEMORY), seconds, cpu, 0)
        for way in ways:
            engine, _, workers = way.partition("-")
            add_row(table, way, num_series, *forecast_files(home, way, engine, workers or "0"))
    return table


def add_row(
    table: Table, name: str, num_series: int, seconds: float, cpu: float, peak: float
) -> None:
    """Add what was measured."""
    speeds = (f"{num_series / seconds:,.0f}", f"{num_series / cpu:,.0f}")
    table.add_row(name, f"{seconds:.1f}", f"{cpu:.1f}", *speeds, f"{peak:,.0f}" if peak else "")


def write_series(folder: Path, num_series: int, num_steps: int) -> None:
    """Write hourly series of noise, one below the other, to files of 50,000 series."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    stamps = pa.array(pd.date_range("2024-01-01", periods=num_steps, freq="h").as_unit("us"))
    schema = pa.schema([("unique_id", pa.string()), ("ds", stamps.type), ("y", pa.float32())])
    for first in range(0, num_series, SERIES_PER_FILE):
        last = min(first + SERIES_PER_FILE, num_series)
        with pq.ParquetWriter(folder / f"{first // SERIES_PER_FILE:05d}.parquet", schema) as writer:
            for begin in range(first, last, SERIES_PER_GROUP):
                ids = [f"series-{i:07d}" for i in range(begin, min(begin + SERIES_PER_GROUP, last))]
                columns = [
                    pa.array(np.repeat(ids, num_steps)),
                    pa.concat_arrays([stamps] * len(ids)),
                    pa.array(rng.normal(size=len(ids) * num_steps).astype(np.float32)),
                ]
                writer.write_table(pa.table(columns, schema=schema))


def read_first(folder: Path, num_series: int, num_steps: int) -> pd.DataFrame:
    """Return the first series as a frame."""
    with pq.ParquetFile(min(folder.iterdir())) as file:
        table = file.read_row_groups(range(-(-num_series // SERIES_PER_GROUP)))
    return table.slice(0, num_series * num_steps).to_pandas()


def forecast_files(home: Path, way: str, engine: str, workers: str) -> tuple[float, float, float]:
    """Run the command; return its seconds, from start to end, those of processors, and the most MB.

    The seconds of processors do not know of processes that are not waited for, as Ray's.
    """
    settings = {
        "model": home / "model",
        "input": home / "in",
        "output": home / f"out-{way}",
        "engine": engine,
        "num_workers": workers,
    }
    arguments = [f"{key}={value}" for key, value in settings.items()]
    command = [sys.executable, "-m", "tsformer", "forecast", *arguments]
    began, peak = time.perf_counter(), 0.0
    before = os.times()
    with subprocess.Popen(command, env=same_imports(), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, sum(memory_mb(pid) for pid in family(process.pid)))
            time.sleep(0.25)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"{way}: exit code {process.returncode}")
    after = os.times()
    cpu = after.children_user + after.children_system
    return seconds, cpu - before.children_user - before.children_system, peak


def family(pid: int) -> list[int]:
    """Return a process and all that it started, on Linux."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            found = re.search(r"PPid:\t(\d+)", status.read_text(encoding="utf-8"))
        except OSError:  # it has ended
            continue
        if found:
            parents[int(status.parent.name)] = int(found[1])
    members = [pid]
    for member in members:
        members += [child for child, parent in parents.items() if parent == member]
    return members


def memory_mb(pid: int) -> float:
    """Return the memory that a process uses, shared with others in equal parts."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return 0.0
    found = re.search(r"^Pss:\s+(\d+)", rollup, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0
