"""Dropout's rate, independence and scaling, against the binomial distribution."""

import math

import pytest
import torch
from torch import nn

from tsformer.nn.dropout import Dropout, random_mask

RATES = [0.01, 0.1, 0.2, 0.5, 0.9]
each_rate = pytest.mark.parametrize("rate", RATES)
SIZE = 400_000


def dropped(rate, size=SIZE, seed=0):
    """Return where a mask is 0, as 0.0 and 1.0."""
    torch.manual_seed(seed)
    return (random_mask(torch.ones(size), rate) == 0).double()


def assert_independent(a, b, rate):
    """The product of two independent Bernoulli variables has mean rate^2."""
    deviation = math.sqrt(rate**2 * (1 - rate**2) / a.numel())
    assert abs((a * b).mean() - rate**2) < 5 * deviation


@each_rate
def test_as_many_are_dropped_as_the_rate_says(rate):
    deviation = math.sqrt(rate * (1 - rate) / SIZE)
    for seed in range(5):
        assert abs(dropped(rate, seed=seed).mean() - rate) < 5 * deviation


@each_rate
def test_each_of_the_values_that_share_a_draw_has_the_rate(rate):
    shares = dropped(rate).view(-1, 4).mean(dim=0)
    assert (shares - rate).abs().max() < 5 * math.sqrt(rate * (1 - rate) / (SIZE / 4))


@each_rate
def test_values_are_dropped_independently(rate):
    mask = dropped(rate)
    for lag in (1, 2, 3, 4, 5, 8, 16, 64, 128):
        assert_independent(mask[:-lag], mask[lag:], rate)


@each_rate
def test_calls_are_independent(rate):
    torch.manual_seed(0)
    x = torch.ones(SIZE)
    first, second = ((random_mask(x, rate) == 0).double() for _ in range(2))
    assert_independent(first, second, rate)


@each_rate
def test_counts_in_blocks_spread_as_the_binomial_distribution(rate):
    """A sum of dependent values would spread more, or less."""
    counts = dropped(rate).view(-1, 200).sum(dim=1)
    variance = 200 * rate * (1 - rate)
    # The relative standard error of a variance of n normal values is sqrt(2 / n).
    assert abs(counts.var() / variance - 1) < 6 * math.sqrt(2 / len(counts))


@each_rate
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_kept_is_scaled_so_that_the_mean_stays(rate, dtype):
    mask = random_mask(torch.ones(SIZE, dtype=dtype), rate)
    assert mask.dtype == dtype
    (scale,) = mask[mask != 0].unique().tolist()
    assert scale == pytest.approx(1 / (1 - rate), rel=1e-2 if dtype == torch.bfloat16 else 1e-3)


def test_rates_are_kept_to_2_to_the_minus_16():
    kept = random_mask(torch.ones(100), 0.1)
    kept = kept[kept != 0][0].item()
    assert 1 - 1 / kept == pytest.approx(0.1, abs=2**-17)
    assert random_mask(torch.ones(100), 1 - 1e-9).isfinite().all()


def test_seeds_give_masks():
    x = torch.ones(3, 5, 7)
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(Dropout(0.5)(x))
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3, 5), (0, 4)])
def test_any_shape(shape):
    x = torch.full(shape, 2.0)
    output = Dropout(0.5)(x)
    assert output.shape == shape
    assert ((output == 0) | (output == 4)).all()


def test_gradients_pass_where_values_do():
    torch.manual_seed(0)
    x = torch.randn(50, 40, requires_grad=True)
    output = Dropout(0.3)(x)
    output.sum().backward()
    assert torch.equal(x.grad == 0, output == 0)
    torch.testing.assert_close(x.grad * x, output)


def test_in_evaluation_and_at_rate_0_it_does_nothing():
    x = torch.randn(3, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_it_is_torchs_dropout_to_those_who_look_for_it():
    assert isinstance(Dropout(0.1), nn.Dropout)
    assert Dropout(0.1).p == 0.1
