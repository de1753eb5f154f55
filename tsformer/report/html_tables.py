"""Tables of a page, as HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest
from typing import TypeGuard

import numpy as np
import pandas as pd

from tsformer.report.charts import shorten
from tsformer.report.content import Cell, Figures

MAX_RANKED = 100  # of the worst series, and of the best
_MAX_ROWS = 1_000
_MAX_DECIMALS = 6
_NO_FIGURE = "\N{EN DASH}"


def figures_table(figures: Figures, methods: Sequence[str]) -> str:
    """Return a table whose numbers are aligned; a row that names a method bears its colour."""
    rows, rest = figures.rows[:_MAX_ROWS], len(figures.rows) - _MAX_ROWS
    told = figures.note if rest <= 0 else f"{figures.note} {rest:,} more rows are left out."
    columns = list(zip_longest(*rows))[: len(figures.columns)]
    texts = [_row_names(columns[0]), *map(format_column, columns[1:])] if rows else []
    head = "".join(
        f'<th scope="col">{escape(name)}</th>' if name else "<td></td>" for name in figures.columns
    )
    body = "".join(_figures_row(cells, methods) for cells in zip(*texts, strict=True))
    # Not a caption, which would scroll with a table that is wider than a phone.
    title = f"<h3>{escape(figures.title)}</h3>" if figures.title else ""
    note = f'<p class="note">{escape(told)}</p>' if told else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return title + scrolling(table, figures.title or "Figures") + note


def series_table(
    errors: pd.DataFrame, methods: Sequence[str], places: Mapping[str, int]
) -> tuple[str, str]:
    """Return the worst and the best series by the model's error, which is in the first column.

    Args:
        errors: series x methods.
        methods: of the page, by colour.
        places: of the series whose forecasts are shown, by name.

    Returns:
        The table, and what it leaves out, if anything.
    """
    model = errors.columns[0]
    ranked = errors.dropna(subset=[model]).sort_values(model, ascending=False, kind="stable")
    count, note = len(ranked), ""
    ranks = np.arange(1, count + 1)
    if count > 2 * MAX_RANKED:
        shown = np.r_[:MAX_RANKED, count - MAX_RANKED : count]
        ranked, ranks = ranked.iloc[shown], ranks[shown]
        note = f"The {MAX_RANKED} worst and the {MAX_RANKED} best of {count:,} series are shown."
    columns = [ranked[method].tolist() for method in ranked.columns]
    texts = [format_column(column) for column in columns]
    cells = zip(zip(*columns, strict=True), zip(*texts, strict=True), strict=True)
    rows = "".join(
        _series_row(rank, str(name), places, *row)
        for rank, name, row in zip(ranks.tolist(), ranked.index, cells, strict=True)
    )
    heads = _sort_head("Rank", "ascending") + _sort_head("Series")
    for name in map(str, ranked.columns):
        heads += _sort_head(name, swatch=swatch(name, methods))
    table = f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return scrolling(table, "Error by series", "tall"), note


def pairs_table(pairs: Mapping[str, Cell], title: str) -> str:
    """Return names and values, one pair a row."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(format_column([value])[0])}</td></tr>'
        for name, value in pairs.items()
    )
    return scrolling(f'<table class="pairs"><tbody>{rows}</tbody></table>', title)


def format_column(cells: Sequence[Cell]) -> list[str]:
    """Return cells with equally many decimals: four digits of the largest, three of all."""
    numbers = [abs(cell) for cell in cells if _is_figure(cell)]
    large, small = max(numbers, default=0), min(filter(None, numbers), default=1)
    if large >= 1e15 or small < 10.0**-_MAX_DECIMALS:
        pattern = ".4g"
    elif all(float(number).is_integer() for number in numbers):
        pattern = ",.0f"
    else:
        decimals = max(4 - _num_digits(large), 3 - _num_digits(small), 0)
        pattern = f",.{min(decimals, _MAX_DECIMALS)}f"
    return [_format(cell, pattern) for cell in cells]


def _num_digits(number: float) -> int:
    """Return how many digits stand before the point, less the zeros that follow it."""
    return int(np.floor(np.log10(number))) + 1


def swatch(name: str, methods: Sequence[str]) -> str:
    """Return a dot in the colour of a method; nothing for another name."""
    if name not in methods:
        return ""
    return f'<span class="swatch" data-method="{methods.index(name)}"></span>'


def scrolling(table: str, label: str, classes: str = "") -> str:
    """Return a table that scrolls in its own frame where it is wider than the page."""
    return (
        f'<div class="scroll {classes}" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"{table}</div>"
    )


def _figures_row(cells: Sequence[str], methods: Sequence[str]) -> str:
    name, *values = cells
    is_model = bool(methods) and name == methods[0]
    return (
        f"<tr{' class=model' if is_model else ''}>"
        f'<th scope="row">{swatch(name, methods)}{escape(name)}</th>'
        + "".join(f"<td>{escape(value)}</td>" for value in values)
        + "</tr>"
    )


def _series_row(
    rank: int,
    name: str,
    places: Mapping[str, int],
    values: Sequence[float],
    texts: Sequence[str],
) -> str:
    label = escape(shorten(name))
    if name in places:
        label = f'<button type="button" data-series="{places[name]}">{label}</button>'
    return (
        f'<tr><td data-value="{rank}">{rank:,}</td><th scope="row">{label}</th>'
        + "".join(
            f'<td data-value="{value:.6g}">{text}</td>'
            for value, text in zip(values, texts, strict=True)
        )
        + "</tr>"
    )


def _sort_head(name: str, sort: str = "none", swatch: str = "") -> str:
    button = f'<button type="button">{swatch}{escape(name)}</button>'
    return f'<th scope="col" aria-sort="{sort}">{button}</th>'


def _row_names(cells: Sequence[Cell]) -> list[str]:
    return ["" if cell is None else _format(cell, "g") for cell in cells]


def _format(cell: Cell, pattern: str) -> str:
    if isinstance(cell, str):
        return cell
    return format(cell, pattern) if _is_figure(cell) else _NO_FIGURE


def _is_figure(cell: Cell) -> TypeGuard[float]:
    return cell is not None and not isinstance(cell, str) and bool(np.isfinite(cell))
