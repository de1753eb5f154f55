"""Multi-head attention over one fused projection, and its cache for decoding token by token."""

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
        if memory is None:
            query, key, value = self.in_proj(x).chunk(3, dim=-1)
        else:
            query = self._project_query(x)
            key, value = self._project_memory(memory).chunk(2, dim=-1)
        query, key, value = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (B, N, T, D/N)
            for part in (query, key, value)
        )
        return self._attend(query, key, value, mask, is_causal)

    def attend_next(
        self, x: Tensor, cache: Tensor, position: int, mask: Tensor | None = None
    ) -> Tensor:
        """Attend from one token to itself and to the tokens before it.

        Args:
            x: the token, (B, D).
            cache: keys and values of T tokens, (B, 2, N, T, D/N), filled before `position`; the
                token's own are written at it, in place.
            position: 0 for the first token.
            mask: broadcastable to (B, N, 1, position + 1), boolean or added to the scores.

        Returns:
            Attended values, (B, D).
        """
        parts = self.in_proj(x).view(x.size(0), 3, self.num_heads, 1, -1)
        cache[:, :, :, position : position + 1] = parts[:, 1:]
        key, value = cache[:, :, :, : position + 1].unbind(1)
        return self._attend(parts[:, 0], key, value, mask)[:, 0]

    def cache_memory(self, memory: Tensor) -> Tensor:
        """Return keys and values of the memory (B, S, D), as `attend_cached` takes them.

        They are (B, 2, N, S, D/N) and contiguous, which halves the time of a token's attention.
        """
        parts = self._project_memory(memory).unflatten(-1, (2, self.num_heads, -1))
        return parts.permute(0, 2, 3, 1, 4).contiguous()

    def attend_cached(self, x: Tensor, cache: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend from one token (B, D) to a memory that `cache_memory` gave.

        Args:
            x: the token, (B, D).
            cache: keys and values, (B, 2, N, S, D/N).
            mask: broadcastable to (B, N, 1, S), boolean or added to the scores.

        Returns:
            Attended values, (B, D).
        """
        query = self._project_query(x).view(x.size(0), self.num_heads, 1, -1)
        key, value = cache.unbind(1)
        return self._attend(query, key, value, mask)[:, 0]

    def _project_query(self, x: Tensor) -> Tensor:
        d_model = x.size(-1)
        return F.linear(x, self.in_proj.weight[:d_model], self.in_proj.bias[:d_model])

    def _project_memory(self, memory: Tensor) -> Tensor:
        d_model = memory.size(-1)
        return F.linear(memory, self.in_proj.weight[d_model:], self.in_proj.bias[d_model:])

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        attended = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            dropout_p=self.attention_dropout if self.training else 0.0,
            is_causal=is_causal,
        )  # (B, N, T, D/N)
        return self.out_proj(attended.transpose(1, 2).flatten(2))  # (B, T, D)


def attention_mask(mask: Tensor | None) -> Tensor | None:
    """Give a boolean mask its head axis: (B, S) -> (B, 1, 1, S), (B, T, S) -> (B, 1, T, S)."""
    if mask is None:
        return None
    return mask[:, None, None, :] if mask.dim() == 2 else mask.unsqueeze(1)
