"""The encoder-decoder transformer in NumPy float64, written from the papers' equations.

Weights come as a dict of arrays under the parameter names of the original TFModel, such as
`encoder_block.enc_layers.0.attn.q_linear.weight`. Masks are True where attention is allowed;
no mask allows everything. Shape letters: B batch, S source, T target, D width, N heads.

Papers: "Attention Is All You Need" (Vaswani et al. 2017), "Layer Normalization" (Ba et al. 2016),
"On Layer Normalization in the Transformer Architecture" (Xiong et al. 2020).
"""

import math

import numpy as np
import torch
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Mask = NDArray[np.bool_]
Weights = dict[str, FloatArray]


def within(weights: Weights, prefix: str) -> Weights:
    """Return the weights of one part of the network, under the names they have inside it."""
    return {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}


def linear(x: FloatArray, weights: Weights) -> FloatArray:
    return x @ weights["weight"].T + weights["bias"]


def layer_norm(x: FloatArray, weights: Weights, eps: float = 1e-5) -> FloatArray:
    """Ba et al. 2016, equation 4, over the last axis, with a biased variance."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return weights["weight"] * (x - mean) / np.sqrt(variance + eps) + weights["bias"]


def softmax(x: FloatArray) -> FloatArray:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention_map(query: FloatArray, key: FloatArray, mask: Mask | None = None) -> FloatArray:
    """The weights of Vaswani et al. 2017, equation 1: softmax(Q Kt / sqrt(d_k)), (..., T, S)."""
    scores = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores)


def attention(
    query: FloatArray, key: FloatArray, value: FloatArray, mask: Mask | None = None
) -> FloatArray:
    """Vaswani et al. 2017, equation 1: softmax(Q Kt / sqrt(d_k)) V, (..., T, d_k)."""
    return attention_map(query, key, mask) @ value


def multi_head_attention(
    x: FloatArray,
    memory: FloatArray,
    weights: Weights,
    num_heads: int,
    mask: Mask | None = None,
    maps: list[FloatArray] | None = None,
) -> FloatArray:
    """Vaswani et al. 2017, section 3.2.2: attention from x to memory in N slices of the width.

    `maps` receives the weights of all heads, (B, N, T, S).
    """
    query = linear(x, within(weights, "q_linear."))
    key = linear(memory, within(weights, "k_linear."))
    value = linear(memory, within(weights, "v_linear."))
    d_k = x.shape[-1] // num_heads
    parts = [slice(head * d_k, (head + 1) * d_k) for head in range(num_heads)]
    if maps is not None:
        own = [attention_map(query[..., part], key[..., part], mask) for part in parts]
        maps.append(np.stack(own, axis=1))
    heads = [attention(query[..., part], key[..., part], value[..., part], mask) for part in parts]
    return linear(np.concatenate(heads, axis=-1), within(weights, "post_att."))


def feed_forward(x: FloatArray, weights: Weights) -> FloatArray:
    """Vaswani et al. 2017, equation 2: max(0, x W1 + b1) W2 + b2."""
    hidden = np.maximum(linear(x, within(weights, "0.")), 0)
    return linear(hidden, within(weights, "3."))


def encoder_layer(
    x: FloatArray,
    weights: Weights,
    num_heads: int,
    mask: Mask | None = None,
    maps: list[FloatArray] | None = None,
) -> FloatArray:
    """Xiong et al. 2020, figure 1(b): every sublayer is x + f(norm(x))."""
    normed = layer_norm(x, within(weights, "norm_attn."))
    x = x + multi_head_attention(normed, normed, within(weights, "attn."), num_heads, mask, maps)
    normed = layer_norm(x, within(weights, "norm_ff."))
    return x + feed_forward(normed, within(weights, "ff."))


def decoder_layer(
    x: FloatArray,
    memory: FloatArray,
    weights: Weights,
    num_heads: int,
    source_mask: Mask | None = None,
    target_mask: Mask | None = None,
    maps: list[FloatArray] | None = None,
) -> FloatArray:
    """As the encoder layer, with a cross-attention between; its norm serves the memory too."""
    own, cross = within(weights, "attn."), within(weights, "enc_dec_attn.")
    normed = layer_norm(x, within(weights, "norm_attn."))
    x = x + multi_head_attention(normed, normed, own, num_heads, target_mask, maps)
    norm = within(weights, "norm_enc_dec.")
    x = x + multi_head_attention(
        layer_norm(x, norm), layer_norm(memory, norm), cross, num_heads, source_mask, maps
    )
    normed = layer_norm(x, within(weights, "norm_ff."))
    return x + feed_forward(normed, within(weights, "ff."))


def post_norm_encoder_layer(
    x: FloatArray, weights: Weights, num_heads: int, mask: Mask | None = None
) -> FloatArray:
    """Vaswani et al. 2017, section 3.1: every sublayer is norm(x + f(x))."""
    attended = multi_head_attention(x, x, within(weights, "attn."), num_heads, mask)
    x = layer_norm(x + attended, within(weights, "norm_attn."))
    return layer_norm(x + feed_forward(x, within(weights, "ff.")), within(weights, "norm_ff."))


def post_norm_decoder_layer(
    x: FloatArray,
    memory: FloatArray,
    weights: Weights,
    num_heads: int,
    source_mask: Mask | None = None,
    target_mask: Mask | None = None,
) -> FloatArray:
    """As the encoder layer, with a cross-attention between; the memory is taken as it is."""
    attended = multi_head_attention(x, x, within(weights, "attn."), num_heads, target_mask)
    x = layer_norm(x + attended, within(weights, "norm_attn."))
    cross = within(weights, "enc_dec_attn.")
    attended = multi_head_attention(x, memory, cross, num_heads, source_mask)
    x = layer_norm(x + attended, within(weights, "norm_enc_dec."))
    return layer_norm(x + feed_forward(x, within(weights, "ff.")), within(weights, "norm_ff."))


def sinusoidal_positions(length: int, d_model: int) -> FloatArray:
    """Vaswani et al. 2017, section 3.5, in double precision, (length, D)."""
    table = np.empty((length, d_model))
    for column in range(d_model):
        wave = np.sin if column % 2 == 0 else np.cos
        table[:, column] = wave(np.arange(length) / 10000 ** ((column // 2 * 2) / d_model))
    return table


def original_positions(length: int, d_model: int) -> FloatArray:
    """The table as the original TFModel rounds it, step by step in float32, (length, D).

    Its last bits are those of torch's float32 functions, which NumPy's do not share, and a
    comparison to 1e-10 sees them: hence the one use of torch here.
    """
    position = torch.arange(0, length).unsqueeze(1).float()
    div_term = torch.exp(torch.arange(0, d_model, 2).float() * -(math.log(10000.0) / d_model))
    table = np.empty((length, d_model))
    table[:, 0::2] = torch.sin(position * div_term)
    table[:, 1::2] = torch.cos(position * div_term)[:, : d_model // 2]
    return table


def embedding(x: FloatArray, weights: Weights) -> FloatArray:
    """Vaswani et al. 2017, section 3.4, for continuous inputs: linear map x sqrt(D) + positions."""
    tokens = linear(x, within(weights, "linear_embd."))
    length, d_model = tokens.shape[-2:]
    return tokens * math.sqrt(d_model) + original_positions(length, d_model)


def layers(weights: Weights) -> list[Weights]:
    count = 1 + max(int(name.split(".")[0]) for name in weights)
    return [within(weights, f"{layer}.") for layer in range(count)]


def tf_model(
    weights: Weights,
    num_heads: int,
    encoder_input: FloatArray,
    decoder_input: FloatArray,
    *,
    encoder_mask: Mask | None = None,
    source_mask: Mask | None = None,
    target_mask: Mask | None = None,
    maps: list[FloatArray] | None = None,
) -> FloatArray:
    """The whole network: source (B, S, Ci) and target (B, T, Cd) to outputs (B, T, Co).

    Args:
        weights: parameters by their original names.
        num_heads: N.
        encoder_input: source features.
        decoder_input: target features.
        encoder_mask: for self-attention in the encoder, broadcastable to (B, S, S).
        source_mask: for cross-attention, broadcastable to (B, T, S).
        target_mask: for self-attention in the decoder, broadcastable to (B, T, T).
        maps: receives the attention weights in the order of computing: those of each encoder layer,
            then of each decoder layer's self-attention and cross-attention.
    """
    memory = embedding(encoder_input, within(weights, "encoder_embedding."))
    encoder = within(weights, "encoder_block.")
    for layer in layers(within(encoder, "enc_layers.")):
        memory = encoder_layer(memory, layer, num_heads, encoder_mask, maps)
    memory = layer_norm(memory, within(encoder, "norm."))

    x = embedding(decoder_input, within(weights, "decoder_embeddings."))
    decoder = within(weights, "decoder_block.")
    for layer in layers(within(decoder, "dec_layers.")):
        x = decoder_layer(x, memory, layer, num_heads, source_mask, target_mask, maps)
    x = layer_norm(x, within(decoder, "norm."))
    return linear(x, within(weights, "output_gen.output_gen."))


def causal_mask(length: int) -> Mask:
    """Target t may see 0..t, (T, T)."""
    return np.tril(np.ones((length, length), dtype=bool))
