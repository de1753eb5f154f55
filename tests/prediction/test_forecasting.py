"""Horizons of any length against a plain loop; quantiles and paths from networks."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from tests.data.stores import store_of
from tests.nn.test_network import CONTEXT, DECODINGS, build, build_with, draw
from tsformer.data.covariates import CovariateEncoder
from tsformer.data.scaling import Scaler
from tsformer.data.windows import WindowBatch, WindowDataset, WindowIndex
from tsformer.model.conformal import ConformalOffsets, residuals
from tsformer.prediction import forecasting
from tsformer.prediction.forecasting import calibrate, forecast_windows, roll_out, sample_windows

H = 10  # of `build`
LEVELS = (0.1, 0.5, 0.8)
each_decoding = pytest.mark.parametrize("decoding", DECODINGS)


def batch_of(steps, batch=3, **sizes):
    """Return a batch with future features of so many steps."""
    inputs = draw(batch=batch, horizon=steps, **sizes)
    nothing = torch.empty(batch, 0, inputs["context"].size(2))
    return WindowBatch(*inputs.values(), nothing, nothing > 0, torch.arange(batch))


def first_steps(batch, steps):
    return batch._replace(future_features=batch.future_features[:, :steps])


# Rolling out


def toy(context, observed, past, future, static):
    """Forecast 4 steps so that each depends on all that it may depend on."""
    seen = (context * observed).mean(dim=1, keepdim=True) + observed.sum(dim=1, keepdim=True) / 9
    before = past.square().sum(dim=(1, 2))[:, None, None] / 99 + past[:, -1:, :1]
    ahead = future.cumsum(dim=1).sum(dim=2, keepdim=True)
    point = seen + context[:, -1:] / 2 + before + ahead + static.sum(dim=1)[:, None, None]
    return torch.stack([point, point + 1], dim=-1), point


def roll_out_plainly(batch, steps, horizon):
    """Write each block's forecasts behind the series, as if they were its values."""
    context, observed, past, future, static = (x.numpy() for x in batch.inputs)
    length, num_future = context.shape[1], future.shape[2]
    blocks = -(-steps // horizon)
    size = length + blocks * horizon
    values = np.zeros((len(context), size, context.shape[2]))
    known = np.zeros(values.shape, dtype=bool)
    features = np.zeros((len(context), size, past.shape[2]))
    values[:, :length], known[:, :length], features[:, :length] = context, observed, past
    features[:, length : length + steps, :num_future] = future
    for begin in range(length, size, horizon):
        seen, ahead = slice(begin - length, begin), slice(begin, begin + horizon)
        arrays = values[:, seen], known[:, seen], features[:, seen]
        arrays += features[:, ahead, :num_future], static
        values[:, ahead] = toy(*map(torch.from_numpy, arrays))[1]
        known[:, ahead] = True
    return values[:, length : length + steps]


@pytest.mark.parametrize("steps", [1, 2, 4, 5, 8, 10, 33])  # of 4; the context spans 24
@pytest.mark.parametrize(("past", "future"), [(0, 0), (3, 0), (3, 2), (2, 2)])
@pytest.mark.parametrize("channels", [1, 2])
def test_longer_horizons_go_on_from_the_forecasts_before(steps, past, future, channels):
    batch = batch_of(steps, channels=channels, past=past, future=future)
    past_features = torch.nn.functional.pad(batch.past_features, (0, 1))  # one column at least
    batch = batch._replace(past_features=past_features)
    found = roll_out(toy, batch.inputs, 4)
    expected = roll_out_plainly(batch, steps, 4)
    assert_allclose(found, np.stack([expected, expected + 1], axis=-1), rtol=1e-12)


@each_decoding
@pytest.mark.parametrize("steps", [5, 10, 25])
def test_forecasts_of_any_length_are_the_networks_block_by_block(decoding, steps):
    network, batch = build(decoding=decoding), batch_of(steps)
    found = forecast_windows(network, batch)
    assert found.quantiles.shape == (3, steps, 2, 0)
    expected = roll_out(
        lambda *inputs: (network.head.point(network(*inputs)),) * 2, batch.inputs, H
    )
    assert found.point.dtype == np.float64
    assert_allclose(found.point, expected.detach(), atol=1e-12)


@each_decoding
def test_a_shorter_horizon_is_the_beginning_of_the_trained_one(decoding):
    network, batch = build(decoding=decoding), batch_of(H)
    whole = forecast_windows(network, batch).point
    for steps in (4, 8):  # whole tokens, which alone see all that they did
        part = forecast_windows(network, first_steps(batch, steps)).point
        assert_allclose(part, whole[:, :steps], atol=1e-12)


# Quantiles and paths


@pytest.mark.parametrize("head", ["point", "quantile", "normal", "student_t"])
@pytest.mark.parametrize("steps", [4, H, 25])
def test_quantiles_of_parallel_decoding_are_the_heads(head, steps):
    network, batch = build_with(head), batch_of(steps)
    found = forecast_windows(network, batch, LEVELS)

    def forecast(*inputs):
        parameters = network(*inputs)
        return network.head.quantiles(parameters, LEVELS), network.head.point(parameters)

    assert_allclose(found.quantiles, roll_out(forecast, batch.inputs, H).detach(), atol=1e-12)
    assert_allclose(found.point, forecast_windows(network, batch).point, atol=1e-12)
    assert (np.diff(found.quantiles, axis=-1) >= 0).all()


@pytest.mark.parametrize("at_once", [4096, 1])
def test_quantiles_of_stepwise_decoding_are_those_of_paths(at_once, monkeypatch):
    monkeypatch.setattr(forecasting, "PATHS_AT_ONCE", at_once)
    network, batch = build_with("normal", decoding="autoregressive"), batch_of(H)
    torch.manual_seed(0)
    found = forecast_windows(network, batch, LEVELS)
    torch.manual_seed(0)
    paths = sample_windows(network, batch, forecasting.NUM_PATHS)
    expected = np.moveaxis(np.quantile(paths, LEVELS, axis=1), 0, -1)
    assert_allclose(found.quantiles, expected, atol=1e-12)
    assert_allclose(found.point, forecast_windows(network, batch).point, atol=1e-12)


def test_quantiles_of_stepwise_points_need_no_paths():
    network, batch = build(decoding="autoregressive"), batch_of(H)
    network.sample = None
    found = forecast_windows(network, batch, LEVELS)
    assert_allclose(found.quantiles, np.repeat(found.point[..., None], 3, axis=-1), rtol=0)


@each_decoding
@pytest.mark.parametrize("steps", [4, H, 25])
def test_paths_have_all_steps_and_differ(decoding, steps):
    network, batch = build_with("normal", decoding=decoding), batch_of(steps)
    torch.manual_seed(0)
    paths = sample_windows(network, batch, 5)
    assert paths.shape == (3, 5, steps, 2)
    assert paths.dtype == np.float64
    assert len(np.unique(paths)) == paths.size


@each_decoding
@pytest.mark.parametrize("steps", [4, H, 25])
def test_paths_of_points_are_the_forecast_at_any_length(decoding, steps):
    network, batch = build(decoding=decoding), batch_of(steps)
    paths = sample_windows(network, batch, 2)
    point = forecast_windows(network, batch).point
    assert_allclose(paths, np.repeat(point[:, None], 2, axis=1), atol=1e-10)


def test_beyond_the_horizon_each_path_goes_on_from_its_own_values():
    network, batch = build_with("normal"), batch_of(2 * H, batch=2)
    shifts = torch.arange(6.0, dtype=torch.float64).view(2, 3, 1, 1)  # of window b, path m
    contexts = []
    forward = network.forward
    network.forward = lambda *inputs: contexts.append(inputs[0]) or forward(*inputs)
    network.head.sample = lambda parameters: (
        network.head.point(parameters) + shifts.view(parameters.size(0), -1, 1, 1)
    )
    paths = sample_windows(network, batch, 3)  # (B, M, 2H, C)
    first, second = contexts
    assert first.shape == second.shape == (6, CONTEXT, 2)
    expected = np.concatenate(
        [batch.context[:, None, H:].expand(2, 3, -1, 2).numpy(), paths[:, :, :H]], axis=2
    )
    assert_allclose(second.unflatten(0, (2, 3)), expected, rtol=1e-12)


# Calibration


@pytest.mark.parametrize("head", ["point", "quantile"])
def test_a_network_is_calibrated_by_its_residuals_on_every_window(head):
    rng = np.random.default_rng(0)
    series = {id: rng.normal(size=90) for id in "ab"}
    series["b"][40:45] = np.nan
    store = store_of(series)
    groups = np.array([[0], [1]])
    index = WindowIndex.between(store, groups, begin=30, end=90, context_length=CONTEXT, horizon=H)
    nothing = CovariateEncoder((), np.empty(0), np.empty(0), {})
    windows = WindowDataset(
        store,
        index,
        Scaler.fit(store, 90, per="none"),
        nothing,
        nothing,
        np.empty((90, 0), np.float32),
        context_length=CONTEXT,
        horizon=H,
        num_future_covariates=0,
    )
    sizes = {"num_channels": 1, "cardinalities": (), "num_future_features": 0}
    network = build_with(head, static_cardinalities=(), **sizes).float()
    found = calibrate(network, windows, LEVELS, batch_size=7)

    batch = windows[np.arange(len(index))]
    forecasts = forecast_windows(network, batch, LEVELS)
    base = forecasts.point if head == "point" else forecasts.quantiles
    scores = residuals(base, batch.target.numpy(), batch.target_observed.numpy())
    expected = ConformalOffsets.fit(scores, batch.series.numpy(), 2, LEVELS)
    assert found.levels == LEVELS
    assert found.offsets.dtype == np.float32
    assert found.offsets.shape == (3, H, 1, 3)
    assert_allclose(found.offsets, expected.offsets, atol=1e-6)
    assert not np.allclose(found.offsets[0], found.offsets[1])
