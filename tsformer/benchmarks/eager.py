"""The original TFModel in plain torch, as it computes: what the speed of tsformer is measured by.

It has the parameter names of the original and does all of its work: separate maps for queries, keys
and values, a norm for each of them, dropout on the attention weights, masks as tensors, and no
cache. Masks are True where attention is allowed. Shape letters: B batch, S source, T target,
D width, N heads.
"""

import math

import torch
from torch import Tensor, nn


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: nn.Module
) -> Tensor:
    """Vaswani et al. 2017, equation 1, with dropout on the weights, (B, N, T, D/N)."""
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    weights = dropout(torch.softmax(scores, dim=-1))  # (B, N, T, S)
    return torch.matmul(weights, value)


class _Attention(nn.Module):
    def __init__(self, d_model: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.q_linear = nn.Linear(d_model, d_model)
        self.k_linear = nn.Linear(d_model, d_model)
        self.v_linear = nn.Linear(d_model, d_model)
        self.post_att = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        batch, length, d_model = query.shape
        heads = (batch, -1, self.num_heads, d_model // self.num_heads)
        query = self.q_linear(query).reshape(heads).permute(0, 2, 1, 3)
        key = self.k_linear(key).reshape(heads).permute(0, 2, 1, 3)
        value = self.v_linear(value).reshape(heads).permute(0, 2, 1, 3)
        mask = None if mask is None else mask.unsqueeze(1)
        attended = _attention(query, key, value, mask, self.dropout)
        return self.post_att(attended.permute(0, 2, 1, 3).reshape(batch, length, d_model))


def _feed_forward(d_model: int, d_ff: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model)
    )


class _EncoderLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.norm_attn = nn.LayerNorm(d_model)
        self.attn = _Attention(d_model, num_heads, dropout)
        self.norm_ff = nn.LayerNorm(d_model)
        self.ff = _feed_forward(d_model, d_ff, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm_attn
        x = x + self.dropout(self.attn(norm(x), norm(x), norm(x), None))
        return x + self.dropout(self.ff(self.norm_ff(x)))


class _Encoder(nn.Module):
    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.enc_layers = nn.ModuleList(
            _EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.enc_layers:
            x = layer(x)
        return self.norm(x)


class _DecoderLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.norm_attn = nn.LayerNorm(d_model)
        self.attn = _Attention(d_model, num_heads, dropout)
        self.norm_enc_dec = nn.LayerNorm(d_model)
        self.enc_dec_attn = _Attention(d_model, num_heads, dropout)
        self.norm_ff = nn.LayerNorm(d_model)
        self.ff = _feed_forward(d_model, d_ff, dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, memory: Tensor, source_mask: Tensor | None, target_mask: Tensor | None
    ) -> Tensor:
        norm = self.norm_attn
        x = x + self.dropout(self.attn(norm(x), norm(x), norm(x), target_mask))
        norm = self.norm_enc_dec
        attended = self.enc_dec_attn(norm(x), norm(memory), norm(memory), source_mask)
        x = x + self.dropout(attended)
        return x + self.dropout(self.ff(self.norm_ff(x)))


class _Decoder(nn.Module):
    def __init__(
        self, d_model: int, num_heads: int, d_ff: int, num_layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.dec_layers = nn.ModuleList(
            _DecoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(d_model)

    def forward(
        self, x: Tensor, memory: Tensor, source_mask: Tensor | None, target_mask: Tensor | None
    ) -> Tensor:
        for layer in self.dec_layers:
            x = layer(x, memory, source_mask, target_mask)
        return self.norm(x)


class _Embedding(nn.Module):
    """Linear map x sqrt(D) + sinusoidal positions, with the original's fixed dropout of 0.1."""

    positions: Tensor

    def __init__(self, input_size: int, d_model: int, max_length: int = 5000) -> None:
        super().__init__()
        self.d_model = d_model
        self.linear_embd = nn.Linear(input_size, d_model)
        self.dropout = nn.Dropout(0.1)
        steps = torch.arange(0, max_length).unsqueeze(1).float()
        waves = torch.exp(torch.arange(0, d_model, 2).float() * -(math.log(10000.0) / d_model))
        table = torch.zeros(1, max_length, d_model)
        table[..., 0::2] = torch.sin(steps * waves)
        table[..., 1::2] = torch.cos(steps * waves)[:, : d_model // 2]
        self.register_buffer("positions", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear_embd(x) * math.sqrt(self.d_model)
        return self.dropout(x + self.positions[:, : x.size(1)])


class _Output(nn.Module):
    def __init__(self, d_model: int, output_size: int) -> None:
        super().__init__()
        self.output_gen = nn.Linear(d_model, output_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.output_gen(x)


class EagerTFModel(nn.Module):
    """Source (B, S, Ci) and target (B, T, Cd) to outputs (B, T, Co)."""

    def __init__(
        self,
        encoder_input_size: int,
        decoder_input_size: int,
        output_size: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        num_layers: int,
        dropout: float = 0.1,
    ) -> None:
        """The sizes of the original, in its order; `d_model` is even."""
        super().__init__()
        self.encoder_embedding = _Embedding(encoder_input_size, d_model)
        self.decoder_embeddings = _Embedding(decoder_input_size, d_model)
        self.encoder_block = _Encoder(d_model, num_heads, d_ff, num_layers, dropout)
        self.decoder_block = _Decoder(d_model, num_heads, d_ff, num_layers, dropout)
        self.output_gen = _Output(d_model, output_size)

    def forward(
        self,
        encoder_input: Tensor,
        decoder_input: Tensor,
        source_mask: Tensor | None,
        target_mask: Tensor | None,
    ) -> Tensor:
        """Masks are (B, T, S) and (B, T, T), or None; nothing is causal by itself."""
        memory = self.encoder_block(self.encoder_embedding(encoder_input))
        x = self.decoder_embeddings(decoder_input)
        return self.output_gen(self.decoder_block(x, memory, source_mask, target_mask))


def causal_mask(batch: int, length: int) -> Tensor:
    """Target t may see 0..t, (B, T, T)."""
    return torch.ones(batch, length, length, dtype=torch.bool).tril()


def decode_naively(model: EagerTFModel, encoder_input: Tensor, start: Tensor, steps: int) -> Tensor:
    """Forecast step by step, running the whole network again for each.

    Args:
        model: in evaluation mode, with outputs that can follow `start` as inputs, Co = Cd.
        encoder_input: source features, (B, S, Ci).
        start: the first target token's features, (B, Cd).
        steps: T.

    Returns:
        Outputs, (B, T, Co).
    """
    tokens = start[:, None]
    for length in range(1, steps + 1):
        output = model(encoder_input, tokens, None, causal_mask(len(start), length))
        tokens = torch.cat([tokens, output[:, -1:]], dim=1)
    return tokens[:, 1:]
