"""Linear maps from context to horizon, against plain loops in double precision."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tsformer.nn.skip import FullSkip, IndividualSkip, SeasonalSkip, make_skip


def random_skip(length, horizon, patch_len):
    torch.manual_seed(0)
    skip = SeasonalSkip(length, horizon, patch_len).double().requires_grad_(False)
    for parameter in skip.latest.parameters():
        torch.nn.init.normal_(parameter)
    return skip


def seasonal_by_loops(skip, x, horizon, patch_len):
    """Return the forecast of one series, (L,) -> (H,)."""
    kernel, patches = (p.numpy().squeeze() for p in (skip.neighbours.weight, skip.patches.weight))
    patches = patches.reshape(-1, len(x) // patch_len)
    kernel = np.atleast_1d(kernel)
    reach = len(kernel) // 2
    padded = np.pad(x, reach)
    mixed = [x[t] + kernel @ padded[t : t + len(kernel)] for t in range(len(x))]
    forecast = np.zeros(horizon)
    for step in range(horizon):
        phase = step % patch_len
        forecast[step] = patches[step // patch_len] @ mixed[phase::patch_len]
    latest = skip.latest.weight.numpy() @ x[-2 * patch_len :] + skip.latest.bias.numpy()
    forecast[: len(latest)] += latest
    return forecast


@pytest.mark.parametrize(
    ("length", "horizon", "patch_len"),
    [(24, 10, 4), (24, 20, 4), (24, 3, 4), (24, 12, 12), (24, 30, 24), (5, 7, 1), (25, 11, 5)],
)
def test_the_seasonal_skip_maps_the_same_phases_and_the_latest_steps(length, horizon, patch_len):
    skip = random_skip(length, horizon, patch_len)
    x = torch.randn(3, length, 2, dtype=torch.float64)
    found = skip(x)
    assert found.shape == (3, horizon, 2)
    for window, channel in np.ndindex(3, 2):
        expected = seasonal_by_loops(skip, x[window, :, channel].numpy(), horizon, patch_len)
        assert_allclose(found[window, :, channel], expected, atol=1e-12)


def test_the_latest_two_patches_reach_four_ahead():
    assert SeasonalSkip(24, 20, 4).latest.weight.shape == (16, 8)
    assert SeasonalSkip(4, 10, 4).latest.weight.shape == (10, 4)


def test_the_latest_steps_say_nothing_at_first():
    skip = SeasonalSkip(24, 10, 4)
    assert all((parameter == 0).all() for parameter in skip.latest.parameters())


def test_the_full_skip_is_a_matrix_product():
    skip = FullSkip(6, 4).double().requires_grad_(False)
    x = torch.randn(3, 6, 2, dtype=torch.float64)
    expected = np.einsum("hl,blc->bhc", skip.weight, x) + skip.bias.numpy()[:, None]
    assert_allclose(skip(x), expected, atol=1e-12)


def test_the_individual_skip_is_a_matrix_product_for_each_channel():
    torch.manual_seed(0)
    skip = IndividualSkip(6, 4, 2).double().requires_grad_(False)
    assert all((parameter == 0).all() for parameter in skip.parameters())
    for parameter in skip.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(3, 6, 2, dtype=torch.float64)
    expected = np.einsum("clh,blc->bhc", skip.weight, x) + skip.bias.numpy()[:, 0].T
    assert_allclose(skip(x), expected, atol=1e-12)


def test_skips_have_names():
    assert make_skip("none", 24, 10, 4, 3) is None
    assert isinstance(make_skip("full", 24, 10, 4, 3), FullSkip)
    assert isinstance(make_skip("seasonal", 24, 10, 4, 3), SeasonalSkip)
    assert isinstance(make_skip("individual", 24, 10, 4, 3), IndividualSkip)
    with pytest.raises(ValueError, match="'short'"):
        make_skip("short", 24, 10, 4, 3)
