"""Attention weights of a forecast: the oracle's, and those of the forecast itself."""

import numpy as np
import pytest
import torch

from tests.nn.test_network import DECODINGS, build, draw
from tests.reference.make_parity import Sizes, random_weights
from tests.reference.transformer import causal_mask, tf_model
from tsformer.nn import load_reference_state_dict
from tsformer.nn.maps import attention_weights

LAYERS = {"num_layers": 3, "num_decoder_layers": 2}
each_decoding = pytest.mark.parametrize("decoding", DECODINGS)


@each_decoding
def test_weights_are_the_oracles(decoding: str) -> None:
    """The oracle gets the tokens that the transformer gets; all else it computes by itself."""
    network = build(decoding=decoding, **LAYERS)
    transformer = network.transformer
    inputs = draw()
    inputs["observed"][1, :9] = False  # two tokens and a part of the third
    sizes = Sizes(
        transformer.encoder_embedding.linear.in_features,
        transformer.decoder_embedding.linear.in_features,
        transformer.output.out_features,
        8,
        2,
        16,
        3,
    )
    weights = random_weights(sizes, np.random.default_rng(0), 2)
    state = {name: torch.from_numpy(value) for name, value in weights.items()}
    load_reference_state_dict(transformer, state)
    tokens = {}
    for name in ("encoder_embedding", "decoder_embedding"):
        part = transformer.get_submodule(name)
        part.register_forward_pre_hook(lambda _, args, name=name: tokens.update({name: args[0]}))

    found = attention_weights(network, *inputs.values())
    exists = inputs["observed"].reshape(3, 6, 8).any(dim=-1)[:, None].numpy()
    expected: list[np.ndarray] = []
    tf_model(
        weights,
        2,
        tokens["encoder_embedding"].numpy(),
        tokens["decoder_embedding"].numpy(),
        encoder_mask=exists,
        source_mask=exists,
        target_mask=causal_mask(3),
        maps=expected,
    )
    parts = expected[:3], expected[3::2], expected[4::2]
    for weights_found, maps in zip(found, parts, strict=True):
        np.testing.assert_allclose(weights_found, np.stack(maps, axis=1), rtol=0, atol=1e-10)


@each_decoding
def test_padding_is_never_attended_to_and_no_token_sees_later_ones(decoding: str) -> None:
    network = build(decoding=decoding, **LAYERS)
    inputs = draw()
    inputs["observed"][0, :8] = False
    inputs["observed"][1] = False  # without any value, all tokens count
    encoder, decoder, cross = attention_weights(network, *inputs.values())
    assert encoder.shape == (3, 3, 2, 6, 6)
    assert decoder.shape == (3, 2, 2, 3, 3)
    assert cross.shape == (3, 2, 2, 3, 6)
    for weights in (encoder, decoder, cross):
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]).double())
    for weights in (encoder, cross):
        assert not weights[0, ..., :2].any()
        assert (weights[0, ..., 2:] > 0).all()
        assert (weights[1:] > 0).all()
    assert (decoder > 0).equal(torch.ones(3, 3).tril().bool().expand_as(decoder))


@each_decoding
@pytest.mark.parametrize("head", ["point", "student_t"])
def test_the_pass_that_is_looked_at_gives_the_forecast(
    decoding: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = build(decoding=decoding, head=head, **LAYERS)
    inputs = draw()
    with torch.no_grad():
        expected = network(**inputs)
    outputs = []
    original = network._head_parameters
    monkeypatch.setattr(
        network, "_head_parameters", lambda *args: outputs.append(original(*args)) or outputs[-1]
    )
    attention_weights(network, *inputs.values())
    found = outputs[-1].flatten(1, 2)[:, : network.horizon]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@each_decoding
def test_looking_leaves_no_trace(decoding: str) -> None:
    network = build(decoding=decoding)
    inputs = draw()
    with torch.no_grad():
        before = network(**inputs)
        attention_weights(network, *inputs.values())
        after = network(**inputs)
    assert before.equal(after)
    assert not any(module._forward_pre_hooks for module in network.modules())
    with pytest.raises(RuntimeError):
        attention_weights(network, *(x[..., :0] for x in inputs.values()))
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_a_compiled_network_is_looked_at_alike() -> None:
    network, inputs = build(), draw()
    expected = attention_weights(network, *inputs.values())
    network.compile(backend="eager")
    with torch.inference_mode():
        network(**inputs)
    for weights, wanted in zip(attention_weights(network, *inputs.values()), expected, strict=True):
        torch.testing.assert_close(weights, wanted)
