"""Training, decoding, forecasting and importing, against the original TFModel and its peers.

Each function measures one part and returns its table; what is compared is first shown to be equal.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from rich.console import Group
from rich.table import Table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tsformer.benchmarks import peers
from tsformer.benchmarks.common import interleaved, new_table, same_imports, with_defaults
from tsformer.benchmarks.eager import EagerTFModel, causal_mask, decode_naively
from tsformer.config import ModelConfig
from tsformer.data.columns import Columns
from tsformer.errors import ConfigError
from tsformer.forecaster import Forecaster
from tsformer.model.config import (
    EncoderConfig,
    ForecasterConfig,
    ScalerConfig,
    network_settings,
)
from tsformer.nn import ForecastNetwork, TFModel, load_reference_state_dict
from tsformer.places import CONF

CHANNELS, STEPS, BATCH_SIZE = 7, 96, 32
D_MODEL, NUM_HEADS, D_FF, NUM_LAYERS = 128, 8, 256, 2


def pair(dropout: float = 0.1) -> tuple[EagerTFModel, TFModel]:
    """Return the reference and our network with equal weights."""
    torch.manual_seed(0)
    sizes = (CHANNELS, CHANNELS, CHANNELS, D_MODEL, NUM_HEADS, D_FF, NUM_LAYERS, dropout)
    reference, ours = EagerTFModel(*sizes), TFModel(*sizes)
    load_reference_state_dict(ours, reference.state_dict())
    return reference, ours


def training_step(model: nn.Module, inputs: tuple[Any, ...], target: Tensor) -> Callable[[], None]:
    """Return a step: forward, backward and AdamW, fused for our network."""
    fused = isinstance(model, TFModel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)

    def step() -> None:
        nn.functional.mse_loss(model(*inputs), target).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure_training() -> Table:
    """Time a training step, 96 -> 96 steps of 7 channels in 32 windows, dropout 0.1."""
    reference, ours = pair()
    _, without_dropout = pair(dropout=0.0)
    source, shifted, target = torch.randn(3, BATCH_SIZE, STEPS, CHANNELS).unbind()
    masked = (source, shifted, None, causal_mask(BATCH_SIZE, STEPS))
    with torch.no_grad():
        expected = reference.eval()(*masked)
        torch.testing.assert_close(ours.eval()(source, shifted), expected, rtol=0, atol=1e-4)
    steps = [
        training_step(reference.train(), masked, target),
        training_step(ours.train(), (source, shifted), target),
        training_step(without_dropout, (source, shifted), target),
    ]
    names = ["original, eager", "tsformer", "tsformer, dropout 0"]
    sizes = peers.Sizes(D_MODEL, NUM_HEADS, D_FF, NUM_LAYERS, NUM_LAYERS, dropout=0.1)
    networks = peers.networks(source, target, sizes)
    steps += [training_step(*network) for network in networks.values() if network]
    names += [name for name, network in networks.items() if network]
    with FlopCounterMode(display=False) as counter:  # which does not know our fused attention
        steps[0]()
    flops = counter.get_total_flops()
    matrix = torch.randn(1024, 1024)
    *seconds, product = interleaved(*steps, lambda: matrix @ matrix, runs=7, repeats=8)
    peak = 2 * 1024**3 / product
    table = new_table(
        f"A training step, d_model {D_MODEL}, {NUM_LAYERS} + {NUM_LAYERS} layers, {STEPS} -> "
        f"{STEPS} steps, {CHANNELS} channels, batch {BATCH_SIZE}: {flops / 1e9:.1f} GFLOP "
        f"({peak / 1e9:.0f} GFLOP/s in a matrix product, {torch.get_num_threads()} threads)",
        "ms",
        "steps/s",
        "of peak",
        "speed",
    )
    for name, own in zip(names, seconds, strict=True):
        table.add_row(
            name,
            f"{own * 1e3:.0f}",
            f"{1 / own:.2f}",
            "" if name in networks else f"{flops / own / peak:.0%}",  # theirs are other products
            f"{seconds[0] / own:.2f}",
        )
    add_missing(table, networks)
    return table


def add_missing(table: Table, found: Mapping[str, object | None]) -> None:
    """Add a row for each peer that is not installed."""
    for name, peer in found.items():
        if peer is None:
            table.add_row(name, "not installed")


def measure_decoding() -> Table:
    """Time forecasting 96 steps one by one, each from those before it."""
    reference, ours = pair()
    reference.eval()
    ours.eval()
    source = torch.randn(BATCH_SIZE, STEPS, CHANNELS)
    table = new_table(f"Decoding {STEPS} steps one by one, p = 1", "s", "ms/step", "speed")
    for batch in (BATCH_SIZE, 1):
        inputs = source[:batch], source[:batch, -1]

        @torch.inference_mode()
        def naive(inputs: tuple[Tensor, Tensor] = inputs) -> Tensor:
            return decode_naively(reference, *inputs, STEPS)

        @torch.inference_mode()
        def cached(inputs: tuple[Tensor, Tensor] = inputs) -> Tensor:
            encoder_input, token = inputs
            cache = ours.new_cache(ours.encode(encoder_input), STEPS)
            outputs = []
            for position in range(STEPS):
                token = ours.decode_next(token, cache, position)
                outputs.append(token)
            return torch.stack(outputs, dim=1)

        torch.testing.assert_close(cached(), naive(), rtol=1e-4, atol=1e-4)
        slow, fast = interleaved(naive, cached, runs=5, repeats=2)
        for name, seconds in (("original, all again at each step", slow), ("tsformer", fast)):
            table.add_row(
                f"{name}, {batch} windows",
                f"{seconds:.3f}",
                f"{seconds / STEPS * 1e3:.2f}",
                f"{slow / seconds:.1f}",
            )
    return table


def random_forecaster(context_length: int, horizon: int, **changes: Any) -> Forecaster:
    """Return a forecaster of hourly series with the default model and random weights."""
    settings = yaml.safe_load((CONF / "model" / "base.yaml").read_text(encoding="utf-8"))
    covariates = EncoderConfig(mean=[], std=[], vocabularies={})
    scaler = ScalerConfig(
        per="series",
        method="standard",
        transform="none",
        ids=["none of the series"],
        mean=[0.0],
        std=[1.0],
        fallback_mean=0.0,
        fallback_std=1.0,
    )
    config = ForecasterConfig(
        context_length=context_length,
        horizon=horizon,
        freq="h",
        regular=True,
        duplicates="error",
        time_zone=None,
        calendar=True,
        holidays=None,
        columns=Columns("unique_id", "ds", ("y",)),
        channels=None,
        model=ModelConfig.model_validate({**settings, **changes}),
        scaler=scaler,
        covariates=covariates,
        static=covariates,
        versions={},
    )
    torch.manual_seed(0)
    return Forecaster(ForecastNetwork(**network_settings(config)), config)


def long_frame(num_series: int, num_steps: int = 500) -> pd.DataFrame:
    """Return hourly series of noise, one below the other."""
    stamps = pd.date_range("2024-01-01", periods=num_steps, freq="h")
    return pd.DataFrame(
        {
            "unique_id": np.repeat([f"series-{i:05d}" for i in range(num_series)], num_steps),
            "ds": np.tile(stamps, num_series),
            "y": np.random.default_rng(0).normal(size=num_series * num_steps),
        }
    )


def measure_prediction(num_series: int = 5_000, num_matched: int = 1_000) -> Table:
    """Time forecasts of many series, from a frame to a frame."""
    horizon, context_length, batch = 24, 336, 1024
    table = new_table(f"Forecasts of {horizon} steps of series of 500", "series", "s", "series/s")

    def add(name: str, series: int, seconds: float) -> None:
        table.add_row(name, f"{series:,}", f"{seconds:.2f}", f"{series / seconds:,.0f}")

    frame = long_frame(num_series)
    forecaster = random_forecaster(context_length, horizon, patch_len=24)
    (seconds,) = interleaved(lambda: forecaster.predict(frame), runs=3, repeats=1, warmups=1)
    add("default model, from frame to frame", num_series, seconds)
    num_features = network_settings(forecaster.config)["num_future_features"]
    inputs = (
        torch.randn(batch, context_length, 1),
        torch.ones(batch, context_length, 1, dtype=torch.bool),
        torch.randn(batch, context_length, num_features),
        torch.randn(batch, horizon, num_features),
        torch.empty(batch, 0),
    )
    with torch.inference_mode():
        (seconds,) = interleaved(lambda: forecaster.network(*inputs), runs=5, repeats=1)
    add("default model, its network alone", num_series, seconds * num_series / batch)

    frame, size = long_frame(num_matched), 96
    matched = random_forecaster(size, horizon, patch_len=1, instance_norm=False, linear_skip="none")
    model = matched.config.model
    sizes = peers.Sizes(*(getattr(model, name) for name in peers.Sizes._fields))
    found = peers.predictions(frame, size, horizon, sizes, batch)
    actions = {f"a token a step, {size} steps of context": lambda: matched.predict(frame)}
    actions |= {name: action for name, action in found.items() if action}
    times = interleaved(*actions.values(), runs=3, repeats=1, warmups=1)
    for name, seconds in zip(actions, times, strict=True):
        add(name, num_matched, seconds)
    add_missing(table, found)
    return table


FIRST_FORECAST = """
import sys
import pandas as pd
from tsformer import Forecaster
Forecaster.load(sys.argv[1]).predict(pd.read_parquet(sys.argv[2]))
"""
OURS = "from tsformer import Forecaster, fit"  # `import tsformer` alone loads no torch


def measure_imports() -> Table:
    """Time fresh processes that import, and that load a model and forecast."""
    table = new_table("Fresh processes, less an empty one", "s", "of import torch")
    with tempfile.TemporaryDirectory() as scratch:
        model, history = Path(scratch) / "model", Path(scratch) / "history.parquet"
        random_forecaster(336, 24, patch_len=24).save(model)
        long_frame(1).to_parquet(history)
        programs = [
            ("", ["pass"]),
            ("import torch", ["import torch"]),
            ("import tsformer", ["import tsformer"]),
            (OURS, [OURS]),
            ("load a model, first forecast", [FIRST_FORECAST, str(model), str(history)]),
        ]
        found = {code: find_spec(package) for package, code in peers.IMPORTS.items()}
        programs += [(code, [peers.QUIET + code]) for code, spec in found.items() if spec]
        actions = [lambda code=code: run_python(*code) for _, code in programs]
        empty, *seconds = interleaved(*actions, runs=5, repeats=1, warmups=1)
    for (name, _), own in zip(programs[1:], seconds, strict=True):
        table.add_row(name, f"{own - empty:.2f}", f"{(own - empty) / (seconds[0] - empty):.2f}")
    add_missing(table, found)
    return table


def run_python(code: str, *arguments: str) -> str:
    """Run code in a process of its own, where it can import all that this one can."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, check=True, env=same_imports(), stdout=subprocess.PIPE, text=True
    ).stdout


MEMORY_BATCH, MEMORY_LIMIT = 8, 6e9
PEAK = """
import sys
from tsformer.benchmarks.speed import print_peak
print_peak(sys.argv[1], int(sys.argv[2]))
"""


def print_peak(kind: str, context_length: int) -> None:
    """Print by how many MB a training step raises the peak of the process's memory."""
    reference, ours = pair()
    source = torch.randn(MEMORY_BATCH, context_length, CHANNELS)
    target = torch.randn(MEMORY_BATCH, STEPS, CHANNELS)
    masked = (source, target, None, causal_mask(MEMORY_BATCH, STEPS))
    step = {
        "original": training_step(reference, masked, target),
        "tsformer": training_step(ours, (source, target), target),
    }[kind]
    before = memory_mb("VmRSS")
    step()
    print(memory_mb("VmHWM") - before)


def memory_mb(field: str) -> float:
    """Return a figure of this process: VmRSS, memory in use, or VmHWM, the most it has been."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) / 1024


def measure_memory() -> Table:
    """Weigh a training step at growing contexts, each in a process of its own."""
    table = new_table(
        f"What a training step adds to the peak of memory, L -> {STEPS} steps, batch "
        f"{MEMORY_BATCH}",
        "original MB",
        "tsformer MB",
        "ratio",
    )
    for length in (96, 336, 1024, 4096):
        ours = peak_mb("tsformer", length)
        # Of each weight of the encoder's attention stay scores, softmax, mask and what is kept.
        weights = MEMORY_BATCH * NUM_LAYERS * NUM_HEADS * length**2
        if weights * 13 > MEMORY_LIMIT:
            table.add_row(f"L = {length}", f"over {MEMORY_LIMIT / 1e6:,.0f}", f"{ours:,.0f}", "")
            continue
        theirs = peak_mb("original", length)
        table.add_row(f"L = {length}", f"{theirs:,.0f}", f"{ours:,.0f}", f"{theirs / ours:.1f}")
    return table


def peak_mb(kind: str, context_length: int) -> float:
    """Return the median of three processes."""
    peaks = [float(run_python(PEAK, kind, str(context_length))) for _ in range(3)]
    return statistics.median(peaks)


PARTS: dict[str, Callable[[], Table]] = {
    "train": measure_training,
    "decode": measure_decoding,
    "predict": measure_prediction,
    "import": measure_imports,
    "memory": measure_memory,
}


def measure_speed(settings: Sequence[str]) -> Group:
    """Measure one part after the other.

    Args:
        settings: `only=train,decode`, parts of `PARTS`.
    """
    names = with_defaults(settings, only=",".join(PARTS))["only"].split(",")
    if strange := [name for name in names if name not in PARTS]:
        raise ConfigError(f"only={strange[0]}: give some of {', '.join(PARTS)}.")
    tables = []
    for number, name in enumerate(names, 1):
        print(f"{number}/{len(names)}: {name}", flush=True)
        tables.append(PARTS[name]())
    return Group(*tables)
