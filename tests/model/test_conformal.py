"""Conformal offsets against slow loops, and coverage where theory promises it."""

import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tsformer.data.windows import WindowIndex
from tsformer.model.conformal import (
    ConformalOffsets,
    calibrate,
    calibration_windows,
    residuals,
    scores_needed,
    shifted,
    step_size,
    track,
)

LEVELS = (0.1, 0.25, 0.5, 0.9)
N, H, C, Q = 3, 4, 2, len(LEVELS)


def slow_offset(scores: list[float], level: float) -> float:
    """The definition, in exact arithmetic."""
    scores = sorted(x for x in scores if not math.isnan(x))
    place = (len(scores) + 1) * Fraction(str(level))
    rank = math.floor(place) if level < 0.5 else math.ceil(place)
    return scores[min(max(rank, 1), len(scores)) - 1]


def slow_offsets(scores: np.ndarray, levels: tuple[float, ...]) -> list[float]:
    """The definition for all levels of scores, (m, Q), in exact arithmetic."""
    rows = [row for row in scores.tolist() if not any(map(math.isnan, row))]
    exact = [Fraction(str(level)) for level in levels]
    offsets = []
    for q, level in enumerate(exact):
        if level == Fraction(1, 2):
            offsets.append(0.0)
        elif 1 - level in exact:
            lower, upper = sorted((q, exact.index(1 - level)))
            outside = sorted(max(-row[lower], row[upper]) for row in rows)
            rank = math.ceil((len(rows) + 1) * (exact[upper] - exact[lower]))
            widening = outside[min(rank, len(rows)) - 1]
            offsets.append(widening if q == upper else -widening)
        else:
            offsets.append(slow_offset([row[q] for row in rows], levels[q]))
    return offsets


def some_scores(count: int = 60, width: int = Q, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores of which a fifth is missing, and their groups in no order."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(count, H, C, width)).astype(np.float32)
    scores[random.random((count, H, C)) < 0.2] = np.nan
    return scores, random.integers(0, N, count)


# Offsets


@pytest.mark.parametrize("width", [1, Q], ids=["point forecast", "quantiles"])
def test_offsets_are_order_statistics_of_each_group_or_of_all_where_there_are_too_few(width):
    scores, group = some_scores(width=width)
    scores[group == 1, 2, 1] = np.nan  # nothing at one step
    found = ConformalOffsets.fit(scores, group, N, LEVELS)
    assert found.levels == LEVELS
    assert found.offsets.shape == (N + 1, H, C, Q)
    assert found.offsets.dtype == np.float32
    for n, h, c in np.ndindex(found.offsets.shape[:-1]):
        every = np.broadcast_to(scores[:, h, c], (len(scores), Q))
        own = every[group == n]
        enough = (~np.isnan(own[:, 0])).sum() >= 4
        assert_array_equal(found.offsets[n, h, c], slow_offsets(own if enough else every, LEVELS))


def test_a_group_has_its_own_offsets_from_the_scores_needed_on():
    scores = np.arange(100, dtype=np.float32)[:, None, None, None]
    for count, own in ((3, False), (4, True)):
        group = np.where(np.arange(100) < count, 0, 1)
        found = ConformalOffsets.fit(scores, group, 3, LEVELS).offsets[:, 0, 0]
        assert_array_equal(found[0], [-3, 0, 0, 3] if own else found[-1])
        assert found[1, 3] > 9
        assert_array_equal(found[2], found[-1])  # a group without any window


@pytest.mark.parametrize("count", [1, 9, 19, 50, 99, 199])
def test_ranks_are_exact(count):
    """Where (m+1) level is a whole number, floating point must not take the next score."""
    scores = np.arange(count, dtype=np.float32)[:, None, None, None]
    hundredths = np.arange(1, 100) / 100
    # Quantiles by themselves are moved outwards, as few scores may.
    for levels, own in (
        (hundredths, scores),
        (hundredths[:49], scores - count),
        (hundredths[50:], scores),
    ):
        levels = tuple(levels.tolist())
        found = ConformalOffsets.fit(own, np.zeros(count, dtype=np.int64), 1, levels)
        expected = slow_offsets(np.tile(own[:, 0, 0], (1, len(levels))), levels)
        assert_array_equal(found.offsets[:, 0, 0], [expected, expected])


def test_few_scores_widen_intervals_and_do_not_narrow_them():
    levels = (0.05, 0.25, 0.5, 0.95)
    group = np.zeros(3, dtype=np.int64)
    for row, expected in (([-2, -7, 9, 3], [-3, -7, 0, 3]), ([2, 7, 9, -3], [0, 0, 0, 0])):
        scores = np.array([row] * 3, dtype=np.float32)[:, None, None]
        found = ConformalOffsets.fit(scores, group, 1, levels).offsets[:, 0, 0]
        assert_array_equal(found, [expected, expected])


@pytest.mark.parametrize("level", [0.005, 0.01, 0.05, 0.1, 0.3, 0.7, 0.9, 0.99])
def test_scores_needed_are_the_fewest_whose_order_statistic_exists(level):
    exact = Fraction(str(level))

    def exists(m: int) -> bool:
        return (m + 1) * exact >= 1 if level < 0.5 else (m + 1) * exact <= m

    needed = scores_needed([0.5, level])
    assert exists(needed)
    assert not exists(needed - 1)
    if level < 0.5:  # both ends together leave twice as much outside
        pair = scores_needed([level, 1 - level])
        assert (pair + 1) * (1 - 2 * exact) <= pair
        assert pair == 0 or pair * (1 - 2 * exact) > pair - 1


def test_without_any_score_nothing_is_added():
    scores, group = some_scores()
    scores[:, 1, 0] = np.nan
    offsets = ConformalOffsets.fit(scores, group, N, LEVELS).offsets
    assert_array_equal(offsets[:, 1, 0], 0)
    assert np.isfinite(offsets).all()


def test_the_order_of_windows_does_not_matter():
    scores, group = some_scores()
    order = np.random.default_rng(1).permutation(len(group))
    assert_array_equal(
        ConformalOffsets.fit(scores[order], group[order], N, LEVELS).offsets,
        ConformalOffsets.fit(scores, group, N, LEVELS).offsets,
    )


def test_residuals_are_truth_less_forecast_and_nan_where_missing():
    random = np.random.default_rng(0)
    quantiles, truth = random.normal(size=(5, H, C, Q)), random.normal(size=(5, H, C))
    observed = random.random((5, H, C)) < 0.7
    for forecast, own in ((quantiles, quantiles), (quantiles[..., 2], quantiles[..., [2]])):
        found = residuals(forecast, truth, observed)
        assert found.shape == own.shape
        assert_allclose(found, np.where(observed[..., None], truth[..., None] - own, np.nan), 1e-6)


@pytest.mark.parametrize("size", [1, 7, 60])
def test_offsets_do_not_depend_on_batches(size):
    scores, group = some_scores()
    forecast = np.random.default_rng(1).integers(-9, 9, scores.shape).astype(np.float32)
    observed = ~np.isnan(scores).any(axis=-1)
    target = forecast[..., 0] + 0.5
    arrays = (forecast, np.where(observed, target, 1e9), observed, group)
    batches = (tuple(x[i : i + size] for x in arrays) for i in range(0, 60, size))
    expected = np.where(observed[..., None], target[..., None] - forecast, np.nan)
    assert_array_equal(
        calibrate(batches, N, LEVELS).offsets,
        ConformalOffsets.fit(expected.astype(np.float32), group, N, LEVELS).offsets,
    )


def test_apply_adds_the_offsets_of_each_group_and_orders_the_quantiles():
    offsets = np.random.default_rng(0).normal(size=(N + 1, H, C, Q)).astype(np.float32)
    conformal = ConformalOffsets(LEVELS, offsets)
    group = np.array([2, -1, 0])
    forecast = np.random.default_rng(1).normal(size=(3, H, C, Q)).astype(np.float32)
    offsets[..., LEVELS.index(0.5)] = 0.0
    forecast.sort(axis=-1)

    def moved(quantiles, by):
        low, middle, high = quantiles[:2] + by[:2], quantiles[2], quantiles[3] + by[3]
        return [*sorted(np.minimum(low, middle)), middle, max(high, middle)]

    expected = [
        moved(forecast[b, h, c], offsets[n, h, c])
        for b, n in enumerate((2, N, 0))
        for h in range(H)
        for c in range(C)
    ]
    found = conformal.apply(forecast, group)
    assert_array_equal(found, np.reshape(expected, found.shape))
    assert found.dtype == np.float32
    assert_array_equal(conformal.apply(forecast[:, :2], group), found[:, :2])
    point = forecast[..., 0]
    same = np.repeat(point[..., None], Q, axis=-1)
    assert_array_equal(conformal.apply(point, group), conformal.apply(same, group))


# Coverage


def test_split_conformal_quantiles_hold_what_they_promise():
    """Truths are as often below each quantile as its level says, whatever the forecast's fault.

    Given m scores the fraction below is Beta distributed around rank / (m + 1); many groups
    average that out.
    """
    random = np.random.default_rng(0)
    groups, m, trials = 200, 99, 200
    levels = (0.05, 0.1, 0.5, 0.9, 0.95)
    normal = NormalDist()
    # A base that is biased and much too sure of itself.
    base = 0.7 + 0.3 * np.array([normal.inv_cdf(level) for level in levels])

    def draw(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        group = np.repeat(np.arange(groups), count)
        truth = random.gamma(2.0, size=(len(group), 2, 1)) * np.array([1.0, 3.0])[:, None]
        return np.broadcast_to(base, (*truth.shape, len(levels))), truth, group

    forecast, truth, group = draw(m)
    scores = residuals(forecast, truth, np.ones_like(truth, dtype=bool))
    conformal = ConformalOffsets.fit(scores, group, groups, levels)
    alone = ConformalOffsets.fit(scores[..., 3:], group, groups, levels[3:])
    forecast, truth, group = draw(trials)
    # 40,000 truths, and the groups' own fractions, sd <= 0.05 / sqrt(200) = 0.0036.
    close = {"rtol": 0, "atol": 4 * math.sqrt(0.25 / 40_000 + 0.0036**2)}
    y = truth[..., None]
    for own in (group, np.full_like(group, -1)):
        found = conformal.apply(forecast, own)
        within = (y >= found[..., [0, 1]]) & (y <= found[..., [4, 3]])
        assert_allclose(within.mean(axis=(0, 2)), np.tile([0.9, 0.8], (2, 1)), **close)
        assert_array_equal(found[..., 2], forecast[..., 2])  # the median stays
        below = (y <= alone.apply(forecast[..., 3:], own)).mean(axis=(0, 2))  # no counterparts
        assert_allclose(below, np.tile([0.9, 0.95], (2, 1)), **close)
    raw = ((y >= forecast[..., [0, 1]]) & (y <= forecast[..., [4, 3]])).mean(axis=(0, 2))
    assert (raw < 0.5).all()  # what the base promises is far off


@pytest.mark.parametrize("m", [4, 9, 20])
def test_small_samples_never_cover_too_little(m):
    """P(truth within) = rank / (m + 1): at least the interval's probability."""
    random = np.random.default_rng(m)
    repeats, levels = 20_000, (0.2, 0.8)
    scores = random.normal(size=(m, 1, repeats, 1)).astype(np.float32)  # repeats as channels
    offsets = ConformalOffsets.fit(scores, np.zeros(m, dtype=np.int64), 1, levels).offsets
    truth = random.normal(size=(1, repeats))
    within = ((truth >= offsets[0, ..., 0]) & (truth <= offsets[0, ..., 1])).mean()
    rank = math.ceil((m + 1) * Fraction("0.6"))
    assert_allclose(within, rank / (m + 1), atol=4 * 0.5 / math.sqrt(repeats))


# Which windows


def index_of(counts: list[int]) -> WindowIndex:
    groups = np.arange(len(counts))[:, None]
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return WindowIndex(groups, np.zeros(len(counts), dtype=np.int64), offsets)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(1, 50), st.integers(3, 900)
)
def test_windows_to_calibrate_on_are_few_and_spread_over_each_group(counts, each, most):
    counts = [*counts, 5]
    index = index_of(counts)
    windows = calibration_windows(index, 3, max_windows=each, max_scores=most)
    assert (np.diff(windows) > 0).all()
    assert 1 <= len(windows) <= most // 3
    group, _ = index.locate(windows)
    taken = np.bincount(group, minlength=len(counts))
    assert (taken <= np.minimum(counts, each)).all()
    share = most // 3 // np.count_nonzero(counts)
    if share:
        assert_array_equal(taken, np.minimum(counts, min(each, share)))
    for n in np.flatnonzero(taken > 1):
        own = windows[group == n]
        assert (own[0], own[-1]) == (index.offsets[n], index.offsets[n + 1] - 1)
        assert np.ptp(np.diff(own)) <= 1


def test_one_window_is_calibrated_on_even_if_its_scores_are_too_many():
    assert_array_equal(calibration_windows(index_of([3, 3]), 100, max_scores=10), [0])


# Tracking


def slow_track(forecast, target, offsets, levels, eta):
    offsets = offsets.copy()
    for w in range(len(target)):
        for place in np.ndindex(target.shape[1:]):
            if math.isnan(target[w][place]):
                continue
            y, quantiles = target[w][place], forecast[w][place] + offsets[place]
            outside = not quantiles[0] <= y <= quantiles[3]  # 0.1 and 0.9; 0.5 stays
            offsets[place][3] += eta[place] * (outside - 0.2)
            offsets[place][0] -= eta[place] * (outside - 0.2)
            offsets[place][1] += eta[place] * (levels[1] - (y <= quantiles[1]))
    return offsets


@pytest.mark.parametrize("shape", [(H, C), (5, H, C)], ids=["one series", "several"])
def test_tracking_equals_loops(shape):
    random = np.random.default_rng(0)
    forecast = random.normal(size=(19, *shape, Q))
    target = random.normal(size=(19, *shape)) * np.arange(1, H + 1)[:, None]
    target[random.random(target.shape) < 0.3] = np.nan
    offsets = random.normal(size=(*shape, Q))
    target[0] = forecast[0, ..., 1] + offsets[..., 1]  # at a quantile is below it
    target[(slice(None), *np.zeros(len(shape), dtype=int))] = np.nan  # no truth at all
    kept = offsets.copy()
    eta = random.random(shape)
    found = track(forecast, target, offsets, LEVELS, eta[..., None])
    assert_allclose(found, slow_track(forecast, target, kept, LEVELS, eta))
    assert_array_equal(offsets, kept)  # what was given is not written to
    assert_array_equal(found[(0,) * len(shape)], kept[(0,) * len(shape)])
    assert not np.array_equal(found, kept)


def test_tracking_point_forecasts_is_tracking_the_same_quantiles():
    random = np.random.default_rng(0)
    point, target = random.normal(size=(2, 30, H, C))
    same = np.repeat(point[..., None], Q, axis=-1)
    start = np.zeros((H, C, Q))
    assert_array_equal(
        track(point, target, start, LEVELS, 0.1), track(same, target, start, LEVELS, 0.1)
    )
    assert_array_equal(step_size(point, target), step_size(same, target))


def test_a_step_is_a_part_of_the_spread_of_the_scores():
    random = np.random.default_rng(0)
    spread = np.array([1.0, 5.0])
    target = 7 + spread * random.normal(size=(4000, H, 2))
    target[random.random(target.shape) < 0.3] = np.nan
    target[:, 0, 0] = np.nan
    found = step_size(np.zeros((4000, H, 2, Q)), target, rate=0.1)
    assert found.shape == (H, 2, 1)
    assert found[0, 0] == 0
    assert_allclose(found[1:, :, 0], np.tile(0.1 * spread, (H - 1, 1)), rtol=0.1)
    assert_allclose(step_size(np.zeros((4000, H, 2)), target, rate=0.2), 2 * found)


def fractions_within(truth, offsets, levels, eta):
    """Follow truths of a forecast of 0, each a window of one step; eta 0 stands still.

    Returns how many lay between the first and the last level, or below the only one.
    """
    within = 0
    offsets = offsets.reshape(1, 1, -1)
    for y in truth:
        lowest = offsets[0, 0, 0] if len(levels) > 1 else -math.inf
        within += lowest <= y <= offsets[0, 0, -1]
        offsets = track(np.zeros((1, 1, 1)), np.full((1, 1, 1), y), offsets, levels, eta)
    return within / len(truth)


def drifting(kind: str, count: int) -> np.ndarray:
    random = np.random.default_rng(0)
    t = np.arange(count)
    noise = random.normal(size=count)
    return {
        "trend": noise + 8 * t / count,
        "growing noise": noise * (1 + 4 * t / count),
        "jumps": noise + 6 * (t // 500 % 2),
    }[kind]


@pytest.mark.parametrize("kind", ["trend", "growing noise", "jumps"])
def test_tracking_covers_drifting_series_where_offsets_that_stand_still_do_not(kind):
    levels, eta, count = (0.05, 0.5, 0.95), 0.2, 4000
    truth = drifting(kind, count)
    scores = truth[:200, None, None, None].astype(np.float32)
    group = np.zeros(len(scores), dtype=np.int64)
    start = ConformalOffsets.fit(scores, group, 1, levels).offsets[0]
    still = fractions_within(truth[200:], start, levels, 0.0)
    moving = fractions_within(truth[200:], start, levels, eta)
    assert abs(still - 0.9) > 0.1
    bound = (np.ptp(truth) + eta) / (eta * (count - 200))
    assert abs(moving - 0.9) < bound
    assert abs(moving - 0.9) < 0.02


@given(
    st.lists(st.floats(-1, 1), min_size=50, max_size=200),
    st.sampled_from([(0.05,), (0.3,), (0.9,), (0.1, 0.9), (0.3, 0.5, 0.7)]),
)
def test_no_series_defeats_the_bound_of_tracking(truth, levels):
    eta = 0.5
    found = fractions_within(np.array(truth), np.zeros(len(levels)), levels, eta)
    nominal = levels[-1] - (levels[0] if len(levels) > 1 else 0)
    assert abs(found - nominal) <= (2 + eta) / (eta * len(truth)) + 1e-9


def test_an_adversary_does_not_defeat_it_either():
    """A truth always right above or below the quantile, as harms most so far."""
    eta, level, count = 0.5, 0.9, 1000
    offset, below = np.zeros((1, 1, 1)), 0
    for _ in range(count):
        # Within [-1, 1], a miss wherever the offset leaves room for one.
        y = min(offset.item() + 1e-6, 1.0)
        below += y <= offset.item()
        offset = track(np.zeros((1, 1, 1)), np.full((1, 1, 1), y), offset, (level,), eta)
    assert abs(below / count - level) <= (2 + eta) / (eta * count)


def test_an_interval_narrowed_by_more_than_its_width_ends_at_the_median():
    forecast, offsets = np.array([[[-1.0, 0.0, 2.0]]]), np.array([[[5.0, 0.0, -4.0]]])
    levels = (0.1, 0.5, 0.9)
    assert_array_equal(shifted(forecast, offsets, levels), [[[0.0, 0.0, 0.0]]])
    without = [[[0.5, 0.5]]]  # halfway between -1 and 2
    assert_array_equal(shifted(forecast[..., [0, 2]], offsets[..., [0, 2]], (0.1, 0.9)), without)


def test_calibration_does_not_widen_intervals_that_are_narrowed():
    """Few quiet windows among loud ones, which are all forecast twice too wide."""
    rng = np.random.default_rng(0)
    sigma = np.where(rng.random(2000) < 0.1, 1.0, 10.0)
    forecast = 2 * sigma[:, None, None, None] * np.array([-1.2816, 0.0, 1.2816])
    truth = (sigma * rng.normal(size=2000))[:, None, None]
    observed = np.ones_like(truth, bool)
    group, levels = np.zeros(2000, np.int64), (0.1, 0.5, 0.9)
    found = calibrate([(forecast, truth, observed, group)], 1, levels).apply(forecast, group)
    assert (np.abs(found) <= np.abs(forecast)).all()
    assert_array_equal(found[..., 1], forecast[..., 1])
    inside = (found[:, 0, 0, 0] <= truth[:, 0, 0]) & (truth[:, 0, 0] <= found[:, 0, 0, 2])
    assert abs(inside.mean() - 0.8) < 0.02


def test_crossing_quantiles_of_one_side_are_put_in_order():
    forecast, offsets = np.array([[[-2.0, -1.0, 0.0]]]), np.array([[[1.5, 0.0, 0.0]]])
    levels = (0.1, 0.2, 0.5)
    assert_array_equal(shifted(forecast, offsets, levels), [[[-1.0, -0.5, 0.0]]])
    assert_array_equal(shifted(np.array([[1.0]]), offsets, levels), [[[1.0, 1.0, 2.5]]])
