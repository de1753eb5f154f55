"""The eager reference gives the original's numbers, and ours: so that speeds can be compared."""

import numpy as np
import pytest
import torch

from tests.reference.parity import parametrize_files, read_parity
from tsformer.benchmarks.eager import EagerTFModel, causal_mask, decode_naively
from tsformer.nn import TFModel, load_reference_state_dict

SIZES = (3, 2, 2, 16, 4, 24, 2)


@pytest.fixture
def models():
    """The reference and our network with its weights, in float64, without dropout."""
    torch.manual_seed(0)
    reference = EagerTFModel(*SIZES).double().eval()
    ours = TFModel(*SIZES).double().eval()
    load_reference_state_dict(ours, reference.state_dict())
    return reference, ours


@parametrize_files
def test_recorded_outputs(path):
    parity = read_parity(path)
    model = EagerTFModel(*parity.config).double().eval()
    weights = {k: v for k, v in parity.weights.items() if not k.endswith(".pe")}
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    source_mask = parity.source_mask
    with torch.no_grad():
        output = model(
            torch.from_numpy(parity.encoder_input),
            torch.from_numpy(parity.decoder_input),
            None if source_mask is None else torch.from_numpy(source_mask),
            torch.from_numpy(parity.target_mask),
        )
    np.testing.assert_allclose(output.numpy(), parity.output, rtol=0, atol=1e-10)


def test_outputs_and_gradients_are_those_of_our_network(models):
    source, target = torch.randn(4, 9, 3).double(), torch.randn(4, 6, 2).double()
    outputs = []
    for model, masks in zip(models, [(None, causal_mask(4, 6)), ()], strict=True):
        output = model(source, target, *masks)
        output.square().sum().backward()
        outputs.append(output)
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)
    reference, ours = models
    gradients = {name: weight.grad for name, weight in reference.named_parameters()}
    expected = TFModel(*SIZES).double()
    load_reference_state_dict(expected, gradients)  # renamed and stacked as the weights are
    for (name, gradient), weight in zip(
        expected.state_dict().items(), ours.parameters(), strict=True
    ):
        torch.testing.assert_close(weight.grad, gradient, rtol=0, atol=1e-10, msg=name)


def test_naive_decoding_is_what_a_cache_gives(models):
    reference, ours = models
    source, start = torch.randn(4, 9, 3).double(), torch.randn(4, 2).double()
    with torch.no_grad():
        expected = decode_naively(reference, source, start, 7)
        cache = ours.new_cache(ours.encode(source), 7)
        token = start
        for t in range(7):
            token = ours.decode_next(token, cache, t)
            torch.testing.assert_close(token, expected[:, t], rtol=0, atol=1e-12)


def test_dropout_acts_on_every_place_of_the_original():
    model = EagerTFModel(*SIZES, dropout=0.3)
    rates = [part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)]
    # 2 embeddings; a layer: attentions, feed-forward, residual branches
    assert sorted(rates) == [0.1] * 2 + [0.3] * (2 * 3 + 2 * 4)
