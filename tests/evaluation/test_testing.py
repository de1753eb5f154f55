"""Figures of a fit's end, against plain loops over the table."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.data.frames import long_frame
from tsformer.data.forecast_data import ForecastData
from tsformer.data.table import SeriesTable
from tsformer.evaluation import testing
from tsformer.evaluation.testing import MODEL, Evaluation, evaluate, target_metrics
from tsformer.forecaster import Forecaster
from tsformer.metrics import ErrorSums, QuantileSums
from tsformer.model.config import network_settings
from tsformer.model.conformal import ConformalOffsets
from tsformer.nn import ForecastNetwork
from tsformer.prediction.forecasting import forecast_windows
from tsformer.report import figures
from tsformer.report.tables import coverage_figures, figures_table, metrics_figures
from tsformer.training import describe_forecaster

H = 4
NAIVE, WEEKLY = "seasonal naive (daily)", "seasonal naive (weekly)"


def data_of(
    fit_config, channels: str = "independent", transform: str = "none", **model: object
) -> ForecastData:
    rng = np.random.default_rng(0)
    frame = long_frame({id: 5 + rng.random(size=200) for id in ("a", "b", "c")})
    frame = frame.assign(z=100 * frame["y"] ** 2)
    frame.loc[rng.choice(600, 60), "z"] = np.nan
    overrides = {"model.channels": channels, "scaling.transform": transform, "context_length": 24}
    overrides |= {"eval_batch_size": 7}
    overrides |= {f"model.{name}": value for name, value in model.items()}
    table = SeriesTable.from_(frame, target=["y", "z"])
    return ForecastData(table, fit_config(overrides))


def forecaster_of(data: ForecastData, offsets: np.ndarray | None = None) -> Forecaster:
    """Return a forecaster with random weights, and offsets of its quantiles if they are given."""
    config = describe_forecaster(data, data.config)
    torch.manual_seed(0)
    network = ForecastNetwork(**network_settings(config))
    if offsets is None:
        return Forecaster(network, config)
    levels = tuple(data.config.model.quantiles)
    return Forecaster(network, config, ConformalOffsets(levels, offsets.astype(np.float32)))


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
    evaluations = evaluate(data, forecaster_of(data))
    by_target = target_metrics(data, evaluations)
    every = []
    for number, name in enumerate(("y", "z")):
        errors = naive_errors(data, number)
        every.append(errors)
        found = by_target[name][NAIVE]
        assert_allclose(found["mae"], np.nanmean(np.abs(errors)), rtol=1e-6)
        assert_allclose(found["rmse"], np.nanmean(errors**2) ** 0.5, rtol=1e-6)
    pooled = testing.test_metrics(data, evaluations)
    assert_allclose(pooled[NAIVE]["mae"], np.nanmean(np.abs(np.concatenate(every))), rtol=1e-6)
    # Squares of the same noise, a hundredfold: what is scaled is alike, what is not is not.
    assert by_target["z"][MODEL]["mae"] > 50 * by_target["y"][MODEL]["mae"]
    ratio = by_target["z"][MODEL]["scaled_mae"] / by_target["y"][MODEL]["scaled_mae"]
    assert 0.5 < ratio < 2


def test_one_target_column_has_no_figures_by_target(fit_config):
    rng = np.random.default_rng(0)
    table = SeriesTable.from_(long_frame({"a": rng.random(size=200)}))
    data = ForecastData(table, fit_config({"context_length": 24}))
    assert target_metrics(data, evaluate(data, forecaster_of(data))) == {}


def test_improvements_are_on_the_steps_that_both_methods_forecast(fit_config):
    rng = np.random.default_rng(0)
    values = {"a": 5 + rng.random(size=200), "late": 5 + 9 * rng.random(size=60)}
    table = SeriesTable.from_(long_frame(values, {"late": 140}))
    data = ForecastData(table, fit_config({"context_length": 24, "eval_batch_size": 7}))
    forecaster = forecaster_of(data)
    metrics = testing.test_metrics(data, evaluate(data, forecaster))

    errors = {MODEL: [], WEEKLY: []}  # of all steps with a weekly forecast
    missing = 0
    for window in range(len(data.test)):
        points, _ = testing.forecast_test(data, forecaster, np.array([window]))
        group, origin = data.test.index.locate(np.array([window]))
        series = data.groups[group]
        for step in range(H):
            back = data.store.at(series, origin[:, None] + step - 168)
            if np.isnan(back).any():
                missing += 1
                continue
            truth = data.store.at(series, origin[:, None] + step)
            for method, found in errors.items():
                difference = points[method][:, step] - truth
                found.append((np.abs(difference) / data.scaler.std[series]).item())
    assert 0 < missing < len(data.test) * H
    assert_allclose(metrics[WEEKLY]["scaled_mae"], np.mean(errors[WEEKLY]), rtol=1e-5)
    less = 1 - np.mean(errors[MODEL]) / np.mean(errors[WEEKLY])
    assert_allclose(metrics[WEEKLY]["improvement"], less, rtol=1e-5)
    own = metrics[MODEL]["scaled_mae"]
    assert abs(1 - own / metrics[WEEKLY]["scaled_mae"] - less) > 0.05
    # The daily ones lack nothing, and neither have other figures than before.
    assert metrics[NAIVE]["improvement"] == 1 - own / metrics[NAIVE]["scaled_mae"]
    cells = [list(column.cells) for column in figures_table(metrics_figures(data, metrics)).columns]
    assert cells[-1] == ["", *(f"{metrics[name]['improvement']:.1%}" for name in (NAIVE, WEEKLY))]


QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]


def quantiles_by_window(
    data: ForecastData, forecaster: Forecaster, offsets: np.ndarray | None
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield each test window's series, truths (H,) and quantiles (H, Q), in units of the table."""
    for window in range(len(data.test)):
        batch = data.test[np.array([window])]
        ours = forecast_windows(forecaster.network, batch, QUANTILES).quantiles  # (1, H, C, Q)
        group, origin = (int(x[0]) for x in data.test.index.locate(np.array([window])))
        for channel, series in enumerate(data.groups[group].tolist()):
            scaled = ours[0, :, channel]
            if offsets is not None:
                moved, median = scaled + offsets[group, :, channel], scaled[:, [2]]
                low, high = np.minimum(moved[:, :2], median), np.maximum(moved[:, 3:], median)
                scaled = np.sort(np.concatenate([low, median, high], axis=-1), axis=-1)
            quantiles = scaled * data.scaler.std[series] + data.scaler.mean[series]
            yield series, data.store.values(series, origin, origin + H), quantiles


@pytest.mark.parametrize("channels", ["independent", "joint"])
@pytest.mark.parametrize(("head", "calibrated"), [("normal", False), ("quantile", True)])
def test_intervals_are_those_of_every_test_window_in_units_of_the_table(
    fit_config, channels, head, calibrated
):
    data = data_of(fit_config, channels, head=head, quantiles=QUANTILES)
    offsets = None
    if calibrated:
        size = (len(data.groups) + 1, H, data.groups.shape[1], len(QUANTILES))
        offsets = np.random.default_rng(0).normal(size=size).astype(np.float32)
        offsets[..., 2] = 0.0  # of the median
    forecaster = forecaster_of(data, offsets)
    evaluations = evaluate(data, forecaster)
    found = testing.quantile_metrics(evaluations)
    assert list(found) == [MODEL]  # the naive forecasts are points

    inside = {name: {"0.9": [], "0.5": []} for name in "yz"}
    width = {name: {"0.9": [], "0.5": []} for name in "yz"}
    losses, truths = {name: [] for name in "yz"}, {name: [] for name in "yz"}
    for series, truth, quantiles in quantiles_by_window(data, forecaster, offsets):
        name = "yz"[series % 2]
        for value, row in zip(truth, quantiles, strict=True):
            if np.isnan(value):
                continue
            for nominal, (low, high) in {"0.9": (0, 4), "0.5": (1, 3)}.items():
                inside[name][nominal].append(row[low] <= value <= row[high])
                width[name][nominal].append(row[high] - row[low])
            for level, quantile in zip(QUANTILES, row, strict=True):
                error = value - quantile
                losses[name].append(max(level * error, (level - 1) * error))
            truths[name].append(abs(value))

    target = data.groups % 2
    parts = {"yz": evaluations[MODEL]}
    parts |= {name: evaluations[MODEL].of(target == n) for n, name in enumerate("yz")}
    for names, evaluation in parts.items():
        ours = testing.quantile_metrics({MODEL: evaluation})[MODEL]
        for nominal in ("0.9", "0.5"):
            expected = np.concatenate([inside[name][nominal] for name in names])
            assert 0 < expected.mean() < 1
            assert_allclose(ours["coverage"][nominal], expected.mean(), atol=2e-3)
            expected = np.concatenate([width[name][nominal] for name in names])
            assert_allclose(ours["width"][nominal], expected.mean(), rtol=1e-5)
        loss = np.concatenate([losses[name] for name in names])
        assert_allclose(ours["pinball"], loss.mean(), rtol=1e-5)
        magnitude = np.concatenate([truths[name] for name in names]).mean()
        assert_allclose(ours["scaled_crps"], 2 * loss.mean() / magnitude, rtol=1e-5)
    assert found[MODEL] == testing.quantile_metrics({MODEL: parts["yz"]})[MODEL]


def test_points_have_no_intervals(fit_config):
    evaluations = evaluate(data := data_of(fit_config), forecaster_of(data))
    assert testing.quantile_metrics(evaluations) == {}
    assert evaluations[MODEL].quantiles is None
    assert evaluations[MODEL].of(data.groups >= 0).quantiles is None


def test_intervals_are_told_with_what_they_promise_what_they_hold_and_how_wide_they_are(
    fit_config,
):
    data = data_of(fit_config)  # of six series, y and z by turns
    sums, errors = QuantileSums(6, 1, QUANTILES), ErrorSums(6, 1, 1)
    forecast = torch.tensor([-100.0, -2.0, 0.0, 2.0, 1900.0]).expand(8, 1, 1, 5)
    truth = torch.arange(8.0)[:, None, None]  # 0, 1 and 2 lie within the narrow one
    everywhere = torch.ones_like(truth, dtype=torch.bool)
    sums.update(forecast, truth, everywhere, torch.arange(8) % 3 * 2)
    sums.update(forecast, 5000 + truth, everywhere, torch.arange(8) % 3 * 2 + 1)
    errors.update(forecast[..., 2], truth, everywhere, torch.zeros(8).long())
    points = errors.compute()
    evaluation = Evaluation(points, points, sums.compute())
    evaluations = {"raw": evaluation, "points": Evaluation(points, points), "again": evaluation}
    table = figures_table(coverage_figures(data, evaluations, target="y"))
    assert table.title.endswith("test windows, target y")
    error = (np.arange(8.0)[:, None] - np.array([-100.0, -2, 0, 2, 1900])).ravel()
    level = np.tile(QUANTILES, 8)
    crps = 2 * np.maximum(level * error, (level - 1) * error).mean() / 3.5
    cells = [list(column.cells) for column in table.columns]
    assert cells == [
        ["raw", "", "again", ""],
        ["90%", "50%"] * 2,
        ["100.0%", "37.5%"] * 2,
        ["2,000", "4"] * 2,
        [f"{crps:.4f}", ""] * 2,
    ]
    headers = [column.header for column in table.columns]
    assert headers == ["", "Nominal", "Covered", "Width", "Scaled CRPS"]


@pytest.mark.parametrize(
    ("head", "quantiles", "shades"), [("point", QUANTILES, 0), ("normal", QUANTILES, 2)]
)
def test_pictures_show_the_intervals_of_a_distribution(fit_config, head, quantiles, shades):
    data = data_of(fit_config, head=head, quantiles=quantiles)
    forecaster = forecaster_of(data)
    figure = figures.draw_forecasts(data, forecaster)
    assert {len(ax.collections) for ax in figure.axes} == {shades}
    if shades:
        (ax,) = figures.draw_calibration(evaluate(data, forecaster)).axes
        assert any(len(line.get_xdata()) >= len(QUANTILES) for line in ax.lines)
