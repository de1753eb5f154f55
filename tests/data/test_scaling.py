"""Scaling against NumPy in double precision, and what it must not see."""

import tracemalloc
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.data.stores import store_of
from tsformer.data.scaling import Scaler, find_too_small_for_log1p
from tsformer.data.store import SeriesStore

END = 12  # train rows lie before it
SETTINGS = [
    {"per": per, "method": method, "transform": transform}
    for per, method, transform in product(
        ("series", "dataset", "none"), ("standard", "robust"), ("none", "log1p", "asinh")
    )
]
FORWARD = {"none": lambda x: x, "log1p": np.log1p, "asinh": np.arcsinh}


def settings_id(settings: dict[str, str]) -> str:
    return "-".join(settings.values())


every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=settings_id)


def some_store(seed: int = 0) -> SeriesStore:
    """Five series of different parts of 20 hours with missing values: one late, one empty."""
    random = np.random.default_rng(seed)
    series = {
        "a": random.normal(50, 7, 20),
        "b": random.exponential(3, 9),
        "late": random.normal(5, 1, 6),
        "c": random.lognormal(1, 1, 15),
        "empty": np.full(10, np.nan),
    }
    for id in ("a", "b", "c"):
        series[id][random.choice(len(series[id]), 3, replace=False)] = np.nan
    return store_of(series, {"b": 6, "late": 14, "c": 5})


def train_values(store: SeriesStore, series: int, end: int = END) -> np.ndarray:
    values = store.values(series, 0, end)
    return values[~np.isnan(values)]


def statistics(values: np.ndarray, method: str) -> tuple[float, float]:
    """Center and spread of values, by NumPy; nothing for no values."""
    if method == "standard":
        return np.mean(values), np.std(values) or 1.0
    lower, center, upper = np.quantile(values, [0.25, 0.5, 0.75])
    return center, (upper - lower) / 1.349 or np.std(values) or 1.0


@every_setting
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [4, 17, 1 << 22])
def test_statistics_are_those_of_the_observed_train_rows(settings, seed, block, monkeypatch):
    monkeypatch.setattr("tsformer.data.store.BLOCK_ROWS", block)
    store = some_store(seed)
    scaler = Scaler.fit(store, END, **settings)
    forward = FORWARD[settings["transform"]]
    own = [forward(train_values(store, series)) for series in range(5)]
    assert [len(values) > 0 for values in own] == [True, True, False, True, False]
    pooled = statistics(np.concatenate(own), settings["method"])
    if settings["per"] == "none":
        pooled = (0.0, 1.0)
    # The dataset's quartiles are taken in single precision.
    assert_allclose((scaler.fallback_mean, scaler.fallback_std), pooled, rtol=1e-6)
    for series, values in enumerate(own):
        expected, rtol = (scaler.fallback_mean, scaler.fallback_std), 0.0
        if settings["per"] == "series" and len(values):
            expected, rtol = statistics(values, settings["method"]), 1e-12
        assert_allclose((scaler.mean[series], scaler.std[series]), expected, rtol=rtol)


@every_setting
def test_nothing_behind_the_train_rows_moves_the_statistics(settings):
    store = some_store()
    position = np.concatenate([np.arange(*span) for span in zip(store.starts, store.ends)])  # noqa: B905
    later = position >= END
    spiked = replace(store, target=np.where(later, np.float32(1e9), store.target))
    before, after = (Scaler.fit(s, END, **settings) for s in (store, spiked))
    for name in ("mean", "std", "fallback_mean", "fallback_std"):
        assert_array_equal(getattr(after, name), getattr(before, name), err_msg=name)
    # The row after that does.
    moved = Scaler.fit(spiked, END + 1, **settings)
    assert np.allclose(moved.mean, before.mean) == (settings["per"] == "none")


@every_setting
def test_unscale_is_the_inverse_of_scale(settings):
    store = some_store()
    scaler = Scaler.fit(store, END, **settings)
    series = np.array([3, 0, 0, 4, 1, 2])
    values = np.random.default_rng(1).uniform(0, 80, (6, 7))
    scaled = scaler.scale(values, series)
    assert scaled.dtype == np.float64
    assert_allclose(scaler.unscale(scaled, series), values, rtol=1e-12, atol=1e-12)
    for i, s in enumerate(series):
        forward = FORWARD[settings["transform"]](values[i])
        assert_allclose(scaled[i], (forward - scaler.mean[s]) / scaler.std[s], rtol=1e-12)


def test_channels_are_scaled_by_the_series_they_are_of():
    store = some_store()
    scaler = Scaler.fit(store, END)
    members = np.array([[0, 1], [3, 0]])
    forecast = np.random.default_rng(1).normal(size=(2, 4, 2)).astype(np.float32)
    original = scaler.unscale(forecast, members)
    for window, channel in np.ndindex(2, 2):
        alone = scaler.unscale(
            forecast[window : window + 1, :, channel], members[window, [channel]]
        )
        assert_array_equal(original[window, :, channel], alone[0])
    assert_allclose(scaler.scale(original, members), forecast, rtol=1e-12)


def test_scale_keeps_missing_values():
    scaler = Scaler.fit(some_store(), END, transform="log1p")
    assert_array_equal(np.isnan(scaler.scale(np.array([[1.0, np.nan]]), np.array([0]))), [[0, 1]])


@pytest.mark.parametrize("transform", ["log1p", "asinh"])
def test_forecasts_too_large_for_the_inverse_become_infinite(transform):
    scaler = Scaler.fit(some_store(), END, transform=transform)
    assert_array_equal(scaler.unscale(np.array([[1e6]]), np.array([0])), [[np.inf]])


@given(st.floats(-1e6, 1e6), st.floats(1e-1, 1e3), st.sampled_from(["standard", "robust"]))
def test_scores_of_normal_values_have_mean_0_and_std_1(mean, std, method):
    values = mean + std * np.random.default_rng(0).normal(size=2000)
    store = store_of({"a": values}, centers={"a": mean})
    scaler = Scaler.fit(store, 2000, method=method)
    scaled = scaler.scale(store.values(0, 0, 2000)[None], np.array([0]))
    assert_allclose(scaled.mean(), 0, atol=0.05)
    assert_allclose(scaled.std(), 1, rtol=0.05)


@pytest.mark.parametrize("method", ["standard", "robust"])
@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 + 0.1, -7e-3])
def test_constant_series_is_scaled_to_zero_not_blown_up(constant, method):
    # Long enough that a plain sum of so many 0.1 is off in the 11th digit.
    store = store_of({"a": np.full(10**6, constant)}, centers={"a": constant / 3})
    scaler = Scaler.fit(store, 10**6, method=method)
    assert scaler.std[0] == scaler.fallback_std == 1
    values = store.values(0, 0, 10)[None]
    assert_allclose(scaler.scale(values, np.array([0])), 0, atol=1e-6)


@pytest.mark.parametrize("method", ["standard", "robust"])
def test_small_steps_far_from_0_keep_their_digits(method):
    steps = np.random.default_rng(0).normal(0, 0.01, 500)
    store = store_of({"a": 1e9 + steps}, centers={"a": 1e9})
    scaler = Scaler.fit(store, 500, method=method)
    center, spread = statistics(steps, method)
    assert_allclose(scaler.mean[0] - 1e9, center, atol=2e-7)  # the last digit of 1e9 is 1.2e-7
    assert_allclose([scaler.std[0], scaler.fallback_std], spread, rtol=1e-4)


def test_without_any_value_statistics_are_0_and_1():
    store = store_of({"a": [np.nan] * 5, "late": [3.0, 4.0]}, {"late": 5})
    for method in ("standard", "robust"):
        scaler = Scaler.fit(store, 5, method=method)
        assert_array_equal([scaler.mean, scaler.std], [[0, 0], [1, 1]])
        assert (scaler.fallback_mean, scaler.fallback_std) == (0, 1)


@pytest.mark.parametrize(("method", "bytes_a_value"), [("standard", 2), ("robust", 6)])
def test_fitting_holds_no_copy_in_double_precision(method, bytes_a_value, monkeypatch):
    monkeypatch.setattr("tsformer.data.store.BLOCK_ROWS", 10_000)
    values = np.random.default_rng(0).normal(size=(1000, 1000))
    store = store_of({f"s{i}": row for i, row in enumerate(values)})
    tracemalloc.start()
    Scaler.fit(store, 900, method=method, transform="asinh")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < bytes_a_value * values.size


# adapt


def fitted(**settings) -> Scaler:
    ramp = np.arange(20.0)
    return Scaler.fit(store_of({"a": ramp, "b": 3 * ramp + 100}), END, **settings)


@pytest.mark.parametrize("ids", [["a", "b"], ["b", "a"], ["b"], ["a"]])
def test_known_series_keep_their_statistics_in_any_order(ids):
    scaler = fitted()
    adapted = scaler.adapt(store_of({id: 1e6 + np.arange(4.0) for id in ids}))
    assert adapted.ids == tuple(ids)
    own = [scaler.ids.index(id) for id in ids]
    assert_array_equal(adapted.mean, scaler.mean[own])
    assert_array_equal(adapted.std, scaler.std[own])


@every_setting
def test_new_series_are_scaled_by_their_own_rows_or_as_the_dataset(settings):
    scaler = fitted(**settings)
    new = np.array([1.0, 3.0, np.nan, 9.0])
    store = store_of({"new": new, "b": np.arange(4.0), "empty": [np.nan, np.nan]})
    adapted = scaler.adapt(store)
    expected = scaler.fallback_mean, scaler.fallback_std
    if settings["per"] == "series":
        values = FORWARD[settings["transform"]](new[~np.isnan(new)])
        expected = statistics(values, settings["method"])
    assert_allclose((adapted.mean[0], adapted.std[0]), expected, rtol=1e-12)
    assert (adapted.mean[1], adapted.std[1]) == (scaler.mean[1], scaler.std[1])
    assert (adapted.mean[2], adapted.std[2]) == (scaler.fallback_mean, scaler.fallback_std)
    kept = ("fallback_mean", "fallback_std", "per", "method", "transform")
    assert all(getattr(adapted, name) == getattr(scaler, name) for name in kept)


def test_series_that_had_no_value_to_fit_are_fitted_when_they_have_some():
    store = some_store()
    scaler = Scaler.fit(store, END)
    assert scaler.unfitted == ("late", "empty")
    assert not scaler.knows(["a", "late"])
    assert scaler.knows(["a", "b", "c"])
    assert Scaler.fit(store, END, per="dataset").knows(["late", "new"])
    adapted = scaler.adapt(store)  # with the rows after END
    own = [np.mean(train_values(store, 2, 20)), np.std(train_values(store, 2, 20))]
    assert_allclose([adapted.mean[2], adapted.std[2]], own, rtol=1e-12)
    assert_array_equal(adapted.mean[[0, 1, 3]], scaler.mean[[0, 1, 3]])
    assert adapted.unfitted == ("empty",)
    assert adapted.mean[4] == scaler.fallback_mean


@pytest.mark.parametrize("per", ["series", "dataset"])
def test_values_that_are_mostly_zero_have_a_spread(per):
    values = np.zeros(100)
    values[::7] = 1000.0
    scaler = Scaler.fit(store_of({"spare parts": values}), 100, per=per, method="robust")
    assert scaler.mean[0] == 0
    assert_allclose(scaler.std[0], np.std(values), rtol=1e-6)


def test_steps_that_a_forecast_adds_to_the_grid_do_not_count():
    adapted = fitted().adapt(store_of({"new": [1.0, 3.0]}).extended(5))
    assert (adapted.mean[0], adapted.std[0]) == (2, 1)


# log1p


@given(st.lists(st.floats(-0.75, 1e30), min_size=1, max_size=30))
def test_values_above_minus_1_have_a_log1p(values):
    assert find_too_small_for_log1p(store_of({"a": values, "b": [np.nan]})) is None


@pytest.mark.parametrize("block", [3, 1 << 22])
def test_the_first_value_too_small_for_log1p_is_named(block, monkeypatch):
    monkeypatch.setattr("tsformer.data.store.BLOCK_ROWS", block)
    store = store_of(
        {"a": [0.0, 5.0], "b": [np.nan, -0.5, -1.0, 3.0], "c": [-7.5, -2.0]},
        {"b": 3},
        start="2024-03-01",
    )
    finding = find_too_small_for_log1p(store)
    assert (finding.level, finding.kind) == ("error", "values too small for log1p")
    assert str(finding) == (
        "series 'b', 2024-03-01 05:00:00: -1 has no log1p, which takes values above -1 "
        "(3 in all). Set scaling.transform=asinh or none."
    )
