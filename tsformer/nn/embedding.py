"""From continuous features to tokens: a linear map and sinusoidal positions."""

import math

import torch
from torch import Tensor, nn


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Return the (length, D) table of Vaswani et al. 2017, section 3.5.

    Even columns hold sin(t / 10000^(2i/D)), odd ones cos; an odd `d_model` ends with a sine.
    """
    position = torch.arange(length, dtype=torch.float32).unsqueeze(1)
    even = torch.arange(0, d_model, 2, dtype=torch.float32)
    angle = position * torch.exp(even * -(math.log(10000.0) / d_model))  # (length, ceil(D/2))
    table = torch.empty(length, d_model)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table


class LinearEmbedding(nn.Module):
    """Linear map x sqrt(D), plus sinusoidal positions, plus dropout."""

    positions: Tensor

    def __init__(
        self, input_size: int, d_model: int, *, dropout: float, max_length: int = 5000
    ) -> None:
        """Build the map.

        Args:
            input_size: number of continuous features of a token.
            d_model: width D of the tokens.
            dropout: dropout rate of the sum.
            max_length: largest number of tokens that has a position.
        """
        super().__init__()
        self.linear = nn.Linear(input_size, d_model)
        self.dropout = nn.Dropout(dropout)
        self.scale = math.sqrt(d_model)
        # Not a weight: it follows from its shape, so it stays out of saved models.
        table = sinusoidal_positions(max_length, d_model)
        self.register_buffer("positions", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Embed features (B, T, input_size) as tokens (B, T, D).

        Raises:
            ValueError: more tokens than `max_length`.
        """
        length = x.size(1)
        if length > self.positions.size(0):
            raise ValueError(f"{length} tokens, but positions end at {self.positions.size(0)}")
        return self.dropout(self.linear(x) * self.scale + self.positions[:length])
