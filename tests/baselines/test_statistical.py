import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("statsforecast")
from statsforecast import models

from tests.data.stores import store_of
from tsformer.baselines.past import past_of
from tsformer.baselines.statistical import (
    MODELS,
    build,
    forecast_past,
    forecast_window,
    random_walk,
    seasons_of,
)

NAN = np.nan
LEVELS = [0.05, 0.25, 0.5, 0.95]


def wave(steps: int = 96, season: int = 12) -> np.ndarray:
    rng = np.random.default_rng(0)
    return 50 + 10 * np.sin(2 * np.pi * np.arange(steps) / season) + rng.normal(size=steps)


ORACLES = {
    "auto_ets": lambda: models.AutoETS(season_length=12),
    "auto_theta": lambda: models.AutoTheta(season_length=12),
    "mstl": lambda: models.MSTL(season_length=[12, 24]),
    "auto_arima": lambda: models.AutoARIMA(season_length=12, approximation=True),
}


@pytest.mark.filterwarnings("ignore::UserWarning:statsforecast")
@pytest.mark.parametrize("name", MODELS)
def test_each_is_the_model_of_statsforecast(name):
    y = wave()
    found, failure = forecast_window(name, y, [12, 24], 5, LEVELS)
    told = ORACLES[name]().forecast(y=y, h=5, level=[50, 90])
    wanted = [told[key] for key in ("mean", "lo-90", "lo-50", "mean", "hi-90")]
    assert failure is None
    assert_allclose(found, np.stack(wanted), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "season"),
    [("auto_ets", 1), ("auto_theta", 144), ("mstl", 144), ("auto_arima", 1)],
)
def test_long_seasons_are_kept_where_a_model_can_have_them(name, season):
    assert np.max(build(name, [144]).season_length) == season


@pytest.mark.filterwarnings("ignore::UserWarning:statsforecast")
def test_arima_takes_differences_over_a_season_that_has_too_many_steps_for_coefficients():
    y = wave(200, 40)
    found, failure = forecast_window("auto_arima", y, [40], 40, [])
    assert failure is None
    assert np.abs(found[0] - (50 + 10 * np.sin(2 * np.pi * np.arange(40) / 40))).mean() < 2
    model = models.AutoARIMA(season_length=40, approximation=True, D=1, max_P=0, max_Q=0)
    assert_allclose(found[0], model.forecast(y=y, h=40)["mean"])


def test_seasons_have_passed_twice():
    assert seasons_of("30min", 671) == [48]
    assert seasons_of("30min", 672) == [48, 336]
    assert seasons_of("30min", 95) == []
    assert seasons_of("YE", 100) == []


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("y", [[3.0], [3.0, 5.0], [3.0, 5.0, 4.0], [7.0] * 30, list(range(9))])
def test_short_and_constant_pasts_go_on_as_a_random_walk(name, y):
    found, failure = forecast_window(name, np.array(y, float), [], 3, LEVELS)
    assert failure is None
    assert_array_equal(found[[0, 3]], y[-1])
    step = np.sqrt(np.mean(np.diff(y) ** 2)) if len(y) > 1 else 0
    assert_allclose(found[4] - y[-1], 1.6448536 * step * np.sqrt([1, 2, 3]))
    assert_allclose(found[1] - y[-1], -1.6448536 * step * np.sqrt([1, 2, 3]))


def test_without_a_past_there_is_no_forecast():
    found, failure = forecast_window("mstl", np.empty(0), [], 3, LEVELS)
    assert found.shape == (5, 3)
    assert np.isnan(found).all()
    assert failure is None


@pytest.mark.parametrize(
    ("answer", "told"), [(ValueError("no"), "ValueError: no"), (NAN, "not fi")]
)
def test_what_cannot_be_fitted_repeats_its_last_value_and_says_why(monkeypatch, answer, told):
    class Broken:
        def forecast(self, y, h, level):
            if isinstance(answer, Exception):
                raise answer
            return {"mean": np.full(h, answer)}

    monkeypatch.setattr("tsformer.baselines.statistical.build", lambda *_: Broken())
    y = wave()
    found, failure = forecast_window("mstl", y, [], 3, [])
    assert_array_equal(found, random_walk(y, 3, []))
    assert told in failure


def test_random_numbers_of_others_go_on():
    np.random.seed(5)  # noqa: NPY002
    first = np.random.random(3)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    forecast_past(models.AutoTheta(), wave(), 3, [0.1])  # its intervals are drawn
    assert_array_equal(np.random.random(3), first)  # noqa: NPY002


def test_nothing_is_warned_of(recwarn):
    for name in ("auto_ets", "auto_theta", "mstl"):
        forecast_window(name, np.tile([0.0, 0, 0, 5], 10), [4], 3, [0.1])
    assert not recwarn.list


@pytest.mark.parametrize(
    ("y", "origin", "history", "past"),
    [
        ([1, 2, 3, 4, 9], 4, 100, [1, 2, 3, 4]),
        ([1, 2, 3, 4, 9], 4, 2, [3, 4]),
        ([NAN, NAN, 2, NAN, NAN, 8, NAN, 9], 7, 100, [2, 4, 6, 8, 8]),
        ([5, NAN, NAN, 9], 3, 2, []),
        ([NAN, NAN, 9], 2, 100, []),
        ([1, 2], 0, 100, []),
        ([1, 2], 5, 100, [1, 2, 2, 2, 2]),
    ],
)
def test_gaps_of_a_past_are_filled_from_the_past_alone(y, origin, history, past):
    store = store_of({"other": [77] * 9, "a": y}, starts={"a": 3})
    assert_array_equal(past_of(store, 1, 3 + origin, history), past)
