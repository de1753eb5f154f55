"""Measure tsformer against what it has to beat: `python scripts/benchmark.py data` or `speed`.

Figures are medians of several runs, and ratios between things measured in the same run.

`python scripts/benchmark.py accuracy dataset=[etth1,etth2] horizon=[96,192] seed=[1,2,3]` fits and
tests in the protocol of the long-horizon papers, beside baselines and published figures.
`python scripts/benchmark.py ablation` fits what docs/benchmarks/ablation.yaml lists.
`python scripts/benchmark.py batch series=1000000` forecasts a folder of so many series.
"""

import argparse
import sys

from benchmarks.ablation import measure_ablation
from benchmarks.accuracy import measure_accuracy
from benchmarks.batch import measure_batch
from benchmarks.data import benchmark_opening, benchmark_windows
from benchmarks.speed import PARTS
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from tsformer.console import open_console
from tsformer.errors import TsformerError

# Those that take settings, as Hydra does.
WITH_SETTINGS = {
    "accuracy": measure_accuracy,
    "ablation": measure_ablation,
    "batch": measure_batch,
}


def main() -> None:
    """Run the benchmark that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["data", "speed", *WITH_SETTINGS])
    parser.add_argument(
        "settings",
        nargs="*",
        metavar="KEY=VALUE",
        help="accuracy: dataset, horizon and seed, each a value or [a list]; output, a folder; "
        "look_back of the linear baselines; any setting of a fit. ablation: a plan. batch: "
        "series, steps, and ways such as local,local-2,ray-1",
    )
    parser.add_argument("--series", type=int, default=10_000, help="data: series of a large table")
    parser.add_argument("--steps", type=int, default=5_000, help="data: steps of each of them")
    parser.add_argument("--only", default=",".join(PARTS), help="speed: parts (default: all)")
    arguments = parser.parse_args()
    if arguments.settings and arguments.what not in WITH_SETTINGS:
        parser.error(f"{arguments.what} takes no {arguments.settings[0]}")
    console = Console(width=100)
    if arguments.what == "data":
        for with_calendar in (False, True):
            console.print(benchmark_windows(with_calendar=with_calendar))
        console.print(benchmark_opening(arguments.series, arguments.steps))
    elif arguments.what in WITH_SETTINGS:
        try:
            open_console().print(WITH_SETTINGS[arguments.what](arguments.settings))
        except (TsformerError, HydraException, OmegaConfBaseException, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            sys.exit(2)
        except KeyboardInterrupt:  # what is finished is written
            sys.exit(130)
    else:
        for part in arguments.only.split(","):
            console.print(PARTS[part]())


if __name__ == "__main__":
    main()
