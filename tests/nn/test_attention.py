"""Multi-head attention against the NumPy oracle."""

import numpy as np
import pytest
import torch

from tests.reference.transformer import causal_mask, multi_head_attention
from tsformer.nn.attention import MultiHeadAttention, attention_mask


def build(d_model=12, num_heads=3, **settings):
    torch.manual_seed(0)
    attention = MultiHeadAttention(d_model, num_heads, **settings).double().eval()
    return attention.requires_grad_(False)


def oracle(attention, x, memory, mask=None):
    weights = {}
    for kind in ("weight", "bias"):
        parts = getattr(attention.in_proj, kind).chunk(3)
        for name, part in zip("qkv", parts, strict=True):
            weights[f"{name}_linear.{kind}"] = part.numpy()
        weights[f"post_att.{kind}"] = getattr(attention.out_proj, kind).numpy()
    return multi_head_attention(x.numpy(), memory.numpy(), weights, attention.num_heads, mask)


@pytest.mark.parametrize("num_heads", [1, 3, 12])
def test_self_attention(num_heads):
    attention, x = build(num_heads=num_heads), torch.randn(2, 5, 12).double()
    np.testing.assert_allclose(attention(x), oracle(attention, x, x), atol=1e-12)


def test_causal_self_attention():
    attention, x = build(), torch.randn(2, 5, 12).double()
    expected = oracle(attention, x, x, causal_mask(5))
    np.testing.assert_allclose(attention(x, is_causal=True), expected, atol=1e-12)
    explicit = attention(x, mask=torch.from_numpy(causal_mask(5)))
    np.testing.assert_allclose(explicit, expected, atol=1e-12)


def test_cross_attention_under_a_mask():
    attention = build()
    x, memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    mask = torch.rand(2, 5, 7) < 0.5
    mask[..., 0] = True
    attended = attention(x, memory, mask=attention_mask(mask))
    np.testing.assert_allclose(attended, oracle(attention, x, memory, mask.numpy()), atol=1e-12)


def value_heads(attention, memory):
    """Return the values of each head, (B, N, S, D/N)."""
    d_model = memory.size(-1)
    weight, bias = attention.in_proj.weight[2 * d_model :], attention.in_proj.bias[2 * d_model :]
    return (memory @ weight.T + bias).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2)


@pytest.mark.parametrize("masking", ["none", "causal", "padding", "pairs"])
def test_weights_are_those_that_attend(masking):
    attention = build()
    x, memory = torch.randn(2, 5, 12).double(), torch.randn(2, 7, 12).double()
    pairs = torch.rand(2, 5, 7) < 0.5
    pairs[..., 0] = True
    masks = {"padding": torch.arange(7) < torch.tensor([[7], [3]]), "pairs": pairs}
    if masking == "causal":
        memory, arguments = x, {"is_causal": True}
        allowed = torch.from_numpy(causal_mask(5)).expand(2, 3, 5, 5)
    else:
        mask = attention_mask(masks.get(masking))
        arguments = {"memory": memory, "mask": mask}
        allowed = torch.ones(()).bool() if mask is None else mask
        allowed = allowed.expand(2, 3, 5, 7)
    weights = attention.weights(x, **arguments)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 3, 5).double())
    assert (weights > 0).equal(allowed)
    attended = (weights @ value_heads(attention, memory)).transpose(1, 2).flatten(2)
    expected = attention(x, **arguments)
    torch.testing.assert_close(attention.out_proj(attended), expected, rtol=0, atol=1e-12)


def test_cross_attention_to_itself_is_self_attention():
    attention, x = build(), torch.randn(2, 5, 12).double()
    torch.testing.assert_close(attention(x, x), attention(x))


def test_masks_get_a_head_axis():
    exists, pairs = torch.rand(2, 7) < 0.5, torch.rand(2, 5, 7) < 0.5
    assert attention_mask(None) is None
    assert attention_mask(exists).expand(2, 3, 5, 7).equal(exists[:, None, None].expand(2, 3, 5, 7))
    assert attention_mask(pairs).expand(2, 3, 5, 7).equal(pairs[:, None].expand(2, 3, 5, 7))


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match=r"d_model=10 .*num_heads=4"):
        MultiHeadAttention(10, 4)


def test_attention_dropout_acts_in_training_alone():
    x = torch.randn(2, 50, 12).double()
    dropped, plain = build(attention_dropout=0.5), build()
    torch.testing.assert_close(dropped(x), plain(x))
    assert not torch.allclose(dropped.train()(x), plain(x))
