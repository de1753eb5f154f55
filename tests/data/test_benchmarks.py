"""The embedded and the public data: their content, and the protocol of published tables."""

import hashlib
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.testing import assert_allclose, assert_array_equal

from tsformer.baselines.naive import seasonal_naive
from tsformer.data.catalog import load_data
from tsformer.data.forecast_data import ForecastData
from tsformer.data.sampling import BatchSampler
from tsformer.data.sources import read_frame
from tsformer.metrics import ErrorSums

TRAIN, VALIDATION, TEST = 8640, 11_520, 14_400  # where the parts of ETTh end
L, H = 336, 96


def settings_of(compose, folder, *overrides: str) -> dict[str, Any]:
    settings = compose(*overrides)
    return {**settings, "paths": {**settings["paths"], "data": str(folder)}}


# ETTh1


@pytest.fixture(scope="module")
def etth1(compose, data_folder) -> ForecastData:
    table, config = load_data(settings_of(compose, data_folder, "dataset=etth1"))
    assert (config.context_length, config.horizon) == (L, H)
    return ForecastData(table, config)


@pytest.fixture(scope="module")
def etth1_values(data_folder) -> np.ndarray:
    return pd.read_csv(data_folder / "ETT-small" / "ETTh1.csv").iloc[:, 1:].to_numpy(float)


def test_etth1_scaler_is_that_of_the_first_8640_rows(etth1, etth1_values):
    train = etth1_values[:TRAIN]
    assert etth1.scaler.ids == ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
    assert_allclose(etth1.scaler.mean, train.mean(axis=0), rtol=1e-7)
    assert_allclose(etth1.scaler.std, train.std(axis=0), rtol=1e-7)


def test_etth1_parts_hold_every_window_of_the_protocol_once(etth1):
    assert len(etth1.store.grid) == 17_420
    for windows, begin, end in (
        (etth1.train, L, TRAIN),
        (etth1.validation, TRAIN, VALIDATION),
        (etth1.test, VALIDATION, TEST),
    ):
        per_series = end - begin - H + 1
        assert len(windows) == 7 * per_series
        series, origin = windows.index.locate(np.arange(len(windows)))
        assert_array_equal(series, np.repeat(np.arange(7), per_series))
        assert_array_equal(origin, np.tile(np.arange(begin, end - H + 1), 7))


def test_etth1_evaluation_covers_2880_minus_h_plus_1_windows_a_series(etth1):
    assert len(etth1.validation) == len(etth1.test) == 7 * (2880 - H + 1)


def test_etth1_windows_begin_where_the_protocol_says(etth1, etth1_values):
    z = (etth1_values - etth1_values[:TRAIN].mean(0)) / etth1_values[:TRAIN].std(0)
    for windows, begin, end in (
        (etth1.validation, TRAIN, VALIDATION),
        (etth1.test, VALIDATION, TEST),
    ):
        count = end - begin - H + 1
        batch = windows[np.array([0, count - 1, 6 * count])]
        for i, (origin, channel) in enumerate([(begin, 0), (end - H, 0), (begin, 6)]):
            assert_allclose(batch.context[i, :, 0], z[origin - L : origin, channel], atol=1e-5)
            assert_allclose(batch.target[i, :, 0], z[origin : origin + H, channel], atol=1e-5)


def test_etth1_last_value_forecast_scores_as_in_plain_numpy(etth1, etth1_values):
    sums = ErrorSums(7, H, 1)
    for windows in BatchSampler(etth1.test.index, 1024, shuffle=False):
        batch = etth1.test[windows]
        forecast = batch.context[:, -1:].expand(-1, H, -1)
        sums.update(forecast, batch.target, batch.target_observed, batch.series)
    errors = sums.compute()

    z = (etth1_values - etth1_values[:TRAIN].mean(0)) / etth1_values[:TRAIN].std(0)
    truth = sliding_window_view(z[VALIDATION:TEST], H, axis=0)  # (windows, C, H)
    last = z[VALIDATION - 1 : TEST - H, :, None]
    assert truth.shape == (2785, 7, H)
    assert_allclose(errors.mse(), np.square(truth - last).mean(), rtol=1e-6)
    assert_allclose(errors.mae(), np.abs(truth - last).mean(), rtol=1e-6)
    assert_array_equal(errors.count, 2785)


# Other public files


def test_weather_rows_are_taken_as_they_stand(compose, data_folder):
    store = load_data(settings_of(compose, data_folder, "dataset=weather"))[0].store
    frame = read_frame(data_folder / "weather" / "weather.csv")
    assert frame.shape == (52_696, 22)
    assert store.ids == tuple(frame.columns[1:])
    assert_array_equal(store.lengths, [52_696] * 21)
    values = [store.values(series, 0, 52_696) for series in range(21)]
    assert_allclose(np.stack(values, axis=1), frame.iloc[:, 1:], rtol=1e-7)
    assert (np.stack(values) == -9999).sum() == 81


@pytest.mark.parametrize(
    ("name", "rows", "series", "freq"),
    [
        ("etth2", 17_420, 7, "h"),
        ("ettm1", 69_680, 7, "15min"),
        ("exchange", 7_588, 8, "D"),
        ("illness", 966, 7, "W-TUE"),
    ],
)
def test_public_file_gives_a_table_without_gaps(compose, data_folder, name, rows, series, freq):
    store = load_data(settings_of(compose, data_folder, f"dataset={name}"))[0].store
    assert_array_equal(store.lengths, [rows] * series)
    assert store.freq == freq
    assert not np.isnan(store.target).any()


# The embedded electricity data


@pytest.fixture(scope="module")
def electricity(compose) -> ForecastData:
    table, config = load_data(settings_of(compose, "nowhere", "dataset=electricity"))
    return ForecastData(table, config)


def test_electricity_is_the_file_that_its_card_describes(repo):
    folder = repo / "datasets" / "electricity"
    card = (folder / "README.md").read_text(encoding="utf-8")
    promised = re.search(r"`electricity\.parquet`: sha256\s+`([0-9a-f]{64})`", card).group(1)
    content = (folder / "electricity.parquet").read_bytes()
    assert hashlib.sha256(content).hexdigest() == promised


def test_electricity_has_the_rows_and_parts_of_its_card(electricity):
    store = electricity.store
    assert store.ids == ("Victoria",)
    assert_array_equal(store.lengths, [52_608])
    assert not np.isnan(store.target).any()
    assert not np.isnan(store.covariates).any()
    assert store.grid[0] == pd.Timestamp("2011-12-31 13:00", tz="UTC")
    assert electricity.train_end == 36_825
    assert_allclose(electricity.scaler.mean[0], 4701.13, atol=0.005)
    assert_allclose(electricity.scaler.std[0], 902.58, atol=0.005)
    assert len(electricity.validation) == 5262 - 47
    assert len(electricity.test) == 10_474


@pytest.mark.parametrize(
    ("season", "mae", "rmse"), [(48, 321.36, 483.97), (336, 242.84, 344.62)], ids=["day", "week"]
)
def test_electricity_seasonal_naive_scores_as_its_card_says(electricity, season, mae, rmse):
    assert electricity.config.horizon == 48
    store, windows = electricity.store, np.arange(len(electricity.test))
    series, origin = electricity.test.index.locate(windows)
    forecast = seasonal_naive(store, series[:, None], origin, 48, season)
    truth = store.at(series[:, None], origin[:, None] + np.arange(48))
    error = forecast[..., 0] - truth
    assert_allclose(np.abs(error).mean(), mae, atol=0.005)
    assert_allclose(np.square(error).mean() ** 0.5, rmse, atol=0.005)
