import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("mlforecast")
pytest.importorskip("lightgbm")

from tests.data.stores import store_of
from tsformer.baselines import boosting
from tsformer.baselines.boosting import forecast_boosting

NAN = np.nan
H = 30


def wave(steps: int = 300, *, level: float = 0.0, size: float = 1.0, seed: int = 0) -> np.ndarray:
    """Return hours that follow the day, of another shape at each level."""
    noise = np.random.default_rng(seed).normal(scale=0.05, size=steps)
    return level + size * (np.sin(2 * np.pi * np.arange(steps) / 24) + noise)


def forecast(series, windows, steps: int = H, history: int = 100, **options) -> np.ndarray:
    """Forecast windows (series, origin) of hours."""
    index, origins = (np.array(x) for x in zip(*windows, strict=True))
    store = store_of(series)
    return forecast_boosting(store, index, origins, steps=steps, history=history, **options)


TWO = {"a": wave(), "b": wave(level=1e4, size=500, seed=1)}


def test_one_model_follows_series_of_all_sizes():
    found = forecast(TWO, [(0, 240), (1, 240), (1, 270)])
    for window, (name, origin) in zip(found, [("a", 240), ("b", 240), ("b", 270)], strict=True):
        error = np.abs(window - TWO[name][origin : origin + H]).mean()
        assert error < 0.2 * np.abs(np.diff(TWO[name])).max() + 0.1 * TWO[name].std()


def test_it_is_of_use_to_series_it_was_not_trained_on():
    series = {"a": wave(), "new": wave(60, level=50, size=7)}
    store = store_of(series, starts={"new": 216})
    found = forecast_boosting(store, np.array([0, 1]), np.array([200, 256]), steps=20, history=100)
    assert np.abs(found[1] - series["new"][40:60]).mean() < 2


def test_nothing_from_an_origin_on_moves_its_forecast():
    windows = [(0, 200), (0, 260), (1, 230)]
    before = forecast(TWO, windows)
    late = {name: y.copy() for name, y in TWO.items()}
    late["a"][260:] = late["b"][230:] = 1e6
    assert_array_equal(forecast(late, windows), before)
    late["a"][200:] = 1e6  # what the second window sees, and the others do not
    moved = forecast(late, windows)
    assert_array_equal(moved[[0, 2]], before[[0, 2]])
    assert (moved[1] != before[1]).any()


def test_training_ends_before_the_first_origin_of_all():
    before = forecast(TWO, [(0, 200), (1, 260)])
    early = {**TWO, "b": TWO["b"].copy()}
    early["b"][200:230] *= 3  # behind the first origin, so that only its own window sees it
    found = forecast(early, [(0, 200), (1, 260)])
    assert_array_equal(found[0], before[0])
    early["b"][170:199] *= 3
    assert (forecast(early, [(0, 200), (1, 260)])[0] != before[0]).any()


def test_windows_do_not_depend_on_those_beside_them(monkeypatch):
    windows = [(0, 200), (1, 230), (0, 260), (1, 270)]
    together = forecast(TWO, windows)
    assert_allclose(forecast(TWO, windows[::-1]), together[::-1], rtol=1e-12)
    monkeypatch.setattr(boosting, "_ROWS_AT_ONCE", 1)
    assert_allclose(forecast(TWO, windows), together, rtol=1e-12)


def test_it_is_the_same_again_and_on_more_threads():
    windows = [(0, 200), (1, 230)]
    first = forecast(TWO, windows)
    assert_array_equal(forecast(TWO, windows), first)
    assert_array_equal(forecast(TWO, windows, num_threads=2), first)


def test_gaps_count_as_the_line_across_them():
    gaps, filled = wave(), wave()
    gaps[150:153] = NAN
    filled[150:153] = np.interp([1, 2, 3], [0, 4], filled[[149, 153]])
    assert_allclose(
        forecast({"a": gaps}, [(0, 240)]), forecast({"a": filled}, [(0, 240)]), rtol=1e-5
    )


@pytest.mark.parametrize("past", [[], [NAN, NAN], [3.0], [NAN, 4.0, NAN], [5.0] * 40])
def test_a_past_without_two_values_repeats_the_last_one(past):
    series = {"a": wave(), "b": [*past, *wave(H)]}
    store = store_of(series, starts={"b": 200})
    found = forecast_boosting(
        store, np.array([0, 1]), np.array([200, 200 + len(past)]), steps=3, history=100
    )
    last = next((x for x in past[::-1] if x == x), NAN)
    assert_array_equal(found[1], [last] * 3)
    assert np.isfinite(found[0]).all()


@pytest.mark.parametrize("past", [[1.0, 2.0], [1.0, 2.0, 4.0], [NAN, 1.0, NAN, 3.0]])
def test_a_short_past_is_enough(past):
    series = {"a": wave(), "b": [*past, *wave(H)]}
    store = store_of(series, starts={"b": 200})
    origins = np.array([200, 200 + len(past)])
    found = forecast_boosting(store, np.array([0, 1]), origins, steps=3, history=100)
    assert np.isfinite(found).all()
    assert np.abs(found[1] - 2).max() < 10


def test_without_anything_to_learn_from_constant_pasts_alone_go_on():
    found = forecast({"a": [1.0] * 30 + [2.0] * 30}, [(0, 30), (0, 50)])
    assert_array_equal(found[0], 1)
    assert np.isnan(found[1]).all()
    assert np.isnan(forecast(TWO, [(0, 0)])).all()
    store = store_of(TWO)
    none = np.empty(0, dtype=np.int64)
    assert forecast_boosting(store, none, none, steps=3, history=9).shape == (0, 3)


def test_windows_without_a_past_do_not_count_as_the_first():
    found = forecast(TWO, [(0, 0), (1, 240)])
    assert np.isnan(found[0]).all()
    assert_array_equal(found[1], forecast(TWO, [(0, 240), (1, 240)])[1])


def test_a_series_of_two_rows_can_be_learnt_from():
    assert np.isfinite(forecast({"a": [1.0, 2.0, 3.0]}, [(0, 2)], steps=4)).all()


def test_training_takes_some_of_many_rows(monkeypatch):
    seen = []
    frame = boosting._frame
    monkeypatch.setattr(boosting, "_frame", lambda *args: seen.append(frame(*args)) or seen[-1])
    many = {f"s{number}": wave(seed=number) for number in range(6)}
    forecast(many, [(number, 250) for number in range(6)])
    assert len(seen[0]) == 6 * 250
    monkeypatch.setattr(boosting, "_TRAIN_ROWS", 600)
    forecast(many, [(number, 250) for number in range(6)])
    assert len(seen[2]) == 600  # the newest stretch of each
    assert seen[2]["ds"].min() == 150
    monkeypatch.setattr(boosting, "_TRAIN_ROWS", 300)
    forecast(many, [(number, 250) for number in range(6)])
    assert len(seen[4]) == 300
    assert_allclose(seen[4]["y"][200:], many["s5"][150:250], rtol=1e-5)


@pytest.mark.parametrize(("freq", "zone"), [("h", "Europe/Berlin"), ("MS", None), ("W", None)])
def test_any_grid_will_do(freq, zone):
    store = store_of({"a": wave(120)}, freq=freq, time_zone=zone)
    found = forecast_boosting(store, np.array([0]), np.array([120]), steps=20, history=200)
    assert np.isfinite(found).all()


def test_it_says_nothing(capfd, recwarn):
    forecast(TWO, [(0, 200)])
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert not recwarn.list
