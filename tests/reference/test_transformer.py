"""The oracle against values known by hand, and against the original TFModel's outputs."""

import numpy as np

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
