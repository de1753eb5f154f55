"""Multi-head attention over one fused projection."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in `num_heads` subspaces (Vaswani et al. 2017, section 3.2).

    Queries, keys and values share one weight of shape (3D, D): self-attention needs a single
    matrix product, cross-attention takes its rows for queries and for keys and values apart.
    """

    def __init__(self, d_model: int, num_heads: int, *, attention_dropout: float = 0.0) -> None:
        """Build the projections.

        Args:
            d_model: width D of the tokens.
            num_heads: number of heads N; must divide `d_model`.
            attention_dropout: dropout rate of the attention weights. Above 0 it switches torch's
                fused kernels off, which costs time and memory quadratic in the token count.

        Raises:
            ValueError: `num_heads` does not divide `d_model`.
        """
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model={d_model} is not divisible by num_heads={num_heads}")
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Attend from `x` to `memory`, or to `x` itself.

        Args:
            x: queries, (B, T, D).
            memory: keys and values, (B, S, D); `x` when None.
            mask: True where a query may attend, broadcastable to (B, N, T, S).
            is_causal: let query t see keys 0..t only; excludes `mask`.

        Returns:
            Attended values, (B, T, D).
        """
        query, key, value = self._project(x, memory)
        attended = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=self.attention_dropout if self.training else 0.0,
            is_causal=is_causal,
        )  # (B, N, T, D/N)
        return self.out_proj(attended.transpose(1, 2).flatten(2))  # (B, T, D)

    def weights(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Return the weights by which `forward` averages the values, in evaluation.

        `forward` itself never holds them, as torch's fused kernels do not.

        Args:
            x: see `forward`, and so for the three after it.
            memory: (B, S, D).
            mask: broadcastable to (B, N, T, S).
            is_causal: excludes `mask`.

        Returns:
            Weights that sum to 1 over the keys, (B, N, T, S).
        """
        query, key, _ = self._project(x, memory)
        scores = query @ key.transpose(-2, -1) * query.size(-1) ** -0.5  # (B, N, T, S)
        if is_causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(dim=-1)

    def _project(self, x: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (B, N, T, D/N), and keys and values, (B, N, S, D/N) each."""
        if memory is None:
            query, key, value = self.in_proj(x).chunk(3, dim=-1)
        else:
            query = F.linear(x, *self.query_weights)
            key, value = self.project_memory(memory).chunk(2, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in (query, key, value)
        )
        return query, key, value

    @property
    def query_weights(self) -> tuple[Tensor, Tensor]:
        """Weight (D, D) and bias (D) of the queries' projection."""
        d_model = self.out_proj.in_features
        return self.in_proj.weight[:d_model], self.in_proj.bias[:d_model]

    def project_memory(self, memory: Tensor) -> Tensor:
        """Return keys and values side by side, (B, S, D) -> (B, S, 2D)."""
        d_model = self.out_proj.in_features
        return F.linear(memory, self.in_proj.weight[d_model:], self.in_proj.bias[d_model:])


def attention_mask(mask: Tensor | None) -> Tensor | None:
    """Give a boolean mask its head axis: (B, S) -> (B, 1, 1, S), (B, T, S) -> (B, 1, T, S)."""
    if mask is None:
        return None
    return mask[:, None, None, :] if mask.dim() == 2 else mask.unsqueeze(1)
