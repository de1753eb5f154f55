"""The linear embedding and its positions."""

import numpy as np
import pytest
import torch

from tests.reference import transformer as oracle
from tsformer.nn.embedding import LinearEmbedding, sinusoidal_positions


@pytest.mark.parametrize("d_model", [1, 2, 7, 64])
def test_positions_are_those_of_the_paper(d_model):
    table = sinusoidal_positions(200, d_model)
    np.testing.assert_allclose(table, oracle.sinusoidal_positions(200, d_model), atol=1e-4)


@pytest.mark.parametrize("d_model", [2, 7, 64])
def test_positions_are_rounded_as_in_the_original(d_model):
    table = sinusoidal_positions(200, d_model)
    np.testing.assert_array_equal(table, oracle.original_positions(200, d_model))


def test_embedding_is_a_scaled_linear_map_plus_positions():
    torch.manual_seed(0)
    embedding = LinearEmbedding(3, 9, dropout=0.0).double()
    x = torch.randn(2, 5, 3).double()
    weight, bias = (p.detach().numpy() for p in embedding.linear.parameters())
    expected = 3 * (x.numpy() @ weight.T + bias) + oracle.original_positions(5, 9)
    np.testing.assert_allclose(embedding(x).detach(), expected, atol=1e-12)


def test_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    embedding, x = LinearEmbedding(3, 64, dropout=0.5), torch.randn(1, 50, 3)
    dropped = (embedding(x) == 0).double().mean()
    assert 0.4 < dropped < 0.6
    assert (embedding.eval()(x) == 0).double().mean() < 0.05


def test_more_tokens_than_positions_are_refused():
    embedding = LinearEmbedding(3, 8, dropout=0.0, max_length=6)
    assert embedding(torch.zeros(1, 6, 3)).shape == (1, 6, 8)
    with pytest.raises(ValueError, match=r"7 tokens.* 6"):
        embedding(torch.zeros(1, 7, 3))
