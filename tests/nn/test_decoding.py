"""Decoding a token at a time is the layer, which test_layers.py checks against torch's own."""

import math

import pytest
import torch
from torch import nn

from tsformer.nn.attention import attention_mask
from tsformer.nn.decoding import added_to_scores, decode_token, new_layer_cache
from tsformer.nn.layers import DecoderLayer

BATCH, TARGET, SOURCE, D_MODEL = 2, 5, 7, 12


def random_layer(num_heads):
    """A layer whose norms are not those of a fresh one, with dropout that must not act."""
    torch.manual_seed(0)
    layer = DecoderLayer(D_MODEL, num_heads, 20, dropout=0.5, attention_dropout=0.5).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.requires_grad_(False).eval()


def decode_all(layer, x, memory, source_mask, target_mask):
    cache = new_layer_cache(layer, memory, TARGET)
    cache.target.fill_(torch.nan)  # which no token may see before it is written
    outputs = []
    for t in range(TARGET):
        source = source_mask[:, t : t + 1] if source_mask.size(1) > 1 else source_mask
        target = target_mask[:, t : t + 1, : t + 1] if target_mask.size(1) > 1 else target_mask
        outputs.append(decode_token(x[:, t], cache, t, source, target))
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("num_heads", [1, 3, 12])
@pytest.mark.parametrize("masked", [False, True])
def test_token_by_token_is_the_layer(num_heads, masked):
    layer = random_layer(num_heads)
    x = torch.randn(BATCH, TARGET, D_MODEL).double()
    memory = torch.randn(BATCH, SOURCE, D_MODEL).double()
    source_mask = target_mask = None
    if masked:
        source_mask = torch.rand(BATCH, TARGET, SOURCE) < 0.5
        source_mask[..., 2] = True
        target_mask = torch.ones(BATCH, TARGET, TARGET).tril().triu(-2).bool()
        target_mask[1] = torch.ones(TARGET, TARGET).tril()  # samples differ
    expected = layer(x, memory, attention_mask(source_mask), attention_mask(target_mask))
    added = [added_to_scores(mask, memory, num_heads) for mask in (source_mask, target_mask)]
    outputs = decode_all(layer, x, memory, *added)
    torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)


def test_masks_become_numbers_that_are_added():
    mask = torch.tensor([[True, False], [False, True]])  # (B, S)
    like = torch.zeros((), dtype=torch.float64)
    row, other = [[0.0, -math.inf]], [[-math.inf, 0.0]]
    assert added_to_scores(mask, like, 2).tolist() == [row, row, other, other]
    assert added_to_scores(mask, like, 2).dtype == torch.float64
    pairs = mask.expand(1, 2, 2)  # (B, T, S)
    assert added_to_scores(pairs, like, 2).tolist() == [row + other] * 2
    assert added_to_scores(None, like, 2).tolist() == [[[0.0]]]
