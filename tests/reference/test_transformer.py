"""The oracle against values known by hand, and against the original TFModel's outputs."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.reference import transformer as oracle
from tests.reference.parity import parametrize_files, read_parity


@parametrize_files
def test_oracle_gives_recorded_outputs(path):
    parity = read_parity(path)
    output = oracle.tf_model(
        parity.weights,
        parity.config[4],
        parity.encoder_input,
        parity.decoder_input,
        source_mask=parity.source_mask,
        target_mask=parity.target_mask,
    )
    np.testing.assert_allclose(output, parity.output, rtol=0, atol=1e-10)


def test_attention_averages_the_allowed_values_of_equal_keys():
    query, key = np.ones((1, 2)), np.ones((3, 2))
    value = np.array([[1.0], [3.0], [8.0]])
    assert oracle.attention(query, key, value).item() == 4.0
    assert oracle.attention(query, key, value, np.array([[True, True, False]])).item() == 2.0


def test_attention_weights_are_a_softmax_of_scaled_products():
    query, key = np.array([[2.0, 0, 0, 0]]), np.array([[np.log(3.0), 0, 0, 0], [0, 0, 0, 0]])
    value = np.array([[1.0], [0.0]])
    np.testing.assert_allclose(oracle.attention(query, key, value), [[0.75]])


def test_layer_norm_of_two_values():
    weights = {"weight": np.array([2.0, 3.0]), "bias": np.array([10.0, 20.0])}
    np.testing.assert_allclose(
        oracle.layer_norm(np.array([1.0, 5.0]), weights, eps=0), [10 - 2, 20 + 3]
    )


def test_original_positions_are_those_of_the_paper():
    for d_model in (8, 9):
        np.testing.assert_allclose(
            oracle.original_positions(50, d_model),
            oracle.sinusoidal_positions(50, d_model),
            rtol=0,
            atol=1e-5,
        )


def weights_of(layer: nn.Module) -> dict[str, np.ndarray]:
    """Return the weights of a layer of torch's under the names of the original TFModel."""
    cross = ["multihead_attn"] if hasattr(layer, "multihead_attn") else []
    norms = ["norm_attn", *(["norm_enc_dec"] if cross else []), "norm_ff"]
    names = {f"norm{number}": name for number, name in enumerate(norms, start=1)}
    names |= {"linear1": "ff.0", "linear2": "ff.3"}
    names |= {
        "self_attn.out_proj": "attn.post_att",
        "multihead_attn.out_proj": "enc_dec_attn.post_att",
    }
    weights = {}
    for name, value in layer.state_dict().items():
        if "in_proj" in name:
            part = "attn" if name.startswith("self_attn") else "enc_dec_attn"
            for map_name, rows in zip("qkv", value.chunk(3), strict=True):
                weights[f"{part}.{map_name}_linear.{name.rsplit('_', 1)[1]}"] = rows.numpy()
        else:
            module, kind = name.rsplit(".", 1)
            weights[f"{names[module]}.{kind}"] = value.numpy()
    return weights


def torch_layer(kind: type[nn.Module], norm_first: bool) -> nn.Module:
    torch.manual_seed(0)
    layer = kind(
        12, 3, 20, 0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
    ).requires_grad_(False)
    for weight in layer.parameters():  # norms away from weight 1 and bias 0
        nn.init.normal_(weight, std=0.5)
    return layer


EXISTS = np.arange(7) < np.array([[7], [4], [1]])


@pytest.mark.parametrize("norm_first", [True, False])
def test_encoder_layers_are_torchs(norm_first: bool) -> None:
    layer = torch_layer(nn.TransformerEncoderLayer, norm_first)
    x = torch.randn(3, 7, 12, dtype=torch.float64)
    own = oracle.encoder_layer if norm_first else oracle.post_norm_encoder_layer
    output = own(x.numpy(), weights_of(layer), 3, EXISTS[:, None])
    expected = layer(x, src_key_padding_mask=torch.from_numpy(~EXISTS))
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm_first", [True, False])
def test_decoder_layers_are_torchs(norm_first: bool) -> None:
    layer = torch_layer(nn.TransformerDecoderLayer, norm_first)
    x, memory = torch.randn(3, 5, 12).double(), torch.randn(3, 7, 12).double()
    own = oracle.decoder_layer if norm_first else oracle.post_norm_decoder_layer
    masks = EXISTS[:, None], oracle.causal_mask(5)
    output = own(x.numpy(), memory.numpy(), weights_of(layer), 3, *masks)
    expected = layer(
        x,
        # torch's layers leave the memory as it is; the original norms it before it is attended to
        layer.norm2(memory) if norm_first else memory,
        tgt_mask=torch.from_numpy(~masks[1]),
        memory_key_padding_mask=torch.from_numpy(~EXISTS),
    )
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-10)
