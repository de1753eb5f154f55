import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from tests.data.frames import long_frame, ramp, store_of
from tsformer.errors import ConfigError
from tsformer.metrics import (
    Errors,
    ErrorSums,
    QuantileErrors,
    QuantileSums,
    central_intervals,
    interval_ends,
    seasonal_naive_error,
)

S, H, C = 3, 5, 2


def some_batch(count: int = 40, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Forecasts of windows whose series come several times, a third of the truth missing."""
    random = np.random.default_rng(seed)
    forecast, target = random.normal(size=(2, count, H, C))
    observed = random.random((count, H, C)) < 0.67
    series = random.integers(0, S, count)
    return tuple(torch.from_numpy(x) for x in (forecast, target, observed, series))


def errors_of(*batches: tuple[torch.Tensor, ...]) -> Errors:
    sums = ErrorSums(S, H, C)
    for batch in batches:
        sums.update(*batch)
    return sums.compute()


def test_sums_by_series_step_and_channel_equal_numpy():
    forecast, target, observed, series = batch = some_batch()
    errors = errors_of(batch)
    difference = np.where(observed, forecast - target, np.nan).astype(float)
    for s in range(S):
        own = difference[series == s]
        assert_allclose(errors.absolute[s], np.nansum(np.abs(own), axis=0))
        assert_allclose(errors.squared[s], np.nansum(own**2, axis=0))
        assert_array_equal(errors.count[s], (~np.isnan(own)).sum(axis=0))
    assert_allclose(errors.mae(), np.nanmean(np.abs(difference)))
    assert_allclose(errors.mse(), np.nanmean(difference**2))
    assert_allclose(errors.mae_by_step(), np.nanmean(np.abs(difference), axis=(0, 2)))


@pytest.mark.parametrize("size", [1, 7, 39])
def test_batches_add_up_to_the_whole(size):
    batch = some_batch()
    parts = [tuple(x[i : i + size] for x in batch) for i in range(0, 40, size)]
    for sums, whole in zip(errors_of(*parts), errors_of(batch), strict=True):
        assert_allclose(sums, whole, rtol=1e-12)


def test_mean_weighs_every_observed_value_alike_not_every_batch():
    first = (torch.ones(1, H, C), torch.zeros(1, H, C), torch.ones(1, H, C) > 0, torch.tensor([0]))
    second = tuple(x.repeat(3, *[1] * (x.dim() - 1)) for x in first)
    second = (3 * second[0], *second[1:])
    assert errors_of(first, second).mae() == (1 + 3 * 3) / 4


def test_what_is_not_observed_does_not_count_whatever_stands_there():
    forecast, target, observed, series = some_batch()
    wild = torch.where(observed, target, float("nan"))
    changed = errors_of((forecast, wild, observed, series))
    for found, plain in zip(changed, errors_of((forecast, target, observed, series)), strict=True):
        assert_array_equal(found, plain)


def test_perfect_forecast_scores_zero():
    _, target, observed, series = some_batch()
    errors = errors_of((target, target, observed, series))
    assert (errors.mae(), errors.mse(), errors.mase(np.ones((S, C)))) == (0, 0, 0)


def test_nothing_is_left_after_a_reset():
    sums = ErrorSums(S, H, C)
    sums.update(*some_batch(seed=1))
    sums.reset()
    sums.update(*some_batch(seed=2))
    assert_array_equal(sums.compute().absolute, errors_of(some_batch(seed=2)).absolute)


def test_sums_of_float32_forecasts_are_exact():
    count = 30_000
    forecast = torch.full((count, 1, 1), 0.1)
    sums = ErrorSums(1, 1, 1)
    for _ in range(10):
        sums.update(
            forecast,
            torch.zeros_like(forecast),
            torch.ones_like(forecast) > 0,
            torch.zeros(count).long(),
        )
    assert_allclose(sums.compute().mae(), float(np.float32(0.1)), rtol=1e-10)


# MASE


def errors(absolute: list[float], count: list[float]) -> Errors:
    """One horizon step and one channel a series."""
    shape = (len(absolute), 1, 1)
    a, n = np.reshape(absolute, shape).astype(float), np.reshape(count, shape).astype(float)
    return Errors(a, a**2, n)


def test_mase_is_the_mean_over_series_of_mae_in_units_of_the_naive_error():
    found = errors([6, 30], [3, 10]).mase(np.array([[4.0], [2.0]]))
    assert found == pytest.approx((2 / 4 + 3 / 2) / 2)


def test_mase_averages_steps_within_a_series_first():
    absolute = np.array([[[2.0], [10.0]]])
    count = np.array([[[1.0], [3.0]]])
    assert Errors(absolute, absolute, count).mase(np.array([[6.0]])) == pytest.approx(3 / 6)


def test_series_without_a_naive_error_or_without_truth_do_not_count():
    naive = np.array([[4.0], [np.nan], [1.0]])
    assert errors([6, 30, 0], [3, 10, 0]).mase(naive) == pytest.approx(2 / 4)


def test_mase_of_no_series_at_all_is_nan():
    assert np.isnan(errors([6], [3]).mase(np.array([[np.nan]])))


def test_mase_of_the_seasonal_naive_forecast_on_its_own_train_rows_is_1():
    store = store_of(long_frame({"a": np.random.default_rng(0).normal(size=100)}))
    y, season = store.values(0, 0, 100), 7
    absolute = np.abs(y[season:] - y[:-season])
    own = errors([absolute.sum()], [len(absolute)])
    assert own.mase(seasonal_naive_error(store, 100, season)[:, None]) == pytest.approx(1)


# seasonal_naive_error


def slow_naive_error(y: np.ndarray, season: int) -> float:
    differences = [abs(y[t] - y[t - season]) for t in range(season, len(y))]
    known = [x for x in differences if not np.isnan(x)]
    return sum(known) / len(known) if known and sum(known) > 0 else np.nan


@pytest.mark.parametrize("season", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_naive_error_is_that_of_the_train_rows(seed, season):
    random = np.random.default_rng(seed)
    values = {"a": random.normal(size=30), "b": random.normal(size=20), "c": random.normal(size=6)}
    for y in values.values():
        y[random.choice(len(y), len(y) // 4, replace=False)] = np.nan
    starts = {"b": 8, "c": 14}
    end = 18  # of the train rows
    store = store_of(long_frame(values, starts), freq="h")
    expected = [slow_naive_error(y[: end - starts.get(id, 0)], season) for id, y in values.items()]
    found = seasonal_naive_error(store, end, season)
    assert_allclose(found, expected, rtol=1e-6)
    assert np.isfinite(found[:2]).all()


def test_naive_error_does_not_look_behind_the_train_rows():
    values = ramp(20)
    values[12:] = 1e9
    store = store_of(long_frame({"a": values}))
    assert seasonal_naive_error(store, 12, 3)[0] == 3
    assert seasonal_naive_error(store, 13, 3)[0] > 1e6


@pytest.mark.parametrize(
    ("values", "end"),
    [([5.0] * 20, 15), (ramp(3), 15), ([1.0, np.nan] * 2 + [np.nan] * 10, 15), (ramp(20), 0)],
    ids=["constant", "shorter than a season", "no pair", "no train rows"],
)
def test_naive_error_is_nan_where_there_is_no_difference(values, end):
    store = store_of(long_frame({"a": values, "other": ramp(20)}))
    assert np.isnan(seasonal_naive_error(store, end, 3)[0])


# Quantiles

LEVELS = (0.05, 0.1, 0.5, 0.9, 0.95)


def quantile_batch(count: int = 40, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """Quantiles in no order, truths of which a third is missing, some of them equal to a forecast.

    What is missing is NaN.
    """
    random = np.random.default_rng(seed)
    forecast = random.integers(-3, 4, (count, H, C, len(LEVELS))).astype(float)
    target = random.integers(-3, 4, (count, H, C)).astype(float)
    observed = random.random((count, H, C)) < 0.67
    target = np.where(observed, target, np.nan)
    return tuple(map(torch.from_numpy, (forecast, target, observed, random.integers(0, S, count))))


def quantile_errors(
    *batches: tuple[torch.Tensor, ...], levels: Sequence[float] = LEVELS
) -> QuantileErrors:
    sums = QuantileSums(S, C, levels)
    for batch in batches:
        sums.update(*batch)
    return sums.compute()


def slow_quantile_figures(forecast, target, observed, keep=lambda window, channel: True):
    """Every figure by loops over windows, steps and channels."""
    pinball, magnitude, below, within, width = [], 0.0, [], [], []
    for b, h, c in np.argwhere(observed.numpy()):
        if not keep(b, c):
            continue
        y, q = float(target[b, h, c]), forecast[b, h, c].tolist()
        for level, x in zip(LEVELS, q, strict=True):
            pinball.append(level * (y - x) if y >= x else (1 - level) * (x - y))
        magnitude += abs(y)
        below.append([y <= x for x in q])
        within.append(q[1] <= y <= q[3])
        width.append(q[3] - q[1])
    return {
        "mean_pinball": np.mean(pinball),
        "scaled_crps": 2 * np.sum(pinball) / len(LEVELS) / magnitude,
        "fraction_below": np.mean(below, axis=0),
        "coverage": np.mean(within),
        "width": np.mean(width),
    }


def quantile_figures(errors: QuantileErrors) -> dict[str, np.ndarray | float]:
    return {
        "mean_pinball": errors.mean_pinball(),
        "scaled_crps": errors.scaled_crps(),
        "fraction_below": errors.fraction_below(),
        "coverage": errors.coverage(0.8),
        "width": errors.width(0.8),
    }


def assert_same_figures(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        assert_allclose(found[name], expected[name], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("seed", range(3))
def test_quantile_figures_equal_loops(seed):
    forecast, target, observed, series = quantile_batch(seed=seed)
    found = quantile_figures(quantile_errors((forecast, target, observed, series)))
    # Ends of an interval that cross hold nothing, but are counted apart: order this pair.
    ordered = forecast.sort(dim=-1).values
    expected = slow_quantile_figures(ordered, target, observed)
    assert_same_figures(
        quantile_figures(quantile_errors((ordered, target, observed, series))), expected
    )
    unordered = slow_quantile_figures(forecast, target, observed)
    for name in ("mean_pinball", "scaled_crps", "fraction_below", "width"):
        assert_allclose(found[name], unordered[name], rtol=1e-12)


def test_quantile_figures_of_some_channels_of_some_groups():
    forecast, target, observed, series = quantile_batch()
    forecast = forecast.sort(dim=-1).values
    members = np.array([[True, False], [False, False], [True, True]])
    found = quantile_errors((forecast, target, observed, series)).of(members)
    expected = slow_quantile_figures(
        forecast, target, observed, keep=lambda window, channel: members[series[window], channel]
    )
    assert_same_figures(quantile_figures(found), expected)


@pytest.mark.parametrize("size", [1, 7, 39])
def test_batches_of_quantiles_add_up_to_the_whole(size):
    batch = quantile_batch()
    parts = [tuple(x[i : i + size] for x in batch) for i in range(0, 40, size)]
    whole, parts = quantile_errors(batch), quantile_errors(*parts)
    assert_same_figures(quantile_figures(parts), quantile_figures(whole))


def test_missing_truth_does_not_count_whatever_stands_there():
    forecast, target, observed, series = quantile_batch()
    plain = quantile_errors((forecast, target, observed, series))
    wild_forecast = forecast.where(observed[..., None], float("nan"))
    for wild in (target.nan_to_num(1e30), target.nan_to_num(-7)):
        found = quantile_errors((wild_forecast, wild, observed, series))
        assert_same_figures(quantile_figures(found), quantile_figures(plain))


def test_an_oracle_scores_zero():
    _, target, observed, series = quantile_batch()
    forecast = target.nan_to_num()[..., None].expand(*target.shape, len(LEVELS))
    errors = quantile_errors((forecast, target, observed, series))
    assert (errors.mean_pinball(), errors.scaled_crps()) == (0, 0)
    assert (errors.width(0.8), errors.coverage(0.8)) == (0, 1)


def test_many_levels_give_the_crps_of_a_normal_distribution():
    """CRPS(N(m, s), y) = s (z (2 cdf(z) - 1) + 2 pdf(z) - 1 / sqrt(pi)), z = (y - m) / s."""
    levels = (np.arange(2000) + 0.5) / 2000
    m, s, truths = 3.0, 2.0, [3.0, 1.0, 9.0]
    normal = NormalDist()
    forecast = torch.tensor([m + s * normal.inv_cdf(level) for level in levels])
    closed = []
    for y in truths:
        z = (y - m) / s
        spread = z * (2 * normal.cdf(z) - 1) + 2 * normal.pdf(z) - 1 / math.sqrt(math.pi)
        closed.append(s * spread)
    sums = QuantileSums(1, 1, levels)
    target = torch.tensor(truths)[:, None, None]
    sums.update(
        forecast.expand(3, 1, 1, -1), target, torch.ones_like(target) > 0, torch.zeros(3).long()
    )
    errors = sums.compute()
    assert_allclose(errors.scaled_crps() * sum(truths), sum(closed), rtol=1e-4)
    assert_allclose(2 * errors.mean_pinball(), np.mean(closed), rtol=1e-4)


def test_nothing_observed_gives_nan():
    forecast, target, observed, series = quantile_batch()
    errors = quantile_errors((forecast, target, observed & False, series))
    assert all(np.isnan(value).all() for value in quantile_figures(errors).values())


def test_float32_quantiles_add_up_exactly():
    count = 30_000
    forecast = torch.full((count, 1, 1, 1), 0.1)
    sums = QuantileSums(1, 1, [0.5])
    for _ in range(10):
        target = torch.zeros(count, 1, 1)
        sums.update(forecast, target, torch.ones_like(target) > 0, torch.zeros(count).long())
    assert_allclose(sums.compute().mean_pinball(), float(np.float32(0.1)) / 2, rtol=1e-10)


def test_intervals_lie_between_levels_around_the_median():
    assert central_intervals([0.5, 0.95, 0.1, 0.9, 0.05, 0.2]) == [0.9, 0.8]
    assert central_intervals([1 / 3, 0.5]) == []
    assert interval_ends([0.05, 0.1, 0.5, 0.9, 0.95], 0.8) == (1, 3)


@pytest.mark.parametrize("nominal", [0.6, 0.0])
def test_an_interval_without_its_levels_is_refused(nominal):
    message = f"an interval of {100 * nominal:g} % needs the levels .*; there are 0.05, 0.1, 0.5"
    with pytest.raises(ConfigError, match=message):
        quantile_errors(quantile_batch()).coverage(nominal)
