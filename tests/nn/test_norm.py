"""Instance statistics against NumPy over the observed values alone."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tsformer.nn.norm import instance_statistics

EPS = 1e-5


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.integers(1, 30),
    share=st.floats(0, 1),
    center=st.sampled_from(["mean", "last"]),
)
def test_statistics_of_the_observed_values(seed, length, share, center):
    rng = np.random.default_rng(seed)
    x = rng.normal(rng.normal(scale=10), rng.gamma(1.0), size=(2, length, 3))
    observed = rng.random(x.shape) < share
    mean, std = instance_statistics(torch.from_numpy(x), torch.from_numpy(observed), center)
    assert mean.shape == std.shape == (2, 1, 3)
    for window in range(2):
        for channel in range(3):
            values = x[window, observed[window, :, channel], channel]
            middle = values[-1:] if center == "last" else values
            expected = (middle.mean(), np.sqrt(values.var() + EPS)) if len(values) else (0, 1)
            got = (mean[window, 0, channel].item(), std[window, 0, channel].item())
            assert got == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("center", ["mean", "last"])
def test_channel_without_values_gets_center_0_and_deviation_1(center):
    x, observed = torch.full((2, 5, 2), 7.0), torch.ones(2, 5, 2, dtype=torch.bool)
    observed[0, :, 1] = False
    mean, std = instance_statistics(x, observed, center)
    assert (mean[0, 0, 1], std[0, 0, 1]) == (0, 1)
    assert mean[1, 0, 1] == 7


@pytest.mark.parametrize("level", [0.0, 3.0, -1e6])
def test_constant_windows_divide_by_a_positive_number(level):
    x = torch.full((1, 24, 1), level)
    mean, std = instance_statistics(x, torch.ones_like(x, dtype=torch.bool))
    assert mean.item() == pytest.approx(level)
    assert std.item() == pytest.approx(math.sqrt(EPS), rel=1e-3)


@pytest.mark.parametrize("center", ["mean", "last"])
@pytest.mark.parametrize("garbage", [1e30, math.inf, math.nan])
def test_unobserved_values_do_not_matter(garbage, center):
    torch.manual_seed(0)
    x, observed = torch.randn(2, 9, 2), torch.rand(2, 9, 2) < 0.5
    statistics = instance_statistics(x, observed, center)
    changed = instance_statistics(x.where(observed, garbage), observed, center)
    assert all(torch.equal(a, b) for a, b in zip(statistics, changed, strict=True))


def test_gradient_of_a_constant_window_is_finite():
    x = torch.full((1, 6, 1), 2.0, requires_grad=True)
    mean, std = instance_statistics(x, torch.ones(1, 6, 1, dtype=torch.bool))
    (mean + std).sum().backward()
    assert x.grad.isfinite().all()
