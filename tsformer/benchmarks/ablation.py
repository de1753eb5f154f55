"""What single choices bring: fits that differ from a base in one line of settings.

Each finished fit is a line of `ablation.jsonl`, with the commit that it ran at, and is not done
again; `ablation.md` shows all lines. Choices that brought nothing are not in the code any more:
their lines stay, and their commits are in the history.
"""

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from rich.markdown import Markdown

from tsformer.benchmarks.common import commit, machine
from tsformer.benchmarks.results import Record, add_record, read_records
from tsformer.data.writing import write_atomically
from tsformer.errors import ConfigError
from tsformer.evaluation.testing import MODEL
from tsformer.places import CONF, command
from tsformer.training import fit

PLAN = CONF.with_name("docs") / "benchmarks" / "ablation.yaml"
KEY = ("base", "overrides", "change", "seed")
_ERRORS = ("mse", "mae")
_QUIET = ["trainer.progress_bar=false", "logger.tensorboard=false", "logger.csv=false"]


class Trial(NamedTuple):
    """One fit.

    Attributes:
        base: what the base is called.
        overrides: settings of the base, in Hydra's words.
        change: settings that differ, between spaces; empty for the base itself.
        seed: of the fit.
    """

    base: str
    overrides: list[str]
    change: str
    seed: int


def measure_ablation(arguments: Sequence[str]) -> Markdown:
    """Do the fits of a plan that are not done yet, and return the table, which is written too.

    Args:
        arguments: a YAML file, see `read_plan`, or none. Results are written beside it, with its
            name.

    Raises:
        ConfigError: the plan is not one, or a setting is wrong.
        DataError: a dataset's file is missing, or cannot be used.
    """
    plan = Path(arguments[0]) if arguments else PLAN
    trials = list(read_plan(plan))
    lines = plan.with_suffix(".jsonl")
    records = list(read_records(lines, KEY))
    done = [Trial(*(record[name] for name in KEY)) for record in records]
    missing = [trial for trial in trials if trial not in done]
    about = {"commit": commit(), "machine": machine()}
    for number, trial in enumerate(missing, 1):
        change = trial.change or "the base"
        print(f"{number}/{len(missing)}: {trial.base}, {change}, seed {trial.seed}", flush=True)
        records.append({**trial._asdict(), **_fit(trial), **about})
        add_record(lines, records[-1])
    named = "" if plan == PLAN else f" {plan}"
    table = as_markdown(records, f"{command('benchmark')} ablation{named}")
    write_atomically(plan.with_suffix(".md"), table)
    return Markdown(table)


def read_plan(path: Path) -> Iterator[Trial]:
    """Yield the fits of a plan, each base's own ones first.

    The file holds `bases`, settings by name of the base; `seeds`, all of which the bases are fitted
    with, and changes with the first; `changes` of every base; and `only`, changes by name of the
    base.

    Raises:
        ConfigError: something is missing, or cannot be read.
    """
    try:
        plan = yaml.safe_load(path.read_text(encoding="utf-8"))
        for base, overrides in plan["bases"].items():
            changes = [*plan["changes"], *plan.get("only", {}).get(base, [])]
            yield from (Trial(base, overrides, "", seed) for seed in plan["seeds"])
            yield from (Trial(base, overrides, change, plan["seeds"][0]) for change in changes)
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}: not a plan of an ablation ({error!r}); see docs/benchmarks/ablation.yaml."
        ) from error


def _fit(trial: Trial) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        run = [f"seed={trial.seed}", f"paths.run={folder}/run"]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("fit", [*_QUIET, *trial.overrides, *trial.change.split(), *run])
        settings: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        metrics = fit(settings).metrics
    return {name: metrics["test"][MODEL][f"scaled_{name}"] for name in _ERRORS}


def as_markdown(records: Iterable[Record], command: str) -> str:
    """Return a table for each base: its errors, and those of each change beside them."""
    by_base: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        by_base[record["base"]][record["change"]].append(record)
    text = ["# Ablation\n\n", __doc__.split("\n\n", 1)[1], f"\n```\n{command}\n```\n"]
    for base, changes in by_base.items():
        own = changes[""]
        maes = [record["mae"] for record in own]
        text.append(
            f"\n## {base}\n\n`{' '.join(own[0]['overrides'])}`, test errors in scaled units. With "
            f"{len(own)} seeds the base's MAE is from {min(maes):.4f} to {max(maes):.4f}: less "
            "than that is noise.\n\n"
            "| change | MSE | MAE | to the base's mean | commit |\n"
            "| --- | --- | --- | --- | --- |\n"
        )
        for change, found in changes.items():
            mse, mae = (statistics.mean(record[name] for record in found) for name in _ERRORS)
            text.append(
                f"| {f'`{change}`' if change else 'none'} | {mse:.4f} | {mae:.4f} | "
                f"{mae / statistics.mean(maes) - 1:+.1%} | {found[0]['commit']} |\n"
            )
    return "".join(text)
