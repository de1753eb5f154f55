"""TFModel gives the numbers of the original network, to 1e-10 in double precision."""

import numpy as np
import pytest
import torch

from tests.reference.make_parity import Sizes, random_weights
from tests.reference.parity import parametrize_files, read_parity
from tests.reference.transformer import causal_mask, tf_model
from tsformer.nn import TFModel, load_reference_state_dict


def load(weights):
    return {name: torch.from_numpy(value) for name, value in weights.items()}


def run(model, *arrays):
    tensors = [None if array is None else torch.from_numpy(array) for array in arrays]
    with torch.no_grad():
        return model.double().eval()(*tensors).numpy()


@parametrize_files
def test_recorded_outputs(path):
    parity = read_parity(path)
    model = TFModel(*parity.config).double()
    load_reference_state_dict(model, load(parity.weights))
    output = run(
        model,
        parity.encoder_input,
        parity.decoder_input,
        parity.source_mask,
        parity.target_mask,
    )
    np.testing.assert_allclose(output, parity.output, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("sizes", "num_decoder_layers"),
    [
        (Sizes(1, 1, 1, 4, 1, 8, 1), 1),
        (Sizes(2, 3, 4, 9, 3, 5, 1), 3),
        (Sizes(4, 1, 2, 10, 5, 16, 3), 1),
        (Sizes(2, 2, 1, 7, 7, 7, 2), 2),
    ],
)
@pytest.mark.parametrize("padded", [False, True])
def test_any_sizes_agree_with_the_oracle(sizes, num_decoder_layers, padded):
    rng = np.random.default_rng(sizes.d_model)
    weights = random_weights(sizes, rng, num_decoder_layers)
    source = rng.normal(size=(3, 11, sizes.encoder_input))
    target = rng.normal(size=(3, 6, sizes.decoder_input))
    exists = np.arange(11) >= np.array([[0], [4], [10]]) if padded else None

    model = TFModel(*sizes, num_decoder_layers=num_decoder_layers).double()
    load_reference_state_dict(model, load(weights))
    keys = exists[:, None, :] if padded else None
    expected = tf_model(
        weights,
        sizes.num_heads,
        source,
        target,
        encoder_mask=keys,
        source_mask=keys,
        target_mask=causal_mask(6),
    )
    np.testing.assert_allclose(run(model, source, target, exists), expected, rtol=0, atol=1e-10)


def test_original_tables_of_positions_are_ignored():
    sizes = Sizes(2, 3, 1, 8, 2, 16, 1)
    weights = random_weights(sizes, np.random.default_rng(0))
    plain, with_tables = TFModel(*sizes).double(), TFModel(*sizes).double()
    load_reference_state_dict(plain, load(weights))
    for name in ("encoder_embedding", "decoder_embeddings"):
        weights[f"{name}.pos_encoding.pe"] = np.full((1, 5000, 8), 9.0)
    load_reference_state_dict(with_tables, load(weights))
    source, target = np.ones((1, 4, 2)), np.ones((1, 3, 3))
    np.testing.assert_array_equal(run(plain, source, target), run(with_tables, source, target))


@pytest.mark.parametrize("broken", ["missing", "unknown", "shape"])
def test_weights_that_do_not_fit_are_refused(broken):
    sizes = Sizes(2, 3, 1, 8, 2, 16, 1)
    weights = random_weights(sizes, np.random.default_rng(0))
    if broken == "missing":
        del weights["encoder_block.norm.weight"]
    elif broken == "unknown":
        weights["extra.weight"] = np.ones(8)
    else:
        weights["encoder_block.norm.weight"] = np.ones(9)
    with pytest.raises(RuntimeError, match=r"encoder_norm\.weight|extra\.weight"):
        load_reference_state_dict(TFModel(*sizes), load(weights))


def test_a_missing_key_map_is_refused():
    sizes = Sizes(2, 3, 1, 8, 2, 16, 1)
    weights = random_weights(sizes, np.random.default_rng(0))
    del weights["encoder_block.enc_layers.0.attn.k_linear.bias"]
    with pytest.raises(RuntimeError, match=r"encoder_layers\.0\.attention"):
        load_reference_state_dict(TFModel(*sizes), load(weights))
