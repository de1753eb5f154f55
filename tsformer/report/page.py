"""A page that shows a report in any browser: one file that asks the network for nothing."""

import gzip
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple

from tsformer.data.writing import write_atomically
from tsformer.report.charts import chart_json, is_empty, method_names, windows_within
from tsformer.report.content import Report
from tsformer.report.html_tables import figures_table, pairs_table, series_table

_MAX_TEXT = 200_000  # characters of the settings, and of the code

_FORECASTS = """
<div class="controls">
<label>Series <select id="series-choice"></select></label>
<label>Forecast from <select id="window-choice"></select></label>
<span class="steps">
<button type="button" id="previous" aria-label="Previous forecast of the series">&lsaquo;</button>
<span id="position" aria-live="polite"></span>
<button type="button" id="next" aria-label="Next forecast of the series">&rsaquo;</button>
</span>
<button type="button" id="whole" aria-pressed="false">Whole context</button>
</div>
"""
_CALIBRATION = """
<p>A quantile of level 0.9 should lie above 90 % of the truths. On the dotted line it does; above
the line forecasts were too high, below it too low. A curve flatter than the line means
intervals that are too narrow, a steeper one means intervals that are too wide.</p>
"""


class _Section(NamedTuple):
    """A part of the page: where a link leads, what is above it, what it shows."""

    id: str
    title: str
    html: str


def write_report(report: Report, path: Path) -> None:
    """Write a page, which replaces a file of that name as a whole.

    Args:
        report: what it shows.
        path: of the page, `.html`.

    Raises:
        OSError: it cannot be written.
    """
    write_atomically(path, render(report))


def render(report: Report) -> str:
    """Return a page as HTML: the same for the same report, and less than 10 MB."""
    windows = windows_within(report.windows)
    series = list(dict.fromkeys(name for name, _ in windows))
    sections = [section for section in _sections(report, series) if section.html]
    code = _read("charts.js") + _read("page.js")
    plotly, plotly_hash = _plotly()
    page = Template(_read("page.html")).substitute(
        # Even markup that found its way into the page could neither run nor ask for anything.
        policy=f"default-src 'none'; script-src '{_hash(code)}' '{plotly_hash}'; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'",
        title=escape(report.title),
        subtitle=escape(report.subtitle),
        notes=_notes([*report.notes, *_what_is_left_out(report, len(windows), len(series))]),
        contents="".join(f'<li><a href="#{id}">{title}</a></li>' for id, title, _ in sections),
        sections="".join(
            f'<section id="{id}"><h2>{title}</h2>{html}</section>' for id, title, html in sections
        ),
        data=chart_json(report, windows),
        css=_read("page.css"),
        code=code,
        plotly=plotly,
    )
    return page.encode(errors="replace").decode()  # an id may hold half a surrogate pair


def _sections(report: Report, series: Sequence[str]) -> Iterator[_Section]:
    """Give all sections, without HTML where there is nothing to show; `series` have forecasts."""
    yield _Section("results", "Results", _figures(report))
    chart = _card("", _FORECASTS + _chart("forecast", "Forecasts beside the truth, by time"))
    yield _Section("forecasts", "Forecasts", chart if series else "")
    yield _Section("errors", "Errors", _errors(report))
    calibration = _chart("calibration", "Fraction of truths below each quantile") + _CALIBRATION
    yield _Section(
        "calibration",
        "Calibration",
        "" if is_empty(report.calibration) else _card("beside", calibration),
    )
    yield _Section("series", "Series", _series(report, series))
    training = _chart("training", "Loss, validation error and learning rate by optimiser step")
    yield _Section("training", "Training", "" if is_empty(report.curves) else _card("", training))
    data = pairs_table(report.data, "Data")
    yield _Section("data", "Data", _card("", data) if report.data else "")
    yield _Section("settings", "Settings", _settings(_cut(report.settings)))
    yield _Section("use", "Use the model", _how_to_load(_cut(report.how_to_load)))


def _figures(report: Report) -> str:
    methods = method_names(report)
    tables = "".join(_card("", figures_table(table, methods)) for table in report.headline)
    return f'<div class="tables">{tables}</div>' if tables else ""


def _errors(report: Report) -> str:
    tables = [by for by, table in report.error_by.items() if len(table)]
    charts = "".join(
        _card("", f"<h3>By {escape(by)}</h3>" + _chart("errors", f"{_error(report)} by {by}", part))
        for part, by in enumerate(tables)
    )
    unit = f" ({report.unit})" if report.unit else ""
    lead = f"<p>{escape(_error(report) + unit)}; lower is better.</p>"
    return f'{lead}<div class="grid">{charts}</div>' if charts else ""


def _series(report: Report, series: Sequence[str]) -> str:
    if is_empty(report.series):
        return ""
    places = {name: place for place, name in enumerate(series)}
    table, note = series_table(report.series, method_names(report), places)
    unit = f" in {report.unit}" if report.unit else ""
    linked = " Click a linked series to see its forecasts above." if series else ""
    lead = f"{_error(report)}{unit}, the worst series first. {note}{linked}"
    return _card("", f"<p>{escape(lead)}</p>{table}")


def _error(report: Report) -> str:
    return report.error[:1].upper() + report.error[1:]


def _settings(text: str) -> str:
    details = (
        f"<details><summary>All settings of the run</summary><pre>{escape(text)}</pre></details>"
    )
    return _card("", details) if text else ""


def _how_to_load(code: str) -> str:
    button = '<button type="button" class="copy">Copy</button>'
    return _card("code", f"{button}<pre><code>{escape(code)}</code></pre>") if code else ""


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}\n# The rest is left out."


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<ul class="notes">{items}</ul>' if notes else ""


def _what_is_left_out(report: Report, num_windows: int, num_series: int) -> list[str]:
    if num_windows == len(report.windows):
        return []
    all_series = len({window.series for window in report.windows})
    return [
        f"To keep the page small it shows {num_windows:,} of {len(report.windows):,} forecasts: "
        f"the first ones of {num_series:,} of {all_series:,} series."
    ]


def _chart(kind: str, label: str, part: int = 0) -> str:
    """Return where page.js draws a chart, below its legend."""
    return (
        f'<div class="plot"><div class="legend"></div><div class="chart {kind}" role="group" '
        f'data-kind="{kind}" data-part="{part}" aria-label="{escape(label)}"></div></div>'
    )


def _card(classes: str, html: str) -> str:
    return f'<div class="card {classes}">{html}</div>'


@cache
def _plotly() -> tuple[str, str]:
    """Return Plotly, packed, in an element that no browser runs as it is, and its hash.

    It is most of the page: packed, 2 MB in place of 5; page.js unpacks it.
    """
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs()
    packed = b64encode(gzip.compress(source.encode(), mtime=0)).decode()
    return f'<script type="application/gzip" id="plotly">{packed}</script>', _hash(source)


def _hash(script: str) -> str:
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}"


@cache
def _read(name: str) -> str:
    return (files("tsformer.report") / name).read_text(encoding="utf-8")
