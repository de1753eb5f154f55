"""Multi-head attention over one fused projection."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in `num_heads` subspaces (Vaswani et al. 2017, section 3.2).

    Queries, keys and values share one weight of shape (3D, D): self-attention needs a single
    matrix product, cross-attention takes its rows for queries and for keys and values apart.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        attention_dropout: float = 0.0,
        rotary: bool = False,
    ) -> None:
        """Build the projections.

        Args:
            d_model: width D of the tokens.
            num_heads: number of heads N; must divide `d_model`.
            attention_dropout: dropout rate of the attention weights. Above 0 it switches torch's
                fused kernels off, which costs time and memory quadratic in the token count.
            rotary: let positions turn queries and keys (Su et al. 2021, RoPE), within a sequence.

        Raises:
            ValueError: `num_heads` does not divide `d_model`.
        """
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model={d_model} is not divisible by num_heads={num_heads}")
        self.num_heads = num_heads
        self.attention_dropout = attention_dropout
        self.rotary = rotary
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
        if memory is None:
            query, key, value = self.in_proj(x).chunk(3, dim=-1)
        else:
            query = F.linear(x, *self.query_weights)
            key, value = self.project_memory(memory).chunk(2, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, N, T, D/N)
            for part in (query, key, value)
        )
        if self.rotary and memory is None:
            query, key = rotated(query), rotated(key)
        attended = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=self.attention_dropout if self.training else 0.0,
            is_causal=is_causal,
        )  # (B, N, T, D/N)
        return self.out_proj(attended.transpose(1, 2).flatten(2))  # (B, T, D)

    @property
    def query_weights(self) -> tuple[Tensor, Tensor]:
        """Weight (D, D) and bias (D) of the queries' projection."""
        d_model = self.out_proj.in_features
        return self.in_proj.weight[:d_model], self.in_proj.bias[:d_model]

    def project_memory(self, memory: Tensor) -> Tensor:
        """Return keys and values side by side, (B, S, D) -> (B, S, 2D)."""
        d_model = self.out_proj.in_features
        return F.linear(memory, self.in_proj.weight[d_model:], self.in_proj.bias[d_model:])


def rotated(x: Tensor) -> Tensor:
    """Turn pairs of features by their token's position, (B, N, T, D/N) (Su et al. 2021)."""
    half = x.size(-1) // 2
    rates = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(x.size(-2), device=x.device)[:, None] * rates  # (T, D/N/2)
    first, second = x[..., :half], x[..., half : 2 * half]
    cos, sin = angle.cos().to(x), angle.sin().to(x)
    turned = [first * cos - second * sin, first * sin + second * cos, x[..., 2 * half :]]
    return torch.cat(turned, dim=-1)


def attention_mask(mask: Tensor | None) -> Tensor | None:
    """Give a boolean mask its head axis: (B, S) -> (B, 1, 1, S), (B, T, S) -> (B, 1, T, S)."""
    if mask is None:
        return None
    return mask[:, None, None, :] if mask.dim() == 2 else mask.unsqueeze(1)
