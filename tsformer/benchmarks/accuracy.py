"""Accuracy in the protocol of the long-horizon papers, beside baselines on the same windows.

A task is one method on one dataset, horizon and seed. Each finished task is a line of
`accuracy.jsonl`, and is not done again; `accuracy.md` and `accuracy.csv` show the tasks asked for.
"""

import shlex
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from tsformer.benchmarks.accuracy_plan import check_data, parse_plan, plan_tasks
from tsformer.benchmarks.accuracy_report import as_csv, as_markdown, as_table, summarise
from tsformer.benchmarks.accuracy_scores import RUNNERS
from tsformer.benchmarks.common import commit, machine
from tsformer.benchmarks.results import Record, add_record, read_records
from tsformer.data.writing import write_atomically
from tsformer.places import command

KEY = ("task", "dataset", "horizon", "seed", "settings")


def measure_accuracy(arguments: Sequence[str]) -> Table:
    """Do the tasks that are not done yet, write the results, and return them as a table.

    Args:
        arguments: `key=value`: `dataset`, `horizon` and `seed` as one value or a list,
            `[a,b]`; `output`, a folder; `look_back` of the linear baselines; and any settings
            of a fit.

    Raises:
        ConfigError: an argument is wrong.
        DataError: a dataset's file is missing, or cannot be used.
    """
    plan = parse_plan(arguments)
    tasks = list(plan_tasks(plan))
    plan.output.mkdir(parents=True, exist_ok=True)
    lines = plan.output / "accuracy.jsonl"
    done = {key_of(record): record for record in read_records(lines, KEY)}
    missing = [task for task in tasks if task.key not in done]
    check_data(missing)
    about = {"commit": commit(), "machine": machine()}
    for number, task in enumerate(missing, 1):
        print(f"{number}/{len(missing)}: {task.dataset} {task.horizon}, {task.name}", flush=True)
        scores = RUNNERS[task.name](task.settings)
        record: Record = {
            **dict(zip(("task", "dataset", "horizon", "seed", "settings"), task.key, strict=True)),
            **about,
            "methods": {method: score._asdict() for method, score in scores.items()},
        }
        done[task.key] = record
        add_record(lines, record)
    records = [done[task.key] for task in tasks]
    rows = summarise(records)
    called = shlex.join([*shlex.split(command("benchmark")), "accuracy", *arguments])
    write_atomically(plan.output / "accuracy.md", as_markdown(rows, records, called))
    write_atomically(plan.output / "accuracy.csv", as_csv(rows))
    return as_table(rows)


def key_of(record: Record) -> tuple[Any, ...]:
    """Return the key of the task that a record is of."""
    return tuple(record[name] for name in KEY)
