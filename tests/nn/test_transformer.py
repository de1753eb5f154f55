"""What TFModel lets each output depend on, and what it is made of."""

import itertools

import pytest
import torch

from tsformer.nn import TFModel

SOURCE, TARGET = 9, 6


def build(**overrides):
    settings = {
        "encoder_input_size": 3,
        "decoder_input_size": 2,
        "output_size": 2,
        "d_model": 12,
        "num_heads": 3,
        "d_ff": 16,
        "num_layers": 2,
    }
    torch.manual_seed(0)
    return TFModel(**settings | overrides).double().eval().requires_grad_(False)


@pytest.fixture
def source():
    return torch.randn(2, SOURCE, 3, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture
def target():
    return torch.randn(2, TARGET, 2, generator=torch.Generator().manual_seed(2)).double()


def test_target_mask_is_causal_unless_given(source, target):
    model = build()
    causal = torch.ones(2, TARGET, TARGET, dtype=torch.bool).tril()
    explicit = model(source, target, target_mask=causal)
    torch.testing.assert_close(model(source, target), explicit, rtol=0, atol=1e-12)
    everything = torch.ones_like(causal)
    assert not torch.allclose(explicit, model(source, target, target_mask=everything))


@pytest.mark.parametrize("step", range(TARGET))
def test_target_token_changes_its_own_output_and_none_before(source, target, step):
    model, changed = build(), target.clone()
    changed[:, step] += 1
    before, after = model(source, target), model(source, changed)
    assert torch.equal(before[:, :step], after[:, :step])
    assert (before[:, step:] != after[:, step:]).any(dim=-1).all()


def test_masked_source_tokens_do_not_matter(source, target):
    model, changed = build(), source.clone()
    exists = torch.rand(2, SOURCE) < 0.5
    exists[:, 3] = True
    changed[~exists] = 1e3
    assert torch.equal(model(source, target, exists), model(changed, target, exists))
    assert not torch.allclose(model(source, target), model(changed, target))


def test_masking_the_tail_of_the_source_is_truncating_it(source, target):
    model = build()
    exists = (torch.arange(SOURCE) < 5).expand(2, SOURCE)
    masked, truncated = model(source, target, exists), model(source[:, :5], target)
    torch.testing.assert_close(masked, truncated, rtol=0, atol=1e-12)


def test_mask_of_target_and_source_tokens_limits_cross_attention_alone(source, target):
    model = build()
    allowed = torch.ones(2, TARGET, SOURCE, dtype=torch.bool)
    torch.testing.assert_close(
        model(source, target, allowed), model(source, target), rtol=0, atol=1e-12
    )
    allowed[:, 4, 1:] = False
    before, after = model(source, target), model(source, target, allowed)
    torch.testing.assert_close(before[:, :4], after[:, :4], rtol=0, atol=1e-12)
    assert (before[:, 4] - after[:, 4]).abs().max() > 1e-3

    allowed[:, :, 1:] = False  # no target token sees source token 5; the encoder does
    changed = source.clone()
    changed[:, 5] += 1
    before, after = model(source, target, allowed), model(changed, target, allowed)
    assert (before - after).abs().max() > 1e-3


def test_each_source_token_reaches_each_output(source, target):
    model = build()
    before = model(source, target)
    for token in range(SOURCE):
        changed = source.clone()
        changed[:, token] += 1
        assert (before != model(changed, target)).any(dim=-1).all()


def test_order_of_the_source_matters(source, target):
    model = build()
    assert not torch.allclose(model(source, target), model(source.flip(1), target))


def test_encode_then_decode_is_forward(source, target):
    model = build()
    exists = (torch.arange(SOURCE) > 2).expand(2, SOURCE)
    in_two_steps = model.decode(target, model.encode(source, exists), exists)
    assert torch.equal(model(source, target, exists), in_two_steps)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match=r"d_model=12 .*num_heads=5"):
        build(num_heads=5)


@pytest.mark.parametrize(("d_model", "num_heads"), [(9, 3), (7, 1), (1, 1)])
def test_odd_widths_work(source, target, d_model, num_heads):
    output = build(d_model=d_model, num_heads=num_heads)(source, target)
    assert output.shape == (2, TARGET, 2)
    assert output.isfinite().all()


def test_number_of_layers(source, target):
    model = build(num_layers=3, num_decoder_layers=1)
    assert (len(model.encoder_layers), len(model.decoder_layers)) == (3, 1)
    assert model(source, target).shape == (2, TARGET, 2)
    assert len(build(num_layers=3).decoder_layers) == 3


def test_layers_start_with_different_weights():
    model = build(num_layers=3)
    for layers in (model.encoder_layers, model.decoder_layers):
        for one, other in itertools.combinations(layers, 2):
            pairs = zip(one.parameters(), other.parameters(), strict=True)
            matrices = [(a, b) for a, b in pairs if a.dim() == 2]
            assert not any(torch.equal(a, b) for a, b in matrices)


def test_saved_weights_are_the_parameters_and_no_tables_of_positions():
    model = build()
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_inputs_are_left_as_they_are(source, target):
    model = build()
    exists = torch.rand(2, SOURCE) < 0.5
    causal = torch.ones(2, TARGET, TARGET, dtype=torch.bool).tril()
    inputs = (source, target, exists, causal)
    copies = [x.clone() for x in inputs]
    model(*inputs)
    assert all(torch.equal(x, copy) for x, copy in zip(inputs, copies, strict=True))


def test_dropout_acts_in_training_alone(source, target):
    model = build(dropout=0.5)
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.allclose(model(source, target), model(source, target))
