"""Heads: losses, quantiles and draws against SciPy; quantiles that never cross."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats

from tsformer.nn.heads import QuantileHead, at_levels, make_head, normal_scores

LEVELS = (0.05, 0.1, 0.3, 0.5, 0.8, 0.975)
HEADS = ("point", "quantile", "normal", "student_t", "negative_binomial")
each_head = pytest.mark.parametrize("name", HEADS)


def head_of(name):
    return make_head(name, LEVELS)


def drawn(head, count=7, dtype=torch.float64, seed=0):
    """Return raw numbers, (count, K), with mean and standard deviation of an instance norm."""
    random = torch.Generator().manual_seed(seed)
    raw = torch.randn(count, head.num_parameters, generator=random, dtype=dtype)
    mean = 5 + torch.randn(count, generator=random, dtype=dtype)
    return raw, mean, 0.5 + torch.rand(count, generator=random, dtype=dtype)


def distribution(name, parameters):
    """Return SciPy's distributions with a head's parameters, (..., K)."""
    numbers = np.moveaxis(parameters.double().numpy(), -1, 0)
    if name == "normal":
        location, scale = numbers
        return stats.norm(location, scale)
    if name == "student_t":
        location, scale, freedom = numbers
        return stats.t(freedom, location, scale)
    mean, alpha = numbers
    return stats.nbinom(1 / alpha, 1 / (1 + alpha * mean))


def pinball(quantiles, truth, levels):
    """Return twice the mean pinball loss, by a plain loop."""
    losses = []
    for value, level in zip(quantiles, levels, strict=True):
        losses.append(level * (truth - value) if truth >= value else (1 - level) * (value - truth))
    return 2 * sum(losses) / len(losses)


@pytest.mark.parametrize("name", ["normal", "student_t"])
def test_loss_is_the_negative_log_density(name):
    head = head_of(name)
    parameters = head.parameters(*drawn(head))
    target = torch.linspace(-3, 12, 7, dtype=torch.float64)
    expected = -distribution(name, parameters).logpdf(target.numpy())
    assert_allclose(head.loss(parameters, target), expected, rtol=1e-10)


def test_loss_of_counts_is_their_negative_log_probability():
    head = head_of("negative_binomial")
    parameters = head.parameters(*drawn(head))
    target = torch.tensor([0.0, 1, 2, 5, 20, 3, 100], dtype=torch.float64)
    expected = -distribution("negative_binomial", parameters).logpmf(target.numpy())
    assert_allclose(head.loss(parameters, target), expected, rtol=1e-8)


def test_loss_of_quantiles_is_twice_the_mean_pinball_loss():
    head = head_of("quantile")
    parameters = head.parameters(*drawn(head))
    target = torch.linspace(2, 8, 7, dtype=torch.float64)
    expected = [
        pinball(row, truth, LEVELS)
        for row, truth in zip(parameters.tolist(), target.tolist(), strict=True)
    ]
    assert_allclose(head.loss(parameters, target), expected, rtol=1e-12)


def test_of_the_median_alone_the_loss_is_the_absolute_error_as_of_a_point():
    target = torch.linspace(-2, 2, 9)
    forecast = torch.zeros(9, 1)
    for head in (QuantileHead([0.5]), head_of("point")):
        assert torch.equal(head.loss(forecast, target), target.abs())


def test_an_oracle_loses_nothing():
    truth = torch.tensor([3.0, -1.0])
    assert head_of("point").loss(truth[:, None], truth).tolist() == [0, 0]
    head = head_of("quantile")
    raw = torch.full((2, len(LEVELS)), -1e4)  # no gaps
    raw[:, 0] = truth
    parameters = head.parameters(raw, torch.zeros(2), torch.ones(2))
    assert head.loss(parameters, truth).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["normal", "student_t", "negative_binomial"])
def test_quantiles_are_those_of_the_distribution(name):
    head = head_of(name)
    parameters = head.parameters(*drawn(head))
    levels = (0.001, 0.1, 0.5, 0.77, 0.999)
    expected = distribution(name, parameters[:, None]).ppf(np.array(levels))
    found = head.quantiles(parameters, levels)
    assert found.dtype == parameters.dtype
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_point_is_all_its_quantiles_and_draws():
    head = head_of("point")
    parameters = head.parameters(*drawn(head))
    assert torch.equal(head.quantiles(parameters, LEVELS), parameters.expand(-1, len(LEVELS)))
    assert torch.equal(head.sample(parameters), head.point(parameters))


def test_quantiles_of_counts_are_the_least_counts_that_hold_the_level():
    head = head_of("negative_binomial")
    parameters = head.parameters(*drawn(head, dtype=torch.float32))
    quantiles = head.quantiles(parameters, LEVELS)
    assert torch.equal(quantiles, quantiles.round())
    dist = distribution("negative_binomial", parameters[:, None])
    assert (dist.cdf(quantiles.numpy()) >= np.array(LEVELS) - 1e-9).all()
    assert (dist.cdf(quantiles.numpy() - 1) < LEVELS).all()


@each_head
def test_points_are_means_and_medians(name):
    head = head_of(name)
    parameters = head.parameters(*drawn(head))
    if name in ("normal", "student_t", "negative_binomial"):
        expected = distribution(name, parameters).mean()
    else:
        expected = head.quantiles(parameters, [0.5])[:, 0]
    assert_allclose(head.point(parameters), expected, rtol=1e-12)


@each_head
def test_draws_are_spread_as_the_quantiles_say(name):
    head, count = head_of(name), 40_000
    parameters = head.parameters(*drawn(head, count=3))
    torch.manual_seed(0)
    draws = head.sample(parameters.expand(count, -1, -1)).double()
    levels = [0.01, 0.05, 0.2, 0.5, 0.9, 0.99]
    quantiles = head.quantiles(parameters, levels)  # (3, Q)
    at_most = (draws[..., None] <= quantiles).double().mean(dim=0).numpy()
    below = (draws[..., None] < quantiles).double().mean(dim=0).numpy()
    slack = 5 * np.sqrt(np.array(levels) * (1 - np.array(levels)) / count)
    assert (at_most >= levels - slack).all()
    assert (below <= levels + slack).all()
    if name in ("normal", "negative_binomial"):
        dist = distribution(name, parameters)
        assert_allclose(draws.mean(dim=0), dist.mean(), atol=5 * (dist.std() / count**0.5).max())
        assert_allclose(draws.std(dim=0), dist.std(), rtol=0.05)


raws = st.lists(
    st.sampled_from([-1e4, -100.0, 0.0, 100.0, 1e4]) | st.floats(-30, 30, width=32),
    min_size=len(LEVELS),
    max_size=len(LEVELS),
)


@given(raws, st.floats(-1e3, 1e3, width=32), st.floats(2**-8, 1e3, width=32))
def test_quantiles_never_cross(raw, mean, std):
    head = head_of("quantile")
    raw, mean, std = (torch.tensor(x, dtype=torch.float32) for x in (raw, mean, std))
    parameters = head.parameters(raw, mean, std)
    assert parameters.isfinite().all()
    assert (parameters.diff() >= 0).all()
    assert head.point(parameters) == raw[0] * std + mean


@pytest.mark.parametrize("levels", [LEVELS, (0.1, 0.9), (0.6, 0.7), (0.2, 0.3), (0.9, 0.5, 0.1)])
def test_a_raw_zero_gives_the_quantiles_of_a_standard_normal(levels):
    head = QuantileHead(levels)
    assert head.levels == tuple(sorted({*levels, 0.5}))
    zeros = torch.zeros(4, head.num_parameters, dtype=torch.float64)
    parameters = head.parameters(zeros, torch.full((4,), 3.0), torch.full((4,), 2.0))
    assert_allclose(parameters[0], 3 + 2 * stats.norm.ppf(head.levels), rtol=1e-12)


@each_head
def test_forecasts_shift_and_stretch_with_the_instance_norm(name):
    head = head_of(name)
    raw, mean, std = drawn(head)
    zero, one = torch.zeros_like(mean), torch.ones_like(std)
    plain, moved = head.parameters(raw, zero, one), head.parameters(raw, mean, std)
    if name == "negative_binomial":  # positive by a bend: it follows where the mean is large
        far = head.parameters(raw, mean + 100, std)
        assert_allclose(head.point(far), raw[:, 0] * std + mean + 100, atol=1e-3)
        assert torch.equal(far[:, 1], plain[:, 1])
        return
    levels = (0.2, 0.5, 0.9)
    expected = head.quantiles(plain, levels) * std[:, None] + mean[:, None]
    assert_allclose(head.quantiles(moved, levels), expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["normal", "student_t"])
def test_a_raw_zero_is_a_scale_of_one(name):
    head = head_of(name)
    zeros = torch.zeros(1, head.num_parameters, dtype=torch.float64)
    parameters = head.parameters(zeros, torch.zeros(1), torch.ones(1))
    assert parameters[0, 0] == 0
    assert parameters[0, 1].item() == pytest.approx(1, abs=2e-4)


def test_shapes_of_student_t_and_counts_have_their_floors():
    zero, one = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    for raw in (-1e4, -30.0, 0.0, 3.0):
        raws = torch.full((1, 3), raw, dtype=torch.float64)
        _, _, freedom = head_of("student_t").parameters(raws, zero, one)[0].tolist()
        assert freedom == pytest.approx(2 + np.logaddexp(0, raw))  # a finite variance, just
        mean, alpha = head_of("negative_binomial").parameters(raws[:, :2], zero, one)[0].tolist()
        assert mean == alpha == pytest.approx(np.logaddexp(0, raw), abs=2e-4)
        assert alpha > 0


@each_head
@pytest.mark.parametrize("size", [0.0, 1e4])
@pytest.mark.parametrize("std", [math.sqrt(1e-5), 1.0, 1e3])  # of a constant window: the first
def test_losses_and_gradients_are_finite_at_extremes(name, size, std):
    head = head_of(name)
    count = head.num_parameters
    signs = torch.tensor(np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * count)).reshape(count, -1).T)
    raw = (size * signs).float().requires_grad_()
    stds = torch.full(raw.shape[:1], std)
    for value in (0.0, 1.0, 1000.0):
        parameters = head.parameters(raw, torch.zeros_like(stds), stds)
        loss = head.loss(parameters, torch.full_like(stds, value))
        assert loss.isfinite().all()
        (gradient,) = torch.autograd.grad(loss.sum(), raw)
        assert gradient.isfinite().all()


@each_head
def test_the_loss_is_least_at_the_truth(name):
    """Descending the mean loss of many draws finds the parameters that they were drawn from."""
    head, count = head_of(name), 4000
    true = torch.tensor([[0.3, -0.4, 0.2, 0.5, -0.2, 0.1]]).double()[:, : head.num_parameters]
    mean, std = torch.full((1,), 6.0).double(), torch.full((1,), 2.0).double()
    truth = head.parameters(true, mean, std)
    torch.manual_seed(0)
    draws = head.sample(truth.expand(count, -1))
    raw = torch.zeros_like(true).requires_grad_()
    optimizer = torch.optim.LBFGS([raw], max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = head.loss(head.parameters(raw, mean, std), draws).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    found = head.parameters(raw, mean, std).detach()
    assert_allclose(head.point(found), head.point(truth), atol=0.2)
    levels = (0.1, 0.3, 0.8)
    slack = 1 if name == "negative_binomial" else 0.25
    assert_allclose(head.quantiles(found, levels), head.quantiles(truth, levels), atol=slack)


# Other levels


def test_known_levels_give_their_own_values():
    random = torch.Generator().manual_seed(0)
    values = torch.randn(100, len(LEVELS), generator=random).sort(dim=-1).values
    assert torch.equal(at_levels(values, LEVELS, LEVELS), values)
    assert torch.equal(at_levels(values, LEVELS, LEVELS[::-1]), values.flip(-1))


@given(
    st.lists(st.floats(-5, 5), min_size=3, max_size=3),
    st.lists(st.floats(0.001, 0.999), min_size=1, max_size=9),
)
def test_between_and_beyond_levels_values_are_linear_in_the_normal_score(values, wanted):
    known = (0.1, 0.4, 0.9)
    values = sorted(values)
    x = stats.norm.ppf(known)
    found = at_levels(torch.tensor(values, dtype=torch.float64), known, wanted)
    for level, value in zip(wanted, found.tolist(), strict=True):
        score = stats.norm.ppf(level)
        left = 0 if level <= known[1] else 1
        slope = (values[left + 1] - values[left]) / (x[left + 1] - x[left])
        assert value == pytest.approx(values[left] + slope * (score - x[left]), abs=1e-9)


def test_a_normal_outlined_by_two_levels_is_that_normal():
    values = torch.tensor(stats.norm(3, 2).ppf([0.3, 0.6]))
    wanted = [0.001, 0.25, 0.5, 0.999]
    assert_allclose(at_levels(values, (0.3, 0.6), wanted), stats.norm(3, 2).ppf(wanted))


@given(st.lists(st.floats(1e-4, 1 - 1e-4), min_size=1, max_size=20))
def test_scores_are_those_of_scipy(levels):
    assert_allclose(normal_scores(levels), stats.norm.ppf(levels), rtol=1e-12, atol=1e-12)


def test_heads_are_made_by_name():
    assert make_head("quantile", [0.9]).levels == (0.5, 0.9)
    assert [head_of(name).num_parameters for name in HEADS] == [1, len(LEVELS), 2, 3, 2]
    assert head_of("normal").levels == ()
    with pytest.raises(ValueError, match=r"'poisson' is none of .*'normal'"):
        make_head("poisson")
    for levels in ((), (0.5,)):
        with pytest.raises(ValueError, match=r"needs a level beside 0\.5"):
            make_head("quantile", levels)
