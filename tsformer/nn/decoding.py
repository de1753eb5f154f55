"""Decoding token by token through an explicit cache.

For one token at a time, calling modules costs as much as computing. So a decoder layer stands here
once more, as plain functions of weights that the cache has taken out of the modules.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tsformer.nn.layers import DecoderLayer

Weights = tuple[Tensor, Tensor]  # weight and bias of a layer norm, or of a linear map, transposed


class LayerCache(NamedTuple):
    """What decoding needs of one layer: its weights, as they are used, and keys and values.

    Attributes:
        norm_attention: before self-attention.
        query_key_value: (D, 3D).
        attention_output: (D, D).
        norm_cross_attention: before cross-attention.
        cross_query: (D, D).
        cross_output: (D, D).
        norm_feed_forward: before the feed-forward layer.
        hidden: (D, Dff).
        output: (Dff, D).
        memory: keys and values of the memory, (2, B*N, S, D/N).
        target: keys and values of the target tokens, (2, B*N, T, D/N), filled as they come.
    """

    norm_attention: Weights
    query_key_value: Weights
    attention_output: Weights
    norm_cross_attention: Weights
    cross_query: Weights
    cross_output: Weights
    norm_feed_forward: Weights
    hidden: Weights
    output: Weights
    memory: Tensor
    target: Tensor


class DecoderCache(NamedTuple):
    """What decoding token by token remembers; nothing else is kept between its calls.

    Attributes:
        layers: each decoder layer's part.
        source_mask: added to the scores of cross-attention, (B*N, 1 or T, S) or (1, 1, 1).
        target_mask: added to the scores of self-attention, (B*N, T, T) or (1, 1, 1).
    """

    layers: list[LayerCache]
    source_mask: Tensor
    target_mask: Tensor


def new_layer_cache(
    layer: DecoderLayer, memory: Tensor, length: int, num_copies: int = 1
) -> LayerCache:
    """Return the cache of a layer for T = `length` tokens, given the memory (B, S, D).

    Each sample comes `num_copies` times in a row, its memory projected once.
    """
    attention, cross, feed_forward = layer.attention, layer.cross_attention, layer.feed_forward
    keys_values = cross.project_memory(layer.norm_cross_attention(memory))  # (B, S, 2D)
    heads = keys_values.unflatten(-1, (2, cross.num_heads, -1)).permute(2, 0, 3, 1, 4)
    heads = heads.repeat_interleave(num_copies, dim=1) if num_copies > 1 else heads
    heads = heads.flatten(1, 2).contiguous()  # (2, B*N, S, D/N)
    return LayerCache(
        _weights(layer.norm_attention),
        _transposed(_weights(attention.in_proj)),
        _transposed(_weights(attention.out_proj)),
        _weights(layer.norm_cross_attention),
        _transposed(cross.query_weights),
        _transposed(_weights(cross.out_proj)),
        _weights(layer.norm_feed_forward),
        _transposed(_weights(feed_forward[0])),
        _transposed(_weights(feed_forward[-1])),
        heads,
        heads.new_empty(2, heads.size(1), length, heads.size(3)),
    )


def decode_token(
    x: Tensor, layer: LayerCache, position: int, source_mask: Tensor, target_mask: Tensor
) -> Tensor:
    """Map one target token, (B, D), as `DecoderLayer` does in evaluation among the others.

    Args:
        x: the token, (B, D).
        layer: filled by the tokens before it; its own keys and values are added, in place.
        position: 0 for the first token.
        source_mask: added to the scores, broadcastable to (B*N, 1, S).
        target_mask: added to the scores, broadcastable to (B*N, 1, position + 1).
    """
    heads = layer.memory.size(1)  # of all samples, B*N
    normed = _norm(x, layer.norm_attention)
    parts = _linear(normed, layer.query_key_value).view(x.size(0), 3, -1).transpose(0, 1)
    query, key_value = parts.reshape(3, heads, -1).split([1, 2])  # (1 or 2, B*N, D/N)
    layer.target.select(2, position).copy_(key_value)
    seen = layer.target.narrow(2, 0, position + 1)
    attended = _attend(query.transpose(0, 1), seen, target_mask)
    x = x + _linear(attended.view_as(x), layer.attention_output)

    normed = _norm(x, layer.norm_cross_attention)
    query = _linear(normed, layer.cross_query).view(heads, 1, -1)
    attended = _attend(query, layer.memory, source_mask)
    x = x + _linear(attended.view_as(x), layer.cross_output)

    hidden = _linear(_norm(x, layer.norm_feed_forward), layer.hidden).relu()
    return x + _linear(hidden, layer.output)


def added_to_scores(
    mask: Tensor | None, like: Tensor, num_heads: int, num_copies: int = 1
) -> Tensor:
    """Return a mask as numbers that are added to the scores of attention.

    Args:
        mask: (B, S) or (B, T, S), True where a query may attend; None for everywhere.
        like: a tensor of the scores' device and type, which is another in autocast.
        num_heads: N.
        num_copies: of each sample, in a row.

    Returns:
        0 or -inf, (B*N, 1 or T, S); a 0 of shape (1, 1, 1) when `mask` is None.
    """
    if mask is None:
        return like.new_zeros(1, 1, 1)
    if mask.dim() == 2:
        mask = mask.unsqueeze(1)
    added = like.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)
    return added.repeat_interleave(num_copies * num_heads, dim=0)


def _attend(query: Tensor, keys_values: Tensor, mask: Tensor) -> Tensor:
    """Attend from one query a head, (B*N, 1, D/N); torch's fused kernels are slower at it."""
    keys, values = keys_values.unbind()  # (B*N, T, D/N)
    scale = query.size(-1) ** -0.5
    scores = torch.baddbmm(mask, query, keys.transpose(1, 2), alpha=scale)  # (B*N, 1, T)
    return torch.bmm(scores.softmax(dim=-1), values)


def _norm(x: Tensor, weights: Weights) -> Tensor:
    return torch.layer_norm(x, weights[0].shape, *weights)


def _linear(x: Tensor, weights: Weights) -> Tensor:
    weight, bias = weights
    return torch.addmm(bias, x, weight)  # what F.linear does, without transposing each time


def _transposed(weights: Weights) -> Weights:
    return weights[0].t(), weights[1]


def _weights(module: nn.Module) -> Weights:
    return module.get_parameter("weight"), module.get_parameter("bias")
