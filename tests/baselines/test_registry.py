import logging
import os

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tests.data.stores import store_of
from tsformer.baselines import registry
from tsformer.baselines.naive import seasonal_naive
from tsformer.baselines.registry import BASELINES, baseline_forecasts, check_installed
from tsformer.baselines.statistical import forecast_window
from tsformer.errors import ConfigError, TsformerError

LEVELS = [0.1, 0.5, 0.9]
WINDOWS = np.array([1, 0, 1]), np.array([60, 70, 80])


def store():
    rng = np.random.default_rng(0)
    day = np.sin(2 * np.pi * np.arange(90) / 24)
    return store_of({"a": day + rng.normal(size=90), "b": 50 + day + rng.normal(size=90)})


def test_every_baseline_has_its_name_and_its_shape():
    pytest.importorskip("statsforecast")
    pytest.importorskip("mlforecast")
    names = [name for name in BASELINES if name != "auto_arima"]
    found = baseline_forecasts(store(), *WINDOWS, steps=5, names=names, levels=LEVELS)
    naive = ["seasonal naive (daily)", "seasonal naive (weekly)"]
    assert list(found) == [*naive, "AutoETS", "AutoTheta", "MSTL", "LightGBM"]
    assert {values.shape for values in found.values()} == {(3, 5, 4)}
    for name in ("AutoETS", "AutoTheta", "MSTL"):
        assert (np.diff(found[name][..., 1:]) > 0).all()
        assert_array_equal(found[name][..., 2], found[name][..., 0])
    for name in ("seasonal naive (daily)", "LightGBM"):
        assert np.isfinite(found[name][..., 0]).all()
        assert np.isnan(found[name][..., 1:]).all()


def test_seasonal_naive_forecasts_see_beyond_the_history():
    found = baseline_forecasts(store(), *WINDOWS, steps=5, names=["seasonal_naive"], history=3)
    series, origins = WINDOWS
    wanted = seasonal_naive(store(), series[:, None], origins, 5, 24)
    assert_array_equal(found["seasonal naive (daily)"], wanted)
    assert np.isnan(found["seasonal naive (weekly)"]).all()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_each_window_is_fitted_to_its_own_past(num_workers, monkeypatch):
    pytest.importorskip("statsforecast")
    monkeypatch.setattr(registry, "_AT_ONCE", 1)
    found = baseline_forecasts(
        *(store(), *WINDOWS),
        steps=5,
        names=["auto_ets", "auto_theta"],
        levels=LEVELS,
        history=55,
        num_workers=num_workers,
    )
    for name, shown in {"auto_ets": "AutoETS", "auto_theta": "AutoTheta"}.items():
        for window, (series, origin) in enumerate(zip(*WINDOWS, strict=True)):
            y = store().values(series, origin - 55, origin)
            wanted, _ = forecast_window(name, y, [24], 5, LEVELS)
            assert_array_equal(found[shown][window], wanted.T)


def test_nothing_from_an_origin_on_moves_its_forecast():
    pytest.importorskip("statsforecast")
    names = ["seasonal_naive", "auto_ets", "auto_theta", "mstl"]
    before = baseline_forecasts(store(), *WINDOWS, steps=5, names=names, levels=LEVELS)
    late = store()
    late.target[60 + 90 :] = 1e6  # of the second series
    after = baseline_forecasts(late, *WINDOWS, steps=5, names=names, levels=LEVELS)
    for name in before:
        assert_array_equal(after[name][:2], before[name][:2])
        if name != "seasonal naive (weekly)":
            assert (after[name][2] != before[name][2]).any()


def test_windows_without_a_past_have_no_forecast():
    pytest.importorskip("statsforecast")
    pytest.importorskip("mlforecast")
    names = [name for name in BASELINES if name != "auto_arima"]
    windows = np.array([0, 1]), np.array([0, 60])
    found = baseline_forecasts(store(), *windows, steps=5, names=names, levels=LEVELS)
    for values in found.values():
        assert np.isnan(values[0]).all()


def test_no_window_is_no_trouble():
    pytest.importorskip("statsforecast")
    none = np.empty(0, dtype=np.int64)
    found = baseline_forecasts(store(), none, none, steps=5, names=["seasonal_naive", "mstl"])
    assert {values.shape for values in found.values()} == {(0, 5, 1)}


def broken_after(calls: int):
    def forecast(*args):
        nonlocal calls
        calls -= 1
        return np.zeros((1, 5)), "ValueError: no" if calls < 0 else None

    return forecast


def test_what_no_model_forecast_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(registry, "check_installed", lambda names: None)
    monkeypatch.setattr(registry, "forecast_window", broken_after(1))
    baseline_forecasts(store(), *WINDOWS, steps=5, names=["auto_ets"])
    assert caplog.messages == [
        "AutoETS could not be fitted to 2 of 3 windows, which repeat their last value "
        "(ValueError: no)"
    ]


def test_progress_is_told_now_and_then(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(registry, "check_installed", lambda names: None)
    monkeypatch.setattr(registry, "forecast_window", broken_after(9))
    baseline_forecasts(store(), *WINDOWS, steps=5, names=["mstl"])
    assert caplog.messages == []
    times = iter([0, 20, 40, 60])
    monkeypatch.setattr(registry.time, "monotonic", lambda: next(times))
    baseline_forecasts(store(), *WINDOWS, steps=5, names=["mstl"])
    assert caplog.messages == ["MSTL: 2 of 3 windows so far"]


def test_an_unknown_baseline_is_told_with_the_known_ones():
    message = "no baseline 'prophet' is known; choose from seasonal_naive, auto_ets, .*, lightgbm"
    with pytest.raises(ConfigError, match=message):
        check_installed(["seasonal_naive", "prophet"])


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("auto_ets", "statsforecast", "baselines"),
        ("lightgbm", "mlforecast", "lightgbm"),
        ("lightgbm", "lightgbm", "lightgbm"),
    ],
)
def test_a_missing_package_is_told_before_anything_is_computed(monkeypatch, name, package, extra):
    monkeypatch.setattr(registry, "find_spec", lambda x: None if x == package else object())
    monkeypatch.setattr(registry, "seasonal_naive", None)
    message = rf"{name} needs the package {package}: pip install 'tsformer\[{extra}\]'"
    with pytest.raises(ConfigError, match=message):
        baseline_forecasts(store(), *WINDOWS, steps=5, names=["seasonal_naive", name])
    check_installed(["seasonal_naive"])


def end_the_process(*_: object) -> None:
    """Stand in for a process that the system kills."""
    os._exit(1)


def test_a_process_that_dies_is_told(monkeypatch):
    pytest.importorskip("statsforecast")
    monkeypatch.setattr(registry, "_AT_ONCE", 1)
    monkeypatch.setattr(registry, "forecast_window", end_the_process)
    with pytest.raises(TsformerError, match="has died, or could not start"):
        baseline_forecasts(store(), *WINDOWS, steps=5, names=["auto_ets"], num_workers=2)
