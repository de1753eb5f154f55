"""Tables of what was measured, with published figures beside it."""

import csv
import io
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tsformer.benchmarks.results import Record

# How metrics are headed, and to how many digits they are shown.
HEADS = {"scaled_crps": "CRPS", "coverage": "in 90 %"}
DIGITS = {"scaled_crps": 4}

PUBLISHED = Path(__file__).with_name("published.csv")


class Row(NamedTuple):
    """One method on one dataset and horizon.

    Attributes:
        mean: of each metric, over seeds.
        std: sample standard deviation of each metric over seeds; empty for one seed.
        minutes: of training, mean over seeds; None if not known.
        seeds: how many; 0: published.
        windows: of the test part.
        source: paper and table of what is published; empty for what was measured here.
    """

    dataset: str
    horizon: int
    method: str
    mean: dict[str, float]
    std: dict[str, float]
    minutes: float | None
    seeds: int
    windows: int | None
    source: str


def summarise(records: Iterable[Record]) -> list[Row]:
    """Return mean and spread over seeds, by dataset, horizon and method, then what is published."""
    runs: dict[tuple[str, int], dict[str, list[Record]]] = {}
    for record in records:
        cell = runs.setdefault((record["dataset"], record["horizon"]), {})
        for method, score in record["methods"].items():
            cell.setdefault(method, []).append(score)
    published = read_published()
    rows: list[Row] = []
    for (dataset, horizon), cell in runs.items():
        # What was measured on fewer windows stands below, and ours there only to compare with.
        methods = sorted(cell.items(), key=lambda item: -item[1][0]["windows"])
        fewer = [item for item in methods if item[1][0]["windows"] < methods[0][1][0]["windows"]]
        shown = methods if len(fewer) != 1 else [item for item in methods if item not in fewer]
        rows += [_summary(dataset, horizon, method, scores) for method, scores in shown]
        rows += [row for row in published if (row.dataset, row.horizon) == (dataset, horizon)]
    return rows


def _summary(dataset: str, horizon: int, method: str, scores: list[Record]) -> Row:
    values = {name: [s["metrics"][name] for s in scores] for name in scores[0]["metrics"]}
    several = len(scores) > 1
    return Row(
        dataset,
        horizon,
        method,
        mean={name: statistics.fmean(x) for name, x in values.items()},
        std={name: statistics.stdev(x) for name, x in values.items()} if several else {},
        minutes=statistics.fmean(s["minutes"] for s in scores),
        seeds=len(scores),
        windows=scores[0]["windows"],
        source="",
    )


def read_published(path: Path = PUBLISHED) -> list[Row]:
    """Return published figures; the steps that a method sees stand behind its name."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            Row(
                line["dataset"],
                int(line["horizon"]),
                f"{line['method']} ({line['look_back']})",
                mean={name: float(line[name]) for name in ("mse", "mae") if line[name]},
                std={},
                minutes=None,
                seeds=0,
                windows=None,
                source=line["source"],
            )
            for line in csv.DictReader(file)
        ]


def _metrics(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.mean))


def _figure(row: Row, metric: str) -> str:
    if metric not in row.mean:
        return ""
    digits = DIGITS.get(metric, 3)
    spread = f" ± {row.std[metric]:.{digits}f}" if metric in row.std else ""
    return f"{row.mean[metric]:.{digits}f}{spread}"


def _heads(metrics: list[str]) -> list[str]:
    return [HEADS.get(metric, metric.upper()) for metric in metrics]


def _cells(row: Row, metrics: list[str]) -> list[str]:
    minutes = "" if not row.minutes else f"{row.minutes:.1f}"
    return [row.method, *(_figure(row, metric) for metric in metrics), minutes]


def as_table(rows: list[Row]) -> Table:
    """Return a table for the terminal."""
    metrics = _metrics(rows)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), title="Test windows, scaled units")
    for name in ("", "H", "method", *_heads(metrics), "minutes", "published in"):
        left = name in ("", "method", "published in")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    last = None
    for row in rows:
        cell = (row.dataset, str(row.horizon))
        if last not in (None, cell):
            table.add_section()
        authors = row.source.partition(",")[0].partition(" (")[0]
        table.add_row(*(cell if cell != last else ("", "")), *_cells(row, metrics), authors)
        last = cell
    return table


def as_markdown(rows: list[Row], records: list[Record], command: str) -> str:
    """Return the report, with all that is needed to get it again."""
    minutes = sum(s["minutes"] for record in records for s in record["methods"].values())
    seeds = sorted({record["seed"] for record in records if record["seed"] is not None})
    parts = [
        "# Accuracy on the long-horizon benchmarks\n",
        f"    {command}\n",
        "Errors are in units of the train rows' standard deviation of each series, over every "
        "test window, with the checkpoint chosen on the validation part; mean ± standard "
        f"deviation over the seeds {', '.join(map(str, seeds))}. Published rows are taken from "
        "the papers, with the steps of context they see in parentheses.\n",
        f"Commit {_distinct(records, 'commit')}; {_distinct(records, 'machine')}; "
        f"{minutes:.0f} minutes of training in all.\n",
    ]
    metrics = _metrics(rows)
    if "scaled_crps" in metrics:
        parts.append(
            "CRPS is the weighted quantile loss over the model's levels, in units of the mean "
            "absolute truth; `in 90 %` is the fraction of truths within the central interval of "
            "90 %. Quantiles of methods that forecast points come from their errors on the "
            "validation part (split conformal prediction), those of statistical models from "
            "their own prediction intervals.\n"
        )
    heads = ["H", "method", *_heads(metrics), "minutes", "published in"]
    rules = ["---:", "---", *["---:"] * len(metrics), "---:", "---"]
    for dataset in dict.fromkeys(row.dataset for row in rows):
        parts.append(f"## {dataset}\n")
        lines = [heads, rules]
        lines += [
            [str(row.horizon), *_cells(row, metrics), row.source]
            for row in rows
            if row.dataset == dataset
        ]
        parts.append("".join(f"| {' | '.join(line)} |\n" for line in lines))
    return "\n".join(parts)


def _distinct(records: list[Record], key: str) -> str:
    return ", ".join(dict.fromkeys(record[key] for record in records))


def as_csv(rows: list[Row]) -> str:
    """Return all figures at full precision."""
    metrics = _metrics(rows)
    fields = ["dataset", "horizon", "method", *(x for m in metrics for x in (m, f"{m}_std"))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*fields, "minutes", "seeds", "windows", "source"])
    for row in rows:
        figures = [x.get(metric, "") for metric in metrics for x in (row.mean, row.std)]
        rest = ["" if x is None else x for x in (row.minutes, row.seeds, row.windows, row.source)]
        writer.writerow([row.dataset, row.horizon, row.method, *figures, *rest])
    return text.getvalue()
