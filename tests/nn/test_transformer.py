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


@pytest.mark.parametrize("padded", [True, False])
def test_activation_checkpointing_gives_the_same_gradients(source, target, padded):
    exists = torch.arange(SOURCE) >= torch.tensor([[0], [4]]) if padded else None
    results = []
    for activation_checkpointing in (True, False):
        model = build(dropout=0.3, activation_checkpointing=activation_checkpointing)
        model.train().requires_grad_()
        torch.manual_seed(1)
        output = model(source, target, exists)
        output.square().sum().backward()
        results.append([output.detach(), *(p.grad for p in model.parameters())])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-12)


def test_activation_checkpointing_keeps_less(source, target):
    def kept(**settings):
        model, sizes = build(**settings).train().requires_grad_(), []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda x: sizes.append(x.numel()) or x, lambda x: x
        ):
            model(source, target)
        return sum(sizes)

    assert kept(activation_checkpointing=True) < kept() / 2


# Decoding token by token


def draw_pairs():
    """Return which source tokens each target token sees; all see the fourth."""
    pairs = torch.rand(2, TARGET, SOURCE, generator=torch.Generator().manual_seed(3)) < 0.5
    return pairs.index_fill(2, torch.tensor(3), True)


MASKS = {
    "none": {},
    "padding": {"source_mask": torch.arange(SOURCE) >= torch.tensor([[0], [4]])},
    "pairs": {"source_mask": draw_pairs()},
    "banded": {
        "target_mask": torch.ones(2, TARGET, TARGET).tril().triu(-2).bool(),
        "source_mask": torch.arange(SOURCE) < torch.tensor([[5], [1]]),
    },
}
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5}
each_mask = pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCES)


@each_mask
@each_dtype
@pytest.mark.parametrize("num_heads", [1, 3, 12])
@torch.no_grad()
def test_token_by_token_is_all_at_once(source, target, masks, dtype, num_heads):
    model = build(num_heads=num_heads).to(dtype)
    source, target = source.to(dtype), target.to(dtype)
    memory = model.encode(source)
    cache = model.new_cache(memory, TARGET, **masks)
    for t in range(TARGET):
        output = model.decode_next(target[:, t], cache, t)
        seen = {name: mask[:, : t + 1] if mask.dim() == 3 else mask for name, mask in masks.items()}
        if "target_mask" in seen:
            seen["target_mask"] = seen["target_mask"][:, :, : t + 1]
        recomputed = model.decode(target[:, : t + 1], memory, **seen)[:, -1]
        torch.testing.assert_close(output, recomputed, rtol=0, atol=TOLERANCES[dtype])
        at_once = model.decode(target, memory, **masks)[:, t]
        torch.testing.assert_close(output, at_once, rtol=0, atol=TOLERANCES[dtype])


@torch.no_grad()
def test_two_target_tokens_have_a_mask_each(source, target):
    model, target = build(), target[:, :2]
    mask = torch.eye(2, dtype=torch.bool).repeat(len(target), 1, 1)  # each sees itself alone
    memory = model.encode(source)
    expected = model.decode(target, memory, target_mask=mask)
    cache = model.new_cache(memory, 2, target_mask=mask)
    for t in range(2):
        output = model.decode_next(target[:, t], cache, t)
        torch.testing.assert_close(output, expected[:, t], rtol=0, atol=1e-12)


@each_mask
@torch.no_grad()
def test_copies_of_a_memory_stand_in_a_row(source, target, masks):
    """Three targets of each memory, all different, are decoded as if its copies were given."""
    model, copies = build(), 3
    targets = torch.cat([target + n for n in range(copies)])
    memory = model.encode(source)
    each = {name: mask.repeat_interleave(copies, dim=0) for name, mask in masks.items()}
    expected = model.decode(targets, memory.repeat_interleave(copies, dim=0), **each)
    cache = model.new_cache(memory, TARGET, **masks, num_copies=copies)
    for t in range(TARGET):
        output = model.decode_next(targets[:, t], cache, t)
        torch.testing.assert_close(output, expected[:, t], rtol=0, atol=1e-12)


@torch.no_grad()
def test_nothing_is_kept_between_calls_but_the_cache(source, target):
    model = build()
    others = target.flip(0) + 1
    memory, other_memory = model.encode(source), model.encode(source.flip(0))
    expected = model.decode(target, memory), model.decode(others, other_memory)
    caches = model.new_cache(memory, TARGET), model.new_cache(other_memory, TARGET + 3)
    for t in range(TARGET):
        for x, cache, wanted in zip((target, others), caches, expected, strict=True):
            output = model.decode_next(x[:, t], cache, t)
            torch.testing.assert_close(output, wanted[:, t], rtol=0, atol=1e-12)


@torch.no_grad()
def test_decoding_can_go_back_to_an_earlier_token(source, target):
    model = build()
    memory = model.encode(source)
    cache = model.new_cache(memory, TARGET)
    for t in (0, 1, 2, 3):
        model.decode_next(target[:, t] + 1 * (t > 1), cache, t)
    for t in (2, 3):
        output = model.decode_next(target[:, t], cache, t)
    expected = model.decode(target[:, :4], memory)[:, -1]
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-12)
