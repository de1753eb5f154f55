"""Figures of a fit's end, against plain loops over the table."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.data.frames import long_frame
from tsformer import report
from tsformer.data.forecast_data import ForecastData
from tsformer.data.table import SeriesTable
from tsformer.metrics import QuantileSums
from tsformer.nn import ForecastNetwork
from tsformer.report import MODEL, coverage_table, evaluate, target_metrics

H = 4
NAIVE = "seasonal naive (daily)"


def data_of(fit_config, channels: str, transform: str) -> ForecastData:
    rng = np.random.default_rng(0)
    frame = long_frame({id: 5 + rng.random(size=200) for id in ("a", "b", "c")})
    frame = frame.assign(z=100 * frame["y"] ** 2)
    frame.loc[rng.choice(600, 60), "z"] = np.nan
    overrides = {"model.channels": channels, "scaling.transform": transform, "context_length": 24}
    table = SeriesTable.from_(frame, target=["y", "z"])
    return ForecastData(table, fit_config(overrides))


def network_of(data: ForecastData) -> ForecastNetwork:
    model = data.config.model.model_dump(exclude={"channels", "compile"})
    return ForecastNetwork(
        context_length=24,
        horizon=H,
        num_channels=data.groups.shape[1],
        cardinalities=[0] * data.calendar.shape[1],
        num_future_features=data.calendar.shape[1],
        static_cardinalities=[],
        **model,
    ).eval()


def naive_errors(data: ForecastData, target: int) -> np.ndarray:
    """Errors of yesterday's values over every test window of one target column."""
    errors = []
    for series in range(target, 6, 2):
        y = data.store.values(series, 0, 200)
        for origin in range(160, 200 - H + 1):
            for step in range(H):
                back = origin + step - 24
                while np.isnan(y[back]):
                    back -= 24
                errors.append(y[origin + step] - y[back])
    return np.array(errors)


@pytest.mark.parametrize("transform", ["none", "log1p"])
@pytest.mark.parametrize("channels", ["independent", "joint"])
def test_figures_are_those_of_every_test_window_in_units_of_the_table(
    fit_config, channels, transform
):
    data = data_of(fit_config, channels, transform)
    evaluations = evaluate(data, network_of(data), batch_size=7)
    by_target = target_metrics(data, evaluations)
    every = []
    for number, name in enumerate(("y", "z")):
        errors = naive_errors(data, number)
        every.append(errors)
        found = by_target[name][NAIVE]
        assert_allclose(found["mae"], np.nanmean(np.abs(errors)), rtol=1e-6)
        assert_allclose(found["rmse"], np.nanmean(errors**2) ** 0.5, rtol=1e-6)
    pooled = report.test_metrics(data, evaluations)
    assert_allclose(pooled[NAIVE]["mae"], np.nanmean(np.abs(np.concatenate(every))), rtol=1e-6)
    # Squares of the same noise, a hundredfold: what is scaled is alike, what is not is not.
    assert by_target["z"][MODEL]["mae"] > 50 * by_target["y"][MODEL]["mae"]
    ratio = by_target["z"][MODEL]["scaled_mae"] / by_target["y"][MODEL]["scaled_mae"]
    assert 0.5 < ratio < 2


def test_one_target_column_has_no_figures_by_target(fit_config):
    rng = np.random.default_rng(0)
    table = SeriesTable.from_(long_frame({"a": rng.random(size=200)}))
    data = ForecastData(table, fit_config({"context_length": 24}))
    assert target_metrics(data, evaluate(data, network_of(data))) == {}


def test_intervals_are_told_with_what_they_promise_what_they_hold_and_how_wide_they_are(
    fit_config,
):
    data = data_of(fit_config, "independent", "none")
    sums = QuantileSums(1, 1, 1, (0.05, 0.25, 0.5, 0.75, 0.95))
    forecast = torch.tensor([-100.0, -2.0, 0.0, 2.0, 1900.0]).expand(8, 1, 1, 5)
    truth = torch.arange(8.0)[:, None, None]  # 0, 1 and 2 lie within the narrow one
    sums.update(forecast, truth, torch.ones_like(truth) > 0, torch.zeros(8).long())
    table = coverage_table(data, {"raw": sums.compute(), "again": sums.compute()}, target="y")
    assert table.title.endswith("test windows, target y")
    cells = [list(column.cells) for column in table.columns]
    assert cells == [
        ["raw", "raw", "again", "again"],
        ["90%", "50%"] * 2,
        ["100.0%", "37.5%"] * 2,
        ["2,000", "4"] * 2,
    ]
    assert [column.header for column in table.columns] == ["", "Nominal", "Covered", "Width"]
