"""Linear forecasters that a transformer has to beat (Zeng et al. 2023), and their training.

Each maps the context of one channel to its horizon, with weights that all channels share.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsformer.data.forecast_data import ForecastData
from tsformer.data.sampling import BatchSampler
from tsformer.data.windows import WindowBatch, WindowDataset
from tsformer.nn.norm import instance_statistics


class DLinear(nn.Module):
    """One linear map of the moving average, and one of what is left (Zeng et al. 2023)."""

    def __init__(self, context_length: int, horizon: int, kernel: int = 25) -> None:
        """Build both maps; `kernel` is the odd number of steps of the moving average."""
        super().__init__()
        self.kernel = kernel
        self.trend = nn.Linear(context_length, horizon)
        self.seasonal = nn.Linear(context_length, horizon)

    def forward(self, context: Tensor, observed: Tensor) -> Tensor:
        """Forecast (B, H, C) from a context (B, L, C)."""
        x = context.mT  # (B, C, L)
        half = self.kernel // 2
        # The ends are repeated, so that the average is as long as the context.
        trend = F.avg_pool1d(F.pad(x, (half, half), mode="replicate"), self.kernel, stride=1)
        forecast: Tensor = self.trend(trend) + self.seasonal(x - trend)
        return forecast.mT


class NLinear(nn.Module):
    """A linear map of the differences from the context's last value (Zeng et al. 2023)."""

    def __init__(self, context_length: int, horizon: int) -> None:
        """Build the map."""
        super().__init__()
        self.map = nn.Linear(context_length, horizon)

    def forward(self, context: Tensor, observed: Tensor) -> Tensor:
        """Forecast (B, H, C) from a context (B, L, C)."""
        last = context[:, -1:]
        forecast: Tensor = self.map((context - last).mT).mT + last
        return forecast


class InstanceLinear(nn.Module):
    """A linear map of the context with its mean and standard deviation taken out."""

    def __init__(self, context_length: int, horizon: int) -> None:
        """Build the map."""
        super().__init__()
        self.map = nn.Linear(context_length, horizon)

    def forward(self, context: Tensor, observed: Tensor) -> Tensor:
        """Forecast (B, H, C) from a context (B, L, C)."""
        mean, std = instance_statistics(context, observed)
        x = ((context - mean) / std).where(observed, 0.0)
        forecast: Tensor = self.map(x.mT).mT * std + mean
        return forecast


class Recipe(NamedTuple):
    """A linear forecaster, and the loss that trains it and chooses its epoch."""

    build: Callable[[int, int], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]


RECIPES = {
    "linear, instance norm, L1": Recipe(InstanceLinear, lambda x, y: (x - y).abs()),
    "DLinear": Recipe(DLinear, lambda x, y: (x - y).square()),
    "NLinear": Recipe(NLinear, lambda x, y: (x - y).square()),
}
TRAINING: dict[str, Any] = {"lr": 0.005, "epochs": 10, "patience": 3, "batch_size": 32}


def train_linear(
    recipe: Recipe,
    data: ForecastData,
    *,
    seed: int,
    lr: float,
    epochs: int,
    patience: int,
    batch_size: int,
) -> nn.Module:
    """Train as the code of Zeng et al. does: Adam, with a rate that halves every epoch.

    Args:
        recipe: what to train.
        data: the windows.
        seed: of weights and order.
        lr: rate of the first epoch.
        epochs: at most.
        patience: epochs without a better validation loss, after which training ends.
        batch_size: windows of all series.

    Returns:
        The forecaster after the epoch with the least validation loss.
    """
    torch.manual_seed(seed)
    model = recipe.build(data.config.context_length, data.config.horizon)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    sampler = BatchSampler(data.train.index, batch_size * len(data.groups), shuffle=True, seed=seed)
    least, best, best_epoch = math.inf, deepcopy(model.state_dict()), 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for group in optimizer.param_groups:
            group["lr"] = lr * 0.5**epoch
        for windows in sampler:
            total, count = batch_loss(recipe, model, data.train[windows])
            (total / count.clamp(min=1)).backward()
            optimizer.step()
            optimizer.zero_grad()
        loss = mean_loss(recipe, model, data.validation)
        if loss < least:
            least, best, best_epoch = loss, deepcopy(model.state_dict()), epoch
        if epoch - best_epoch >= patience:
            break
    model.load_state_dict(best)
    return model.eval()


def batch_loss(recipe: Recipe, model: nn.Module, batch: WindowBatch) -> tuple[Tensor, Tensor]:
    """Return the sum of losses over observed target steps, and how many there are."""
    losses = recipe.loss(model(batch.context, batch.observed), batch.target)
    return losses.where(batch.target_observed, 0.0).sum(), batch.target_observed.sum()


@torch.inference_mode()
def mean_loss(recipe: Recipe, model: nn.Module, windows: WindowDataset) -> float:
    """Return the mean loss over all observed target steps of all windows."""
    sums = [
        batch_loss(recipe, model, windows[picked])
        for picked in BatchSampler(windows.index, 1024, shuffle=False)
    ]
    total, count = (sum(float(x) for x in column) for column in zip(*sums, strict=True))
    return total / count
