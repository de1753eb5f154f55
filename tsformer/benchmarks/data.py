"""Tables and windows: how fast they are read and gathered, in how much memory."""

import bisect
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Group
from rich.table import Table
from torch.utils.data import Dataset, default_collate

from tsformer.benchmarks.common import (
    count,
    interleaved,
    new_table,
    same_imports,
    with_defaults,
)
from tsformer.data.calendar import calendar_features
from tsformer.data.covariates import CovariateEncoder
from tsformer.data.scaling import Scaler
from tsformer.data.table import SeriesTable
from tsformer.data.windows import WindowBatch, WindowDataset, WindowIndex
from tsformer.trainer.module import ForecastModule, masked_loss, update_average

CONTEXT_LENGTH, HORIZON, BATCH_SIZE = 336, 96, 256


# Batches of windows


class PerItemDataset(Dataset[WindowBatch]):
    """The usual way: an item is one window, sliced, masked and scaled in Python."""

    def __init__(self, windows: WindowDataset) -> None:
        """Take the same store, scaler and calendar."""
        store, scaler = windows.store, windows.scaler
        self.target = torch.from_numpy(np.array(store.target))[:, None]
        self.calendar = torch.from_numpy(windows.calendar)
        self.offsets, self.starts = store.offsets.tolist(), store.starts.tolist()
        self.mean, self.std = (scaler.mean - store.centers).tolist(), scaler.std.tolist()
        self.index = windows.index

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.index)

    def __getitem__(self, window: int) -> WindowBatch:
        """Return one window of a series that is long enough."""
        series = bisect.bisect_right(self.index.offsets, window) - 1
        begin = int(self.index.first[series]) - CONTEXT_LENGTH
        begin += window - int(self.index.offsets[series])
        end, length = begin + CONTEXT_LENGTH + HORIZON, CONTEXT_LENGTH
        shift = self.offsets[series] - self.starts[series]
        values = self.target[begin + shift : end + shift]
        observed = ~values.isnan()
        values = ((values - self.mean[series]) / self.std[series]).nan_to_num()
        features = self.calendar[begin:end]
        return WindowBatch(
            context=values[:length],
            observed=observed[:length],
            past_features=features[:length],
            future_features=features[length:],
            static_features=torch.empty(0),
            target=values[length:],
            target_observed=observed[length:],
            series=torch.tensor(series),
        )


def measure_data(settings: Sequence[str]) -> Group:
    """Measure windows, and opening tables.

    Args:
        settings: `series=10000` and `steps=5000` of the largest table that is opened.
    """
    given = with_defaults(settings, series="10_000", steps="5_000")
    num_series, num_steps = (count(name, given[name]) for name in ("series", "steps"))
    return Group(
        benchmark_windows(with_calendar=False),
        benchmark_windows(with_calendar=True),
        benchmark_opening(num_series, num_steps),
    )


def benchmark_windows(
    *, with_calendar: bool, num_series: int = 200, num_steps: int = 5_000
) -> Table:
    """Time batches of windows against slicing per item, and against a training step."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        rng.normal(size=(num_steps, num_series)), columns=[f"s{i}" for i in range(num_series)]
    )
    frame.insert(0, "ds", pd.date_range("2024-01-01", periods=num_steps, freq="h"))
    table = SeriesTable.from_(frame)
    store, columns = table.store, table.columns
    calendar = calendar_features(store.grid, store.freq)[:, : None if with_calendar else 0]
    calendar = np.ascontiguousarray(calendar)
    groups = np.arange(num_series)[:, None]
    index = WindowIndex.between(
        store,
        groups,
        begin=0,
        end=num_steps,
        context_length=CONTEXT_LENGTH,
        horizon=HORIZON,
    )
    windows = WindowDataset(
        store,
        index,
        Scaler.fit(store, num_steps),
        CovariateEncoder.fit(store, columns, num_steps),
        CovariateEncoder.fit_static(store, columns, num_steps),
        calendar,
        num_future_covariates=0,
        context_length=CONTEXT_LENGTH,
        horizon=HORIZON,
    )
    per_item = PerItemDataset(windows)

    def collated(picked: np.ndarray) -> WindowBatch:
        return default_collate([per_item[i] for i in picked.tolist()])

    def picked() -> np.ndarray:
        return rng.integers(0, len(windows), BATCH_SIZE)

    sample = picked()
    for ours, theirs in zip(windows[sample], collated(sample), strict=True):
        torch.testing.assert_close(ours, theirs)
    step = training_step(windows[sample])
    slow, fast = interleaved(lambda: collated(picked()), lambda: windows[picked()])
    train, after = interleaved(step, lambda: windows[picked()], repeats=1)
    result = new_table(
        f"A batch of {BATCH_SIZE} windows, {CONTEXT_LENGTH} -> {HORIZON} steps, "
        f"{calendar.shape[1]} calendar features",
        "ms",
        "ratio",
    )
    result.add_row("torch Dataset, an item a window", f"{slow * 1e3:.2f}", f"{slow / fast:.0f}")
    result.add_row("tsformer, a batch at once", f"{fast * 1e3:.3f}", "1")
    result.add_row("training step of the default model", f"{train * 1e3:.0f}", "")
    result.add_row("gathering, part of a training step", "", f"{after / train:.2%}")
    return result


def training_step(batch: WindowBatch) -> Callable[[], Any]:
    """Return a step of the default model: forward, backward, AdamW, average of the weights."""
    module = ForecastModule(
        network={
            "context_length": CONTEXT_LENGTH,
            "horizon": HORIZON,
            "num_channels": 1,
            "cardinalities": [0] * batch.past_features.shape[2],
            "num_future_features": batch.future_features.shape[2],
            "static_cardinalities": [],
            "d_model": 64,
            "num_heads": 4,
            "d_ff": 128,
            "num_layers": 2,
            "num_decoder_layers": 1,
            "dropout": 0.2,
            "attention_dropout": 0.0,
            "patch_len": 24,
            "decoding": "parallel",
            "instance_norm": True,
            "linear_skip": "full",
        },
        loss="l1",
        ema_decay=0.995,
        optimizer={},
        scheduler={},
    )
    assert module.averaged is not None
    average = module.averaged
    optimizer = torch.optim.AdamW(module.network.parameters())

    def step() -> None:
        parameters = module.network(*batch.inputs, batch.target, batch.target_observed)
        head = module.network.head
        masked_loss(head, "l1", parameters, batch.target, batch.target_observed).backward()
        optimizer.step()
        optimizer.zero_grad()
        update_average(average, module.network, decay=0.995, step=1000)

    return step


# Opening a large table

OPEN = """
import json, sys, time
from pathlib import Path
import tsformer.data.table as table
table._LARGE = 0
began = time.perf_counter()
store = table.SeriesTable.from_(sys.argv[1], cache=Path(sys.argv[2])).store
seconds = time.perf_counter() - began
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([seconds, int(peak.split()[1]) / 1024, len(store.ids), int(store.offsets[-1])]))
"""


def benchmark_opening(num_series: int, num_steps: int) -> Table:
    """Time and weigh opening Parquet files of 1/16, 1/4 and all of the series."""
    result = new_table(
        f"Opening Parquet of up to {num_series:,} series x {num_steps:,} steps, each in a process",
        "first s",
        "peak MB",
        "us/row",
        "cached s",
        "peak MB",
    )
    with tempfile.TemporaryDirectory() as scratch:
        for part in (16, 4, 1):
            path, cache = Path(scratch) / "table.parquet", Path(scratch) / f"cache-{part}"
            write_parquet(path, num_series // part, num_steps)
            time.sleep(3)  # younger files are not trusted to be unchanged
            first, peak, series, rows = opened(path, cache)
            again = [opened(path, cache)[:2] for _ in range(3)]
            cached, cached_peak = (statistics.median(x) for x in zip(*again, strict=True))
            result.add_row(
                f"{series:,} series, {rows / 1e6:,.1f} M rows",
                f"{first:.1f}",
                f"{peak:,.0f}",
                f"{first / rows * 1e6:.2f}",
                f"{cached:.2f}",
                f"{cached_peak:,.0f}",
            )
    return result


def opened(path: Path, cache: Path) -> tuple[float, float, int, int]:
    """Open a table in a process of its own; return seconds, peak MB, series and rows."""
    command = [sys.executable, "-c", OPEN, str(path), str(cache)]
    output = subprocess.run(command, check=True, env=same_imports(), stdout=subprocess.PIPE).stdout
    seconds, peak, series, rows = json.loads(output.splitlines()[-1])
    return seconds, peak, series, rows


def write_parquet(path: Path, num_series: int, num_steps: int) -> None:
    """Write hourly series of noise, one below the other, a hundred series a row group."""
    rng = np.random.default_rng(0)
    stamps = pa.array(pd.date_range("2024-01-01", periods=num_steps, freq="h").as_unit("us"))
    schema = pa.schema([("unique_id", pa.string()), ("ds", stamps.type), ("y", pa.float64())])
    with pq.ParquetWriter(path, schema) as writer:
        for begin in range(0, num_series, 100):
            ids = [f"series-{i:06d}" for i in range(begin, min(begin + 100, num_series))]
            columns = [
                pa.array(np.repeat(ids, num_steps)),
                pa.concat_arrays([stamps] * len(ids)),
                pa.array(rng.normal(size=len(ids) * num_steps)),
            ]
            writer.write_table(pa.table(columns, schema=schema))
