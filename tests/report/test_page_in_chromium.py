"""The page in a real browser, as a reader uses it."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from tests.report.samples import demand_report, small_report, window_view
from tsformer.report.content import Report
from tsformer.report.page import write_report

FORECAST = ".chart.forecast"
HOSTILE = ("<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "a & <b>b</b> $x$")
OPTIONS = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
    *("disable-background-networking", "disable-component-update", "disable-sync"),
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Give one Chromium for all tests; in CI there has to be one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        message = "there is no chromium, or no chromedriver"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for name in (*OPTIONS, f"user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(f"--{name}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


Open = Callable[..., webdriver.Chrome]


@pytest.fixture
def open_page(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[Open]:
    """Give a function that shows a report; afterwards the browser has complained of nothing."""

    def show(report: Report, width: int = 1200, *, dark: bool = False) -> webdriver.Chrome:
        write_report(report, tmp_path / "report.html")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
        browser.get_log("performance")
        browser.get((tmp_path / "report.html").as_uri())
        return browser

    yield show
    assert browser.get_log("browser") == []


def wait_for(browser: webdriver.Chrome, script: str) -> Any:
    return WebDriverWait(browser, 20).until(lambda driver: driver.execute_script(script))


def drawn(browser: webdriver.Chrome, chart: str = FORECAST) -> list[dict[str, Any]]:
    """Return the traces of a chart, once they are drawn."""
    browser.execute_script(
        f"document.querySelector('{chart}').scrollIntoView({{behavior: 'instant'}})"
    )
    wait_for(browser, f"return document.querySelector('{chart}').data?.length > 0")
    return browser.execute_script(
        f"return document.querySelector('{chart}').data"
        ".map(({name, x, y}) => ({name, x: [...x], y: [...y]}))"
    )


def drawn_after(browser: webdriver.Chrome, act: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the traces of the forecast after an action that changes them."""
    before = drawn(browser)
    act()
    WebDriverWait(browser, 20).until(lambda _: drawn(browser) != before)
    return drawn(browser)


def values_of(traces: list[dict[str, Any]], name: str) -> list[float]:
    return next(trace["y"] for trace in traces if trace["name"] == name)


def click(browser: webdriver.Chrome, css: str) -> None:
    click_on(browser, browser.find_element(By.CSS_SELECTOR, css))


def click_on(browser: webdriver.Chrome, element: WebElement) -> None:
    to_middle = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
    browser.execute_script(to_middle, element)
    element.click()


def test_a_page_opens_without_a_request_and_draws_each_chart(open_page: Open) -> None:
    browser = open_page(demand_report())
    charts = browser.execute_script("return document.querySelectorAll('.chart').length")
    assert charts >= 6
    for number in range(charts):
        script = f"document.querySelectorAll('.chart')[{number}]"
        browser.execute_script(f"{script}.scrollIntoView()")
        wait_for(browser, f"return {script}.querySelector('svg.main-svg') !== null")
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    asked = [url for url in urls if not url.startswith(("data:", "chrome:", "file:", "blob:"))]
    assert asked == []


def test_series_and_windows_are_chosen(open_page: Open) -> None:
    report = demand_report()
    browser = open_page(report)
    of = {
        name: [w for w in report.windows if w.series == name] for name in ("Victoria", "Tasmania")
    }

    def shows(traces: list[dict[str, Any]], series: str, place: int) -> None:
        forecast = of[series][place].forecasts["tsformer"]
        assert values_of(traces, "tsformer") == pytest.approx(list(forecast), rel=1e-5)
        truth = next(trace for trace in traces if trace["name"] == "truth")
        first = of[series][place].truth.index[0]  # local times, as the zone's clock has them
        assert any(x.startswith(f"{first:%Y-%m-%d %H:%M}") for x in truth["x"])

    shows(drawn(browser), "Victoria", 0)
    chooser = Select(browser.find_element(By.ID, "series-choice"))
    shows(drawn_after(browser, lambda: chooser.select_by_visible_text("Tasmania")), "Tasmania", 0)
    assert not browser.find_element(By.ID, "previous").is_enabled()
    shows(drawn_after(browser, lambda: click(browser, "#next")), "Tasmania", 1)
    assert browser.find_element(By.ID, "position").text == "2 of 8"
    shows(drawn_after(browser, lambda: click(browser, "#previous")), "Tasmania", 0)
    windows = Select(browser.find_element(By.ID, "window-choice"))
    shows(drawn_after(browser, lambda: windows.select_by_index(7)), "Tasmania", 7)
    assert not browser.find_element(By.ID, "next").is_enabled()


def test_methods_are_shown_and_hidden_and_the_context_lengthened(open_page: Open) -> None:
    browser = open_page(demand_report())
    name = "seasonal naive (daily)"
    assert name in [trace["name"] for trace in drawn(browser)]
    entry = f"//div[contains(@class, 'legend')]/button[contains(., '{name}')]"

    def switch() -> None:
        click_on(browser, browser.find_element(By.XPATH, entry))

    hidden = drawn_after(browser, switch)
    assert name not in [trace["name"] for trace in hidden]
    assert name in [trace["name"] for trace in drawn_after(browser, switch)]
    short = len(values_of(drawn(browser), "context"))
    long = drawn_after(browser, lambda: click(browser, "#whole"))
    assert len(values_of(long, "context")) > short


def test_the_table_of_series_is_sorted_and_leads_to_forecasts(open_page: Open) -> None:
    report = demand_report()
    browser = open_page(report)

    def column(number: int) -> list[str]:
        cells = browser.find_elements(By.CSS_SELECTOR, f".sortable td:nth-of-type({number})")
        return [cell.get_attribute("data-value") for cell in cells]

    heads = browser.find_elements(By.CSS_SELECTOR, ".sortable thead th button")
    for direction in (1, -1):
        click_on(browser, heads[2])
        values = [direction * float(x) for x in column(2)]
        assert values == sorted(values)
    link = browser.find_element(
        By.XPATH, "//table[contains(@class,'sortable')]//button[.='Tasmania']"
    )
    traces = drawn_after(browser, lambda: click_on(browser, link))
    tasmania = next(w for w in report.windows if w.series == "Tasmania")
    assert values_of(traces, "tsformer") == pytest.approx(
        list(tasmania.forecasts["tsformer"]), rel=1e-5
    )


def test_light_and_dark_follow_the_system_until_they_are_chosen(open_page: Open) -> None:
    def background() -> str:
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    browser = open_page(demand_report())
    light = background()
    click(browser, "#theme")
    dark = background()
    assert dark != light
    browser = open_page(demand_report(), dark=True)
    assert background() == dark
    click(browser, "#theme")
    assert background() == light


@pytest.mark.parametrize("width", [360, 768])
def test_a_narrow_page_scrolls_downwards_alone(width: int, open_page: Open) -> None:
    report = demand_report()
    long = replace(report, title="x" * 300, windows=[window_view("y" * 500), *report.windows])
    browser = open_page(long, width)
    drawn(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("name", HOSTILE)
def test_names_that_look_like_markup_are_shown_as_text(name: str, open_page: Open) -> None:
    view = window_view(name)
    view = replace(view, forecasts={"tsformer": view.truth + 1, name: view.truth - 1})
    errors = pd.DataFrame({"tsformer": [1.0], name: [2.0]}, index=[name])
    report = replace(
        small_report([view]),
        title=name,
        subtitle=name,
        notes=[name],
        series=errors,
        error_by={name: errors},
        settings=name,
        how_to_load=name,
        unit=name,
        data={name: name},
    )
    browser = open_page(report)
    drawn(browser)
    drawn(browser, ".chart:not(.forecast)")
    assert browser.title == " ".join(name.split())
    assert browser.find_element(By.TAG_NAME, "h1").text == name
    assert Select(browser.find_element(By.ID, "series-choice")).options[0].text == name
    assert (
        browser.execute_script(
            "return document.querySelectorAll('img, main script, main b').length"
        )
        == 0
    )
    label = browser.execute_script(
        f"return document.querySelector('{FORECAST} .ytitle')?.textContent"
    )
    assert label == name


def test_a_report_of_one_series_and_one_window_needs_no_choice(open_page: Open) -> None:
    browser = open_page(small_report([window_view(zone=None)]))
    assert len(values_of(drawn(browser), "truth")) >= 48
    assert not browser.find_element(By.ID, "next").is_enabled()
    assert not browser.find_elements(By.CSS_SELECTOR, ".sortable")
