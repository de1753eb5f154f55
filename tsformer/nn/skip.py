"""Linear maps from context to horizon that stand beside the transformer."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FullSkip(nn.Linear):
    """Each step of the horizon from every step of the context (Zeng et al. 2023)."""

    def forward(self, context: Tensor) -> Tensor:
        """Map (B, L, C) to (B, H, C)."""
        return super().forward(context.transpose(1, 2)).transpose(1, 2)


class IndividualSkip(nn.Module):
    """A full map for each channel, 0 at first (Zeng et al. 2023, DLinear-I)."""

    def __init__(self, context_length: int, horizon: int, num_channels: int) -> None:
        """Build the maps."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(num_channels, context_length, horizon))
        self.bias = nn.Parameter(torch.zeros(num_channels, 1, horizon))

    def forward(self, context: Tensor) -> Tensor:
        """Map (B, L, C) to (B, H, C)."""
        by_channel = context.permute(2, 0, 1)  # (C, B, L)
        return torch.baddbmm(self.bias, by_channel, self.weight).permute(1, 2, 0)


class SeasonalSkip(nn.Module):
    """Each step of the horizon from the same phase of past seasons, and from the latest steps.

    Patches are seasons: one small map from patches to patches serves all positions in them, after
    a convolution has mixed in their neighbours (Lin et al. 2024, SparseTSF). It has L/p x H/p
    weights, which are hard to overfit. What the last two patches say of the next four is not
    seasonal alone; a full map between them, 0 at first, is added.
    """

    def __init__(self, context_length: int, horizon: int, patch_len: int) -> None:
        """Build the maps; `patch_len` p divides `context_length` L, and is a season at best."""
        super().__init__()
        self.horizon = horizon
        self.patch_len = patch_len
        reach = patch_len // 2
        self.neighbours = nn.Conv1d(1, 1, 2 * reach + 1, padding=reach, bias=False)
        self.patches = nn.Linear(context_length // patch_len, -(-horizon // patch_len), bias=False)
        self.latest = FullSkip(min(2 * patch_len, context_length), min(4 * patch_len, horizon))
        nn.init.zeros_(self.latest.weight)
        nn.init.zeros_(self.latest.bias)

    def forward(self, context: Tensor) -> Tensor:
        """Map (B, L, C) to (B, H, C)."""
        batch, length, channels = context.shape
        series = context.transpose(1, 2).reshape(-1, 1, length)  # (B*C, 1, L)
        series = series + self.neighbours(series)
        by_phase = series.view(batch, channels, -1, self.patch_len).transpose(2, 3)  # (B, C, p, P)
        seasonal = self.patches(by_phase).transpose(2, 3).flatten(2)  # (B, C, T*p)
        seasonal = seasonal[..., : self.horizon].transpose(1, 2)
        latest = self.latest(context[:, -self.latest.in_features :])
        return seasonal + F.pad(latest, (0, 0, 0, self.horizon - latest.size(1)))


def make_skip(
    name: str, context_length: int, horizon: int, patch_len: int, num_channels: int
) -> nn.Module | None:
    """Return a skip by its name: `full`, `individual`, `seasonal`, or `none`, which is None.

    Raises:
        ValueError: an unknown name.
    """
    if name == "none":
        return None
    if name == "full":
        return FullSkip(context_length, horizon)
    if name == "individual":
        return IndividualSkip(context_length, horizon, num_channels)
    if name == "seasonal":
        return SeasonalSkip(context_length, horizon, patch_len)
    raise ValueError(f"linear_skip={name!r} is none of 'full', 'individual', 'seasonal', 'none'")
