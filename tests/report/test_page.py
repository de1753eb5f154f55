"""What the page says, without a browser."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.report.samples import demand_report, small_report, window_view
from tsformer.report.charts import windows_within
from tsformer.report.content import Figures, Report, WindowView
from tsformer.report.html_tables import format_column
from tsformer.report.page import render, write_report

HOSTILE = "<img src=x onerror=alert(1)></script><!-- \"' &amp; ${title}"
SECTIONS = {
    "headline": "results",
    "windows": "forecasts",
    "error_by": "errors",
    "calibration": "calibration",
    "series": "series",
    "curves": "training",
    "data": "data",
    "settings": "settings",
    "how_to_load": "use",
}


class Page(HTMLParser):
    """Tags, ids, links, attributes and texts of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sections: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.data: dict[str, Any] = {}
        self._in_data = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        self.attributes.update(named)
        if tag == "section":
            self.sections.append(named["id"])
        if tag == "a":
            self.links.append(named["href"].removeprefix("#"))
        if tag == "tr":
            self.rows.append([])
        self._in_data = named.get("id") == "report-data"

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self.data = json.loads(data)
        elif data.strip() and len(data) < 100_000:
            self.texts.append(data)
            if self.rows:
                self.rows[-1].append(data)


def empty_report() -> Report:
    return small_report()


def test_a_page_of_all_parts_has_all_sections_and_links_to_them() -> None:
    page = Page(render(demand_report()))
    assert page.sections == page.links == list(SECTIONS.values())


@pytest.mark.parametrize("part", SECTIONS)
def test_a_part_stands_alone(part: str) -> None:
    report = replace(empty_report(), **{part: getattr(demand_report(), part)})
    assert Page(render(report)).sections == [SECTIONS[part]]


@pytest.mark.parametrize("empty", [(), {}, pd.DataFrame(), {"hour": pd.DataFrame()}])
def test_empty_parts_are_left_out(empty: Any) -> None:
    parts = {
        "headline": (),
        "error_by": empty if isinstance(empty, dict) else {},
        **dict.fromkeys(
            ("calibration", "series", "curves"), empty if isinstance(empty, pd.DataFrame) else None
        ),
    }
    assert Page(render(replace(empty_report(), **parts))).sections == []


def test_equal_reports_give_equal_pages() -> None:
    assert render(demand_report()) == render(demand_report())


def test_a_page_names_no_other_place() -> None:
    html = render(demand_report())
    begin = html.index('<script type="application/gzip"')
    own = html[:begin] + html[html.index("</script>", begin) :]
    assert "http:" not in own
    assert "https:" not in own
    assert "src=" not in own
    assert "default-src 'none'" in own


def hostile_report() -> Report:
    """Return the sample with markup wherever a user's text is shown."""
    sample = demand_report()

    def renamed(table: pd.DataFrame) -> pd.DataFrame:
        return table.rename(columns={"tsformer": HOSTILE})

    view = sample.windows[0]
    forecasts = {HOSTILE: view.forecasts["tsformer"]}
    return replace(
        sample,
        title=HOSTILE,
        subtitle=HOSTILE,
        headline=[Figures(HOSTILE, (HOSTILE, HOSTILE), [(HOSTILE, HOSTILE)], HOSTILE)],
        windows=[replace(view, series=HOSTILE, forecasts=forecasts)],
        error_by={HOSTILE: renamed(sample.error_by["weekday"].rename({"Mon": HOSTILE}))},
        calibration=renamed(sample.calibration),
        series=renamed(sample.series).rename({"Victoria": HOSTILE}),
        curves=sample.curves.rename(columns={"lr-AdamW": f"lr-{HOSTILE}"}),
        data={HOSTILE: HOSTILE},
        settings=HOSTILE,
        how_to_load=HOSTILE,
        notes=[HOSTILE],
        unit=HOSTILE,
    )


def test_markup_in_texts_is_inert() -> None:
    page, harmless = Page(render(hostile_report())), Page(render(demand_report()))
    assert "img" not in page.tags
    assert page.tags.count("script") == harmless.tags.count("script")
    assert page.attributes == harmless.attributes
    shown = HOSTILE
    assert page.data["series"][0]["name"] == shown
    assert page.data["unit"] == shown
    assert shown in page.texts


def test_long_ids_are_cut_off_on_the_page() -> None:
    view = window_view("é" * 1_000_000)
    series = pd.DataFrame({"tsformer": [1.0]}, index=[view.series])
    html = render(replace(small_report([view]), series=series))
    assert len(html.encode()) < 2_500_000
    assert Page(html).data["series"][0]["name"] == f"{'é' * 199}…"


def window_of(page: Page, series: int = 0, place: int = 0) -> dict[str, Any]:
    return page.data["series"][series]["windows"][place]


def test_what_is_not_a_number_is_null_and_numbers_have_six_digits() -> None:
    index = pd.date_range("2024-01-01", periods=6, freq="h")
    values = pd.Series([np.nan, np.inf, -np.inf, 1 / 3, 1234567.8, 2e-9], index=index)
    view = WindowView("a", index[-1], values[:0], values, {"tsformer": values})
    window = window_of(Page(render(small_report([view]))))
    assert window["truth"] == [None, None, None, 0.333333, 1234570.0, 2e-9]
    assert window["forecasts"] == {"tsformer": window["truth"]}
    assert window["seen"] == {"times": [], "values": []}


def test_forecasts_are_told_at_the_times_of_the_truth() -> None:
    index = pd.date_range("2024-01-01", periods=3, freq="D")
    truth = pd.Series([1.0, 2.0, 3.0], index=index)
    view = WindowView("a", index[0], truth[:1], truth, {"tsformer": truth.iloc[[2, 1]]})
    window = window_of(Page(render(small_report([view]))))
    assert window["forecasts"]["tsformer"] == [None, 2, 3]
    assert window["label"] == "2024-01-01"


def expanded(times: Sequence[int]) -> pd.DatetimeIndex:
    """Return times from the first one and runs of equal steps."""
    start, runs = times[0], times[1:]
    told = [start]
    for step, count in zip(runs[::2], runs[1::2], strict=True):
        told += [told[-1] + step * number for number in range(1, count + 1)]
    return pd.to_datetime(told, unit="ms")


@pytest.mark.parametrize(
    ("start", "zone", "freq"),
    [
        ("2024-03-30", "Europe/Berlin", "30min"),  # an hour is left out
        ("2024-10-26", "Europe/Berlin", "30min"),  # an hour comes twice
        ("2024-04-06", "Australia/Lord_Howe", "h"),  # clocks go back by half an hour
        ("2024-01-31", None, "D"),
        ("2023-01-31", "UTC", "ME"),
    ],
)
def test_times_are_those_of_the_zone_they_carry(start: str, zone: str | None, freq: str) -> None:
    index = pd.date_range(start, periods=100, freq=freq, tz=zone)
    values = pd.Series(np.arange(100.0), index=index)
    view = WindowView("a", index[59], values[:60], values[60:], {"tsformer": values[60:]})
    window = window_of(Page(render(small_report([view]))))
    local = index.tz_localize(None)
    assert list(expanded(window["seen"]["times"])) == list(local[:60])
    assert list(expanded(window["times"])) == list(local[60:])
    assert pd.Timestamp(window["cutoff"], unit="ms") == local[59]
    assert window["zone"] == zone


def test_a_cutoff_of_another_zone_is_told_in_that_of_the_values() -> None:
    view = window_view(zone="Australia/Melbourne")
    moved = replace(view, cutoff=view.cutoff.tz_convert("UTC"))
    pages = [Page(render(small_report([window]))) for window in (view, moved)]
    assert window_of(pages[0]) == window_of(pages[1])


@given(
    st.lists(st.sampled_from("abcd"), max_size=12).flatmap(
        lambda names: st.tuples(st.just(names), st.integers(0, len(names)))
    )
)
def test_windows_beyond_the_budget_are_left_out_evenly(case: tuple[list[str], int]) -> None:
    names, fitting = case
    view = window_view(context=2, horizon=2)
    windows = [replace(view, series=name) for name in names]
    size = len(windows_within([view])[0][1])
    kept = [name for name, _ in windows_within(windows, max_bytes=size * fitting + size // 2)]
    assert len(kept) == fitting
    counts = {name: kept.count(name) for name in names}
    most = max(counts.values(), default=0)
    assert all(count >= min(names.count(name), most - 1) for name, count in counts.items())
    firsts = [name for place, name in enumerate(names) if names[:place].count(name) < counts[name]]
    assert kept == firsts


def test_all_windows_are_shown_where_they_fit() -> None:
    page = Page(render(demand_report()))
    assert [len(series["windows"]) for series in page.data["series"]] == [8] * 5
    assert not any("To keep the page small" in text for text in page.texts)


def test_a_hundred_thousand_series_fit_into_a_page() -> None:
    names = [f"meter {number}" for number in range(100_000)]
    view = window_view()
    errors = pd.DataFrame({"tsformer": np.arange(100_000.0), "naive": 1.5}, index=names)
    report = replace(
        small_report([replace(view, series=name) for name in names]), series=errors, unit="kWh"
    )
    html = render(report)
    assert 2_000_000 < len(html.encode()) < 10_000_000
    page = Page(html)
    shown = len(page.data["series"])
    assert 100 < shown < 1_000
    (note,) = (text for text in page.texts if text.startswith("To keep the page small"))
    assert f"{shown} of 100,000 forecasts" in note
    assert any("100 worst and the 100 best of 100,000 series" in text for text in page.texts)
    ranked = [row for row in page.rows if len(row) >= 4 and row[1].startswith("meter")]
    assert [row[0] for row in ranked] == [
        f"{rank:,}" for rank in (*range(1, 101), *range(99_901, 100_001))
    ]
    assert ranked[0] == ["1", "meter 99999", "99,999", "1.500"]
    assert ranked[-1][:3] == ["100,000", "meter 0", "0"]


def test_series_without_an_error_are_not_ranked() -> None:
    errors = pd.DataFrame({"tsformer": [1.0, np.nan, 2.0]}, index=["a", "b", "c"])
    page = Page(render(replace(empty_report(), series=errors)))
    assert [row[1] for row in page.rows[1:]] == ["c", "a"]


def test_long_curves_are_thinned_and_gaps_closed() -> None:
    curves = pd.DataFrame({"step": np.arange(100_000), "train/loss": 1.0, "val/mae": np.nan})
    curves.loc[[0, 99_999], "val/mae"] = 0.5, 0.25
    training = Page(render(replace(empty_report(), curves=curves))).data["training"]
    assert 1_000 <= len(training["loss"]["steps"]) <= 2_000
    assert training["error"] == {"steps": [0, 99_999], "values": [0.5, 0.25]}
    assert training["bestStep"] is None


@pytest.mark.parametrize(
    ("cells", "texts"),
    [
        ([105.1, 321.42, 484.0], ["105.1", "321.4", "484.0"]),
        ([0.02695, 0.2875], ["0.0270", "0.2875"]),
        ([7.1234, 12345.6], ["7.12", "12,345.60"]),
        ([10474.0, 3], ["10,474", "3"]),
        ([None, float("nan"), "67%", 0.5], ["–", "–", "67%", "0.5000"]),  # noqa: RUF001
        ([1e-12, 3e20], ["1e-12", "3e+20"]),
        ([-0.25, 0.0], ["-0.2500", "0.0000"]),
        ([], []),
    ],
)
def test_figures_of_a_column_are_aligned(cells: list, texts: list[str]) -> None:
    assert format_column(cells) == texts


def test_the_row_of_the_model_stands_out() -> None:
    figures = Figures("Test", ("", "MAE"), [("naive", 2.0), ("tsformer", 1.0)])
    report = replace(small_report([window_view()]), headline=[figures])
    html = render(report)
    assert html.count("<tr class=model>") == 1
    assert "tsformer" in html.partition("<tr class=model>")[2][:120]


def test_a_report_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(demand_report(), path)
    assert path.read_bytes() == render(demand_report()).encode()
    assert list(tmp_path.iterdir()) == [path]


def test_errors_by_part_keep_their_order() -> None:
    sample: Mapping[str, pd.DataFrame] = demand_report().error_by
    errors = Page(render(demand_report())).data["errors"]
    assert [part["by"] for part in errors] == list(sample)
    for part in errors:
        assert part["groups"] == sample[part["by"]].index.to_list()
        for method, values in part["methods"].items():
            np.testing.assert_allclose(values, sample[part["by"]][method], rtol=1e-5)


def test_errors_are_called_what_they_are():
    plain = demand_report()
    assert "<p>Mean absolute error (MW); lower is better.</p>" in render(plain)
    page = render(replace(plain, error="MASE", unit=None))
    assert "<p>MASE; lower is better.</p>" in page
    assert 'aria-label="MASE by hour"' in page
    assert "MASE, the worst series first." in page
    assert "Mean absolute error" not in page[: page.index("<script")]  # of a window it is one
