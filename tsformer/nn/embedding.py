"""From features to tokens: categories, a linear map and sinusoidal positions."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tsformer.nn.dropout import Dropout


def sinusoidal_positions(length: int, d_model: int) -> Tensor:
    """Return the (length, D) table of Vaswani et al. 2017, section 3.5.

    Even columns hold sin(t / 10000^(2i/D)), odd ones cos; an odd `d_model` ends with a sine.
    """
    table = torch.empty(length, d_model)
    if table.is_meta:  # which has no values, but takes a second to find that out
        return table
    position = torch.arange(length, dtype=torch.float32).unsqueeze(1)
    even = torch.arange(0, d_model, 2, dtype=torch.float32)
    angle = position * torch.exp(even * -(math.log(10000.0) / d_model))  # (length, ceil(D/2))
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table


class LinearEmbedding(nn.Module):
    """Linear map x sqrt(D), plus sinusoidal positions, plus dropout."""

    positions: Tensor

    def __init__(
        self,
        input_size: int,
        d_model: int,
        *,
        dropout: float,
        max_length: int = 5000,
        positions: str = "sinusoidal",
    ) -> None:
        """Build the map.

        Args:
            input_size: number of continuous features of a token.
            d_model: width D of the tokens.
            dropout: dropout rate of the sum.
            max_length: largest number of tokens that has a position.
            positions: `sinusoidal`; `learned`, which begins there; or `none`.
        """
        super().__init__()
        self.linear = nn.Linear(input_size, d_model)
        self.dropout = Dropout(dropout)
        self.scale = math.sqrt(d_model)
        # Not a weight: it follows from its shape, so it stays out of saved models.
        table = sinusoidal_positions(max_length, d_model)
        if positions == "learned":
            self.positions = nn.Parameter(table)
        else:
            table = table if positions == "sinusoidal" else torch.zeros_like(table)
            self.register_buffer("positions", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Embed features (B, T, input_size) as tokens (B, T, D).

        Raises:
            ValueError: more tokens than `max_length`.
        """
        length = x.size(1)
        if length > self.positions.size(0):
            raise ValueError(f"{length} tokens, but positions end at {self.positions.size(0)}")
        return self._embed(x, self.positions[:length])

    def embed_next(self, x: Tensor, position: int) -> Tensor:
        """Embed the features of the token at a position, (B, input_size), as (B, D)."""
        return self._embed(x, self.positions[position])

    def _embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.dropout(torch.add(positions, self.linear(x), alpha=self.scale))


class CategoricalEmbedding(nn.Module):
    """Gives learned vectors the place of the categories among the features of a step or series.

    Category 0 stands for "unknown": its vector is 0 and stays 0, as a missing number is 0.
    """

    def __init__(self, cardinalities: Sequence[int]) -> None:
        """Build a table of vectors for each categorical feature.

        Args:
            cardinalities: of each feature, the number n of its categories with the unknown one,
                or 0 where it is a number. n categories get vectors of min(16, (n + 1) // 2)
                numbers.
        """
        super().__init__()
        self.widths = [min(16, (n + 1) // 2) if n else 1 for n in cardinalities]
        self.tables = nn.ModuleDict(
            {
                str(feature): nn.Embedding(n, self.widths[feature], padding_idx=0)
                for feature, n in enumerate(cardinalities)
                if n
            }
        )

    def output_size(self, num_features: int) -> int:
        """Return how many numbers the first `num_features` features become."""
        return sum(self.widths[:num_features])

    def forward(self, x: Tensor) -> Tensor:
        """Embed the first features or all, (..., F), as numbers, (..., output_size(F)).

        Categories come as whole numbers, 0 <= i < n, in the type of the other features.
        """
        if not self.tables or not x.size(-1):
            return x
        parts = []
        for feature, values in enumerate(x.unbind(-1)):  # (...)
            name = str(feature)
            is_category = name in self.tables
            parts.append(self.tables[name](values.long()) if is_category else values[..., None])
        return torch.cat(parts, dim=-1)
