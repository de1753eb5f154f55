"""What the page of a fit shows, against the figures of its test."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from tests.data.frames import long_frame
from tests.evaluation.test_testing import NAIVE, QUANTILES, H, data_of, forecaster_of
from tsformer.data.forecast_data import ForecastData
from tsformer.data.table import SeriesTable
from tsformer.evaluation.testing import MODEL, evaluate, naive_error
from tsformer.report import of_fit
from tsformer.report.content import Report


def hourly(fit_config, **model: object) -> ForecastData:
    """Series of one target column, with missing values."""
    rng = np.random.default_rng(0)
    frame = long_frame({id: 5 + rng.random(size=400) for id in ("a", "b", "c")})
    frame.loc[rng.choice(1200, 90), "y"] = np.nan
    overrides = {"context_length": 24} | {f"model.{name}": value for name, value in model.items()}
    return ForecastData(SeriesTable.from_(frame), fit_config(overrides))


def last_known(y: np.ndarray, position: int, season: int) -> float:
    """Return the value of the latest season that has one."""
    before = y[position - season :: -season]
    return next((value for value in before if not np.isnan(value)), np.nan)


def report_of(data: ForecastData) -> Report:
    forecaster = forecaster_of(data)
    return of_fit.fit_report(data, forecaster, evaluate(data, forecaster), [], Path("run"), 7)


def test_errors_are_those_of_every_test_window(fit_config):
    data = hourly(fit_config)
    report, evaluations = report_of(data), evaluate(data, forecaster_of(data))
    for method in (MODEL, NAIVE):
        errors = evaluations[method].original
        by_step = report.error_by["horizon step"][method]
        assert_allclose(by_step, errors.absolute.sum((0, 2)) / errors.count.sum((0, 2)))
        assert list(by_step.index) == [1, 2, 3, 4]
        each = errors.absolute.sum((1, 2)) / errors.count.sum((1, 2))
        assert_allclose(report.series[method].loc[["a", "b", "c"]], each)
    assert report.series[MODEL].is_monotonic_decreasing
    assert list(report.series.columns) == list(evaluations)
    assert report.error == "mean absolute error"
    assert report.calibration is None


def test_errors_by_hour_of_all_windows_are_counted_by_hand(fit_config):
    data = hourly(fit_config)
    report = report_of(data)
    errors: dict[int, list[float]] = {}
    for group, origin in zip(*data.test.index.locate(np.arange(len(data.test))), strict=True):
        y = data.store.values(data.groups[group, 0], 0, 400)
        for position in range(origin, origin + H):
            daily, weekly = (last_known(y, position, season) for season in (24, 168))
            if not np.isnan([y[position], daily, weekly]).any():
                hour = data.store.grid[position].hour
                errors.setdefault(hour, []).append(abs(y[position] - daily))
    hours = report.error_by["hour"][NAIVE]
    assert_allclose(hours, [np.mean(errors[hour]) for hour in hours.index], rtol=1e-6)
    assert report.notes == []


def test_a_sample_is_told(fit_config, monkeypatch):
    monkeypatch.setattr(of_fit, "_SAMPLE", 200)
    report = report_of(hourly(fit_config))
    (note,) = report.notes
    assert "50 of" in note
    assert "hour" in note


def test_targets_of_different_units_are_measured_by_their_own_scale(fit_config):
    data = data_of(fit_config)
    report = report_of(data)
    assert (report.error, report.unit) == ("MASE", None)
    errors = evaluate(data, forecaster_of(data))[MODEL].original
    mae = errors.absolute.sum(1) / errors.count.sum(1)  # (N, C)
    expected = (mae / naive_error(data)).ravel()
    names = [data.store.ids[series] for series in data.groups.ravel()]
    assert_allclose(report.series[MODEL].loc[names], expected)


@pytest.mark.parametrize("channels", ["independent", "joint"])
def test_windows_show_truth_forecasts_and_intervals(fit_config, channels):
    data = data_of(fit_config, channels, head="quantile", quantiles=QUANTILES)
    report = report_of(data)
    assert {view.series for view in report.windows} == set(data.store.ids)
    for view in report.windows:
        series = data.store.ids.index(view.series)
        origin = data.store.grid.get_loc(view.truth.index[0])
        assert_allclose(view.truth, data.store.values(series, origin, origin + H))
        seen = data.store.values(series, origin - len(view.context), origin)
        assert_allclose(view.context, seen)
        assert view.cutoff == view.context.index[-1] == data.store.grid[origin - 1]
        assert [*view.forecasts] == [MODEL, NAIVE, "seasonal naive (weekly)"]
        assert [*view.intervals] == [0.9, 0.5]
        low, high = view.intervals[0.9]
        assert (low <= view.forecasts[MODEL]).all()
        assert (view.forecasts[MODEL] <= high).all()
    assert list(report.calibration.index) == QUANTILES


def test_the_table_is_summed_up(fit_config):
    data = hourly(fit_config)
    told = report_of(data).data
    assert told["series"] == "3"
    assert told["rows"] == "1,200"
    missing = sum(np.isnan(data.store.values(s, 0, 400)).sum() for s in range(3))
    assert told["missing values"].startswith(f"{missing} ")
    assert told["test windows"] == f"{len(data.test):,}"
    assert isinstance(report_of(data).error_by["weekday"], pd.DataFrame)
