"""Our layers are torch's own pre-norm layers, given the same weights."""

import torch
from torch import nn

from tsformer.nn.layers import DecoderLayer, EncoderLayer

D_MODEL, NUM_HEADS, D_FF = 12, 3, 20
TORCH_SETTINGS = {
    "d_model": D_MODEL,
    "nhead": NUM_HEADS,
    "dim_feedforward": D_FF,
    "dropout": 0.0,
    "batch_first": True,
    "norm_first": True,
    "dtype": torch.float64,
}


def randomised(layer):
    """Move the norms away from weight 1 and bias 0, so that they can be told apart."""
    torch.manual_seed(0)
    for parameter in layer.double().parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.requires_grad_(False)


def copy_weights(ours, theirs, names):
    state = {}
    for name, value in ours.state_dict().items():
        module, kind = name.rsplit(".", 1)
        their_module = names[module]
        joiner = "_" if their_module.endswith("in_proj") else "."  # not a module there
        state[f"{their_module}{joiner}{kind}"] = value
    theirs.load_state_dict(state)


def test_encoder_layer():
    ours = randomised(EncoderLayer(D_MODEL, NUM_HEADS, D_FF, dropout=0.0, attention_dropout=0.0))
    theirs = nn.TransformerEncoderLayer(**TORCH_SETTINGS)
    names = {
        "norm_attention": "norm1",
        "attention.in_proj": "self_attn.in_proj",
        "attention.out_proj": "self_attn.out_proj",
        "norm_feed_forward": "norm2",
        "feed_forward.0": "linear1",
        "feed_forward.3": "linear2",
    }
    copy_weights(ours, theirs, names)
    x = torch.randn(3, 7, D_MODEL).double()
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-10)

    exists = torch.arange(7) < torch.tensor([[7], [4], [1]])
    expected = theirs(x, src_key_padding_mask=~exists)
    torch.testing.assert_close(ours(x, exists[:, None, None]), expected, rtol=0, atol=1e-10)


def test_decoder_layer():
    ours = randomised(DecoderLayer(D_MODEL, NUM_HEADS, D_FF, dropout=0.0, attention_dropout=0.0))
    theirs = nn.TransformerDecoderLayer(**TORCH_SETTINGS)
    names = {
        "norm_attention": "norm1",
        "attention.in_proj": "self_attn.in_proj",
        "attention.out_proj": "self_attn.out_proj",
        "norm_cross_attention": "norm2",
        "cross_attention.in_proj": "multihead_attn.in_proj",
        "cross_attention.out_proj": "multihead_attn.out_proj",
        "norm_feed_forward": "norm3",
        "feed_forward.0": "linear1",
        "feed_forward.3": "linear2",
    }
    copy_weights(ours, theirs, names)
    x, memory = torch.randn(3, 5, D_MODEL).double(), torch.randn(3, 7, D_MODEL).double()
    exists = torch.arange(7) < torch.tensor([[7], [4], [1]])
    expected = theirs(
        x,
        ours.norm_cross_attention(memory),  # torch's layer leaves the memory as it is
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64),
        memory_key_padding_mask=~exists,
    )
    output = ours(x, memory, source_mask=exists[:, None, None])
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-10)

    everything = torch.ones(5, 5, dtype=torch.bool)
    torch.testing.assert_close(
        ours(x, memory, target_mask=everything),
        theirs(x, ours.norm_cross_attention(memory)),
        rtol=0,
        atol=1e-10,
    )
