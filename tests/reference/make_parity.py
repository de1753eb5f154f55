"""Writes the parity fixtures: random weights and inputs, and what the oracle makes of them.

Run from the repository's root: `python -m tests.reference.make_parity`.
The files have the form of the original TFModel's own: `config` holds encoder, decoder and output
size, d_model, heads, d_ff and layers; weights stand under `state/` and their original names.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.reference.transformer import FloatArray, Weights, causal_mask, tf_model

FOLDER = Path(__file__).parent


class Sizes(NamedTuple):
    encoder_input: int
    decoder_input: int
    output: int
    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int


def random_weights(
    sizes: Sizes, rng: np.random.Generator, num_decoder_layers: int | None = None
) -> Weights:
    """Return weights that keep activations near 1; multiples of 1/1024, to compress well."""
    weights: Weights = {}

    def linear(name: str, inputs: int, outputs: int) -> None:
        weights[f"{name}.weight"] = rounded(rng.normal(0, inputs**-0.5, (outputs, inputs)))
        weights[f"{name}.bias"] = rounded(rng.normal(0, 0.1, outputs))

    def norm(name: str) -> None:
        weights[f"{name}.weight"] = rounded(rng.normal(1, 0.1, sizes.d_model))
        weights[f"{name}.bias"] = rounded(rng.normal(0, 0.1, sizes.d_model))

    def layer(name: str, attentions: dict[str, str]) -> None:
        for attention_norm, attention in attentions.items():
            norm(f"{name}.{attention_norm}")
            for part in ("q_linear", "k_linear", "v_linear", "post_att"):
                linear(f"{name}.{attention}.{part}", sizes.d_model, sizes.d_model)
        norm(f"{name}.norm_ff")
        linear(f"{name}.ff.0", sizes.d_model, sizes.d_ff)
        linear(f"{name}.ff.3", sizes.d_ff, sizes.d_model)

    linear("encoder_embedding.linear_embd", sizes.encoder_input, sizes.d_model)
    linear("decoder_embeddings.linear_embd", sizes.decoder_input, sizes.d_model)
    for index in range(sizes.num_layers):
        layer(f"encoder_block.enc_layers.{index}", {"norm_attn": "attn"})
    norm("encoder_block.norm")
    for index in range(num_decoder_layers or sizes.num_layers):
        attentions = {"norm_attn": "attn", "norm_enc_dec": "enc_dec_attn"}
        layer(f"decoder_block.dec_layers.{index}", attentions)
    norm("decoder_block.norm")
    linear("output_gen.output_gen", sizes.d_model, sizes.output)
    return weights


def rounded(x: FloatArray) -> FloatArray:
    return np.round(x * 1024) / 1024


def parity(
    sizes: Sizes, *, batch: int, source: int, target: int, masked: bool, seed: int
) -> dict[str, Any]:
    """Return the arrays of one fixture."""
    rng = np.random.default_rng(seed)
    weights = random_weights(sizes, rng)
    encoder_input = rounded(rng.normal(size=(batch, source, sizes.encoder_input)))
    decoder_input = rounded(rng.normal(size=(batch, target, sizes.decoder_input)))
    masks = {"target_mask": np.tile(causal_mask(target), (batch, 1, 1))}
    if masked:
        masks["target_mask"][1] = True  # sees the future
        masks["target_mask"][2] &= ~np.tri(target, k=-3, dtype=bool)  # sees the last 3 steps
        masks["source_mask"] = rng.random((batch, target, source)) < 0.6
        masks["source_mask"][..., -1] = True  # softmax needs a key
    output = tf_model(weights, sizes.num_heads, encoder_input, decoder_input, **masks)
    return {
        "config": np.array(sizes),
        "encoder_input": encoder_input,
        "decoder_input": decoder_input,
        **masks,
        "output": output,
        **{f"state/{name}": value for name, value in weights.items()},
    }


if __name__ == "__main__":
    small = parity(Sizes(3, 2, 1, 8, 2, 16, 2), batch=2, source=9, target=5, masked=False, seed=0)
    np.savez_compressed(FOLDER / "parity_small.npz", **small)
    masked = parity(Sizes(5, 4, 2, 12, 3, 20, 2), batch=3, source=12, target=7, masked=True, seed=1)
    np.savez_compressed(FOLDER / "parity_masked.npz", **masked)
