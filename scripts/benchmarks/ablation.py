"""What single choices bring: fits that differ from a base in one setting, on the same windows.

Each finished fit is a line of `ablation.jsonl`, with the commit that it ran at, and is not done
again; `ablation.md` shows all lines. Choices that brought nothing are no longer in the code; their
lines stay.
"""

import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from benchmarks.accuracy import commit
from benchmarks.common import machine
from tsformer.cli import CONF
from tsformer.report import MODEL
from tsformer.training import fit, write_atomically

_QUIET = ["trainer.progress_bar=false", "logger.tensorboard=false", "logger.csv=false"]


def measure_ablation(plan_file: str, output: str) -> str:
    """Do the fits of a plan that are not done yet; return the table, which is written too.

    Args:
        plan_file: YAML: `bases`, overrides by name; `seeds`; `changes`, each a list of overrides,
            or of those of some bases alone, by name of the base.
        output: folder of the results.
    """
    plan = yaml.safe_load(Path(plan_file).read_text(encoding="utf-8"))
    lines = Path(output) / "ablation.jsonl"
    lines.parent.mkdir(parents=True, exist_ok=True)
    records = _read(lines)
    done = {(r["base"], r["change"], r["seed"]) for r in records}
    about = {"commit": commit(), "machine": machine()}
    for base, overrides in plan["bases"].items():
        changes = ["", *plan["changes"], *plan.get("only", {}).get(base, [])]
        for change in changes:
            for seed in plan["seeds"] if change == "" else plan["seeds"][:1]:
                if (base, change, seed) in done:
                    continue
                print(f"{base}: {change or 'base'}, seed {seed}", flush=True)
                figures = _fit([*overrides, *change.split(), f"seed={seed}"])
                record = {"base": base, "overrides": overrides, "change": change, "seed": seed}
                records.append({**record, **figures, **about})
                with lines.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(records[-1]) + "\n")
    table = as_markdown(records)
    write_atomically(lines.with_suffix(".md"), table)
    return table


def _read(lines: Path) -> list[dict[str, Any]]:
    text = lines.read_text(encoding="utf-8") if lines.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def _fit(overrides: Sequence[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            config = compose("fit", [*_QUIET, f"paths.run={folder}/run", *overrides])
        settings: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        metrics = fit(settings).metrics
    test = metrics["test"][MODEL]
    return {
        "mse": test["scaled_mse"],
        "mae": test["scaled_mae"],
        "seconds": metrics["train_seconds"],
    }


def as_markdown(records: Sequence[dict[str, Any]]) -> str:
    """Return a table for each base: errors, and how far they are from the base's."""
    by_base: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        by_base[record["base"]][record["change"]].append(record)
    text = []
    for base, changes in by_base.items():
        first = changes[""]
        mae = statistics.mean(r["mae"] for r in first)
        spread = max(r["mae"] for r in first) - min(r["mae"] for r in first)
        text.append(
            f"## {base}\n\n`{' '.join(first[0]['overrides'])}`, {len(first)} seeds; their MAE spans "
            f"{spread:.4f}\n\n| change | MSE | MAE | MAE to the base | seconds | commit |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
        )
        for change, found in changes.items():
            means = {k: statistics.mean(r[k] for r in found) for k in ("mse", "mae", "seconds")}
            text.append(
                f"| {change or 'none'} | {means['mse']:.4f} | {means['mae']:.4f} | "
                f"{means['mae'] / mae - 1:+.1%} | {means['seconds']:.0f} | {found[0]['commit']} |\n"
            )
        text.append("\n")
    return "".join(text)
