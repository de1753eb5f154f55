"""Measure tsformer against what it has to beat: `python scripts/benchmark.py speed`.

Figures are medians of several runs, and ratios between things measured in the same run.
"""

import sys
from importlib import import_module

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from tsformer.console import open_console
from tsformer.errors import ConfigError, TsformerError
from tsformer.places import command

BENCHMARKS = {
    "data": "tables and windows; series=10000 steps=5000, of the largest table",
    "speed": "training, decoding, forecasting, importing, memory; only=train,decode,...",
    "accuracy": "errors in the protocol of the long-horizon papers, beside baselines and\n"
    "published figures; dataset, horizon and seed, each a value or [a list]; output, a\n"
    "folder; look_back of the linear baselines; any setting of a fit",
    "ablation": "what single settings bring; FILE, a plan (docs/benchmarks/ablation.yaml)",
    "batch": "forecasts of many series; series=10000 steps=200 ways=local,local-2,ray-1",
}


def run() -> None:
    """Run the benchmark that the arguments of this process name."""
    try:
        if {"-h", "--help"} & set(sys.argv[1:]):
            print(_usage())
            return
        name, *settings = sys.argv[1:] or [""]
        if name not in BENCHMARKS:
            raise ConfigError(f"{name or 'benchmark'}: give one of {', '.join(BENCHMARKS)}.")
        measure = getattr(import_module(f"tsformer.benchmarks.{name}"), f"measure_{name}")
        open_console().print(measure(settings))
    except (TsformerError, HydraException, OmegaConfBaseException, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:  # what is finished is written
        sys.exit(130)


def _usage() -> str:
    lines = [f"usage: {command('benchmark')} BENCHMARK [KEY=VALUE ...]", ""]
    for name, what in BENCHMARKS.items():
        first, *more = what.splitlines()
        lines += [f"  {name:10}{first}", *(f"{'':12}{line}" for line in more)]
    return "\n".join(lines)
