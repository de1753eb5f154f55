"""check(settings): what a fit would make of a table, told without fitting or writing."""

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tsformer.console import open_console
from tsformer.data.catalog import load_data
from tsformer.data.findings import Findings
from tsformer.data.forecast_data import ForecastData
from tsformer.errors import TsformerError


def check(settings: Mapping[str, Any]) -> bool:
    """Print all that is found out about a table, and return whether a fit would take it.

    Args:
        settings: of a fit; see `tsformer.training.fit`.

    Raises:
        ConfigError: a setting is unknown, wrong, or does not fit the data.
        DataError: there is no table to look through.
    """
    settings = {**settings, "paths": {**settings["paths"], "cache": None}}  # nothing is written
    findings = Findings()
    console = open_console()
    try:
        table, config = load_data(settings, findings)
        data = ForecastData(table, config)
    except TsformerError:
        if findings.items:
            console.print(_as_table(findings))
        if not findings.of("error"):
            raise
        console.print("A fit would refuse this table: fix the errors first.")
        return False
    console.print(data.description)
    if data.findings.items:
        console.print(_as_table(data.findings))
    else:
        console.print("Nothing stands out.")
    parts = (("train", data.train), ("validation", data.validation), ("test", data.test))
    console.print("Windows: " + ", ".join(f"{len(part):,} {name}" for name, part in parts))
    console.print("A fit would accept this table.")
    return True


def _as_table(findings: Findings) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("", "What", "Count", "Where first (rows count from 0)", "What to do"):
        table.add_column(name, justify="right" if name == "Count" else "left")
    for finding in findings:
        table.add_row(
            finding.level, finding.kind, f"{finding.count:,}", finding.example, finding.remedy
        )
    return table
