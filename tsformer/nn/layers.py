"""Pre-norm encoder and decoder layers (Xiong et al. 2020; Vaswani et al. 2017, section 3.1)."""

from torch import Tensor, nn

from tsformer.nn.attention import MultiHeadAttention
from tsformer.nn.dropout import Dropout


def feed_forward(d_model: int, d_ff: int, dropout: float, activation: str) -> nn.Sequential:
    """Return Linear -> ReLU or GELU -> Dropout -> Linear, (B, T, D) -> (B, T, D)."""
    function = nn.ReLU(inplace=True) if activation == "relu" else nn.GELU()
    return nn.Sequential(
        nn.Linear(d_model, d_ff), function, Dropout(dropout), nn.Linear(d_ff, d_model)
    )


class DropPath(nn.Module):
    """Leaves out a whole residual branch of a sample (Huang et al. 2016, stochastic depth)."""

    def __init__(self, rate: float) -> None:
        """Build it; `rate` of the samples lose the branch in training."""
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        if not self.training or not self.rate:
            return x
        kept = x.new_empty(x.size(0), 1, 1).bernoulli_(1 - self.rate)
        return x * kept / (1 - self.rate)


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each x + dropout(f(norm(x)))."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        dropout: float,
        attention_dropout: float,
        activation: str = "relu",
        drop_path: float = 0.0,
        rotary: bool = False,
    ) -> None:
        """Build the layer; the arguments are those of `TFModel`."""
        super().__init__()
        self.norm_attention = nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(
            d_model, num_heads, attention_dropout=attention_dropout, rotary=rotary
        )
        self.norm_feed_forward = nn.LayerNorm(d_model)
        self.feed_forward = feed_forward(d_model, d_ff, dropout, activation)
        self.dropout = nn.Sequential(Dropout(dropout), DropPath(drop_path))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (B, S, D) to (B, S, D); `mask` is broadcastable to (B, N, S, S)."""
        x = x + self.dropout(self.attention(self.norm_attention(x), mask=mask))
        return x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention on the normalised memory, and feed-forward."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        *,
        dropout: float,
        attention_dropout: float,
        activation: str = "relu",
        drop_path: float = 0.0,
        rotary: bool = False,
    ) -> None:
        """Build the layer; the arguments are those of `TFModel`."""
        super().__init__()
        self.norm_attention = nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(
            d_model, num_heads, attention_dropout=attention_dropout, rotary=rotary
        )
        self.norm_cross_attention = nn.LayerNorm(d_model)
        self.cross_attention = MultiHeadAttention(
            d_model, num_heads, attention_dropout=attention_dropout
        )
        self.norm_feed_forward = nn.LayerNorm(d_model)
        self.feed_forward = feed_forward(d_model, d_ff, dropout, activation)
        self.dropout = nn.Sequential(Dropout(dropout), DropPath(drop_path))

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        source_mask: Tensor | None = None,
        target_mask: Tensor | None = None,
    ) -> Tensor:
        """Map target tokens (B, T, D), given the memory (B, S, D), to (B, T, D).

        Args:
            x: target tokens, (B, T, D).
            memory: the encoder's output, (B, S, D).
            source_mask: broadcastable to (B, N, T, S).
            target_mask: broadcastable to (B, N, T, T); causal when None.
        """
        attended = self.attention(
            self.norm_attention(x), mask=target_mask, is_causal=target_mask is None
        )
        x = x + self.dropout(attended)
        # One norm serves queries and memory, as in the network this one descends from.
        norm = self.norm_cross_attention
        x = x + self.dropout(self.cross_attention(norm(x), norm(memory), mask=source_mask))
        return x + self.dropout(self.feed_forward(self.norm_feed_forward(x)))
