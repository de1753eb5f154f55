"""The linear embedding and its positions."""

import numpy as np
import pytest
import torch

from tests.reference import transformer as oracle
from tsformer.nn.embedding import CategoricalEmbedding, LinearEmbedding, sinusoidal_positions


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


CARDINALITIES = [5, 0, 0, 2, 1, 100]
WIDTHS = [3, 1, 1, 1, 1, 16]


def draw_features(*shape):
    columns = [torch.randint(n, shape) if n else torch.randn(shape) for n in CARDINALITIES]
    return torch.stack([column.float() for column in columns], dim=-1)


@pytest.mark.parametrize("shape", [(), (3,), (3, 7)])
@pytest.mark.parametrize("num_features", [0, 1, 2, 4, 6])
def test_vectors_stand_where_categories_stood(shape, num_features):
    torch.manual_seed(0)
    embedding = CategoricalEmbedding(CARDINALITIES)
    x = draw_features(*shape)[..., :num_features]
    output = embedding(x).detach()
    assert output.shape == (*shape, sum(WIDTHS[:num_features]))
    assert embedding.output_size(num_features) == sum(WIDTHS[:num_features])
    for place in np.ndindex(shape):
        expected = []
        for feature, value in enumerate(x[place].tolist()):
            if CARDINALITIES[feature]:
                expected += embedding.tables[str(feature)].weight[int(value)].tolist()
            else:
                expected.append(value)
        assert output[place].tolist() == expected


def test_categories_differ_and_the_unknown_one_is_0():
    vectors = CategoricalEmbedding([6])(torch.arange(6.0)[:, None])
    assert not vectors[0].any()
    assert len(vectors.unique(dim=0)) == 6


def test_the_unknown_category_stays_0_in_training():
    torch.manual_seed(0)
    embedding = CategoricalEmbedding([4])
    optimizer = torch.optim.AdamW(embedding.parameters(), weight_decay=0.1)
    before = embedding.tables["0"].weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        (embedding(torch.tensor([[0.0], [1.0], [2.0]])) - 1).square().sum().backward()
        optimizer.step()
    after = embedding.tables["0"].weight
    assert not after[0].any()
    assert ((after - before)[1:3].abs() > 1e-4).all()


def test_numbers_pass_as_they_are():
    embedding, x = CategoricalEmbedding([0, 0]), torch.randn(2, 3, 2)
    assert embedding(x) is x
    assert embedding.state_dict() == {}


def test_one_token_at_its_position():
    embedding, x = LinearEmbedding(3, 9, dropout=0.0), torch.randn(2, 5, 3)
    for t in range(5):
        torch.testing.assert_close(embedding.embed_next(x[:, t], t), embedding(x)[:, t])
