"""From batches of windows to forecasts, in scaled units: points, quantiles and sample paths."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tsformer.data.types import FloatArray, IntArray
from tsformer.data.windows import WindowBatch, WindowDataset
from tsformer.model import conformal
from tsformer.model.conformal import ConformalOffsets
from tsformer.nn import ForecastNetwork

# Quantiles of step-wise decoding are those of so many paths, drawn so many at a time.
NUM_PATHS, PATHS_AT_ONCE = 100, 4096


class Forecasts(NamedTuple):
    """Forecasts of B windows.

    Attributes:
        point: (B, H, C).
        quantiles: (B, H, C, Q).
    """

    point: FloatArray
    quantiles: FloatArray


@torch.inference_mode()
def forecast_windows(
    network: ForecastNetwork, batch: WindowBatch, levels: Sequence[float] = ()
) -> Forecasts:
    """Forecast the horizon of a batch, which may be longer or shorter than the network's.

    Beyond its own horizon the network is fed its point forecasts; quantiles there do not know of
    the errors before them. Where decoding is step by step, quantiles are those of sample paths.

    Args:
        network: in evaluation mode, on any device.
        batch: windows with the future features of all steps that shall be forecast.
        levels: of the quantiles, rising, (Q,).
    """
    head = network.head
    from_paths = bool(levels) and network.queries is None and head.num_parameters > 1

    def forecast(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        parameters = network(*inputs)
        point = head.point(parameters)
        if from_paths:
            quantiles = _quantiles_of_paths(network, inputs, levels)
        elif levels:
            quantiles = head.quantiles(parameters, levels)
        else:
            quantiles = point.new_empty(*point.shape, 0)
        return torch.cat([point[..., None], quantiles], dim=-1), point

    both = roll_out(forecast, as_inputs_of(network, batch), network.horizon).cpu().double().numpy()
    return Forecasts(both[..., 0], both[..., 1:])


@torch.inference_mode()
def sample_windows(network: ForecastNetwork, batch: WindowBatch, num_samples: int) -> FloatArray:
    """Draw sample paths of a batch by torch's generator, (B, M, H, C).

    Each path goes on from its own values where the horizon is longer than the network's.

    Args:
        network: in evaluation mode, on any device.
        batch: windows with the future features of all steps that shall be drawn.
        num_samples: paths of each window, M.
    """
    inputs = as_inputs_of(network, batch)
    steps, horizon = batch.future_features.size(1), network.horizon
    if steps <= horizon:
        first = [*inputs]
        first[3] = _padded(inputs[3], horizon)
        paths = _sample(network, first, num_samples)[:, :, :steps]
        return paths.cpu().double().numpy()
    each = [x.repeat_interleave(num_samples, dim=0) for x in inputs]

    def draw(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        values = _sample(network, inputs, 1)[:, 0]
        return values, values

    paths = roll_out(draw, each, horizon)  # (B*M, H, C)
    return paths.unflatten(0, (-1, num_samples)).cpu().double().numpy()


def calibrate(
    network: ForecastNetwork,
    windows: WindowDataset,
    levels: Sequence[float],
    batch_size: int = 1024,
) -> ConformalOffsets:
    """Return what calibrates a network's quantiles, by windows that it was not trained on.

    Args:
        network: in evaluation mode.
        windows: such as `ForecastData.validation`.
        levels: of the quantiles, rising, (Q,).
        batch_size: windows forecast at once.
    """
    num_groups, num_channels = windows.index.groups.shape
    is_point = network.head.num_parameters == 1  # whose quantiles are all alike
    scores_each = network.horizon * num_channels * (1 if is_point else len(levels))

    def forecast(_: IntArray, batch: WindowBatch) -> FloatArray:
        forecasts = forecast_windows(network, batch, () if is_point else levels)
        return forecasts.point if is_point else forecasts.quantiles

    batches = conformal.calibration_batches(windows, forecast, scores_each, batch_size)
    return conformal.calibrate(batches, num_groups, levels)


def roll_out(
    forecast: Callable[..., tuple[Tensor, Tensor]], inputs: Sequence[Tensor], horizon: int
) -> Tensor:
    """Forecast all steps that have future features, `horizon` at a time.

    Args:
        forecast: from a network's inputs to anything by step, (B, H, C, ...), and to the values
            that the next block takes for the truth, (B, H, C).
        inputs: of the network, with future features of any number of steps.
        horizon: of the network.
    """
    context, observed, past, future, static = inputs
    steps, length = future.size(1), context.size(1)
    blocks = []
    for begin in range(0, steps, horizon):
        ahead = _padded(future[:, begin : begin + horizon], horizon)
        block, values = forecast(context, observed, past, ahead, static)
        blocks.append(block)
        if begin + horizon < steps:
            unknown = past.size(2) - ahead.size(2)  # past covariates: 0, as where they are missing
            context = torch.cat([context, values], dim=1)[:, -length:]
            observed = torch.cat([observed, torch.ones_like(values, dtype=torch.bool)], dim=1)
            observed = observed[:, -length:]
            past = torch.cat([past, F.pad(ahead, (0, unknown))], dim=1)[:, -length:]
    return torch.cat(blocks, dim=1)[:, :steps]


def _quantiles_of_paths(
    network: ForecastNetwork, inputs: Sequence[Tensor], levels: Sequence[float]
) -> Tensor:
    """Return quantiles of sample paths at each step, (B, H, C, Q)."""
    parts = zip(*(x.split(max(PATHS_AT_ONCE // NUM_PATHS, 1)) for x in inputs), strict=True)
    # Not by torch, whose quantiles of 16 million numbers and more are an error before 2.13.
    paths = (_sample(network, part, NUM_PATHS).cpu().numpy() for part in parts)
    quantiles = np.concatenate([np.quantile(each, levels, axis=1) for each in paths], axis=1)
    return torch.from_numpy(np.moveaxis(quantiles, 0, -1)).to(inputs[0])  # from (Q, B, H, C)


def _sample(network: ForecastNetwork, inputs: Sequence[Tensor], num_samples: int) -> Tensor:
    parts = zip(*(x.split(max(PATHS_AT_ONCE // num_samples, 1)) for x in inputs), strict=True)
    return torch.cat([network.sample(*part, num_samples=num_samples) for part in parts])


def _padded(features: Tensor, horizon: int) -> Tensor:
    return F.pad(features, (0, 0, 0, horizon - features.size(1)))


def as_inputs_of(network: ForecastNetwork, batch: WindowBatch) -> list[Tensor]:
    """Return what the network takes of a batch, on its device and in its type."""
    like = next(network.parameters())
    return [x.to(like if x.is_floating_point() else like.device) for x in batch.inputs]
