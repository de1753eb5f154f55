"""ForecastNetwork: what forecasts depend on, in which units, and that both decodings agree."""

import numpy as np
import pytest
import torch

from tsformer.nn import ForecastNetwork

CONTEXT = 24
DECODINGS = ("parallel", "autoregressive")
each_decoding = pytest.mark.parametrize("decoding", DECODINGS)


SETTINGS = {
    "context_length": CONTEXT,
    "horizon": 10,
    "num_channels": 2,
    "cardinalities": [0, 0, 0],
    "num_future_features": 2,
    "static_cardinalities": [0],
    "d_model": 8,
    "num_heads": 2,
    "d_ff": 16,
    "num_layers": 1,
    "num_decoder_layers": 2,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "patch_len": 4,
    "decoding": "parallel",
    "instance_norm": True,
    "linear_skip": "full",
}


def build(**overrides):
    """Return a small network in double precision, in evaluation, with random weights."""
    torch.manual_seed(0)
    return ForecastNetwork(**SETTINGS | overrides).double().eval()


def draw(batch=3, horizon=10, channels=2, past=3, future=2, static=1, seed=1):
    """Return random inputs by name; an eighth of the context is missing."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    observed = torch.rand(batch, CONTEXT, channels, generator=random) > 1 / 8
    return {
        "context": normal(batch, CONTEXT, channels).where(observed, 0.0),
        "observed": observed,
        "past_features": normal(batch, CONTEXT, past),
        "future_features": normal(batch, horizon, future),
        "static_features": normal(batch, static),
    }


def teacher(target):
    return {"target": target, "target_observed": torch.ones_like(target, dtype=torch.bool)}


def draw_target(batch=3, horizon=10, channels=2):
    random = torch.Generator().manual_seed(2)
    return torch.randn(batch, horizon, channels, generator=random, dtype=torch.float64)


def point(network, **inputs):
    return network.head.point(network(**inputs))


@torch.no_grad()
def forecast(network, inputs, **changes):
    return point(network, **inputs | changes)


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("given", ["target", "target_observed"])
def test_a_target_without_what_of_it_is_observed_is_refused(given):
    network = build(decoding="autoregressive")
    with pytest.raises(ValueError, match="target and target_observed are needed together"):
        forecast(network, draw(), **{given: teacher(draw_target())[given]})


@each_decoding
@pytest.mark.parametrize("patch_len", [1, 4, 12])
@pytest.mark.parametrize("horizon", [1, 10, 12])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("past", "future", "static"), [(0, 0, 0), (3, 2, 1)])
def test_shapes(decoding, patch_len, horizon, channels, past, future, static):
    network = build(
        decoding=decoding,
        patch_len=patch_len,
        horizon=horizon,
        num_channels=channels,
        cardinalities=[0] * past,
        num_future_features=future,
        static_cardinalities=[0] * static,
    )
    inputs = draw(horizon=horizon, channels=channels, past=past, future=future, static=static)
    target = draw_target(horizon=horizon, channels=channels)
    for output in (forecast(network, inputs), forecast(network, inputs, **teacher(target))):
        assert output.shape == (3, horizon, channels)
        assert output.isfinite().all()


@pytest.mark.parametrize("patch_len", [1, 4, 12])
@pytest.mark.parametrize("linear_skip", ["full", "individual", "seasonal", "none"])
@pytest.mark.parametrize("instance_norm", [True, False])
def test_free_running_forecast_is_the_teacher_forced_one_on_itself(
    patch_len, linear_skip, instance_norm
):
    network = build(
        decoding="autoregressive",
        patch_len=patch_len,
        linear_skip=linear_skip,
        instance_norm=instance_norm,
    )
    inputs = draw()
    free_running = forecast(network, inputs)
    assert_equal(forecast(network, inputs, **teacher(free_running)), free_running)
    other = forecast(network, inputs, **teacher(draw_target()))
    assert_equal(other[:, :patch_len], free_running[:, :patch_len])
    if patch_len < 10:
        assert not torch.allclose(other, free_running)


@pytest.mark.parametrize("patch_len", [1, 4, 12])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("linear_skip", ["full", "individual", "seasonal", "none"])
@pytest.mark.parametrize("num_heads", [1, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_forecasts_through_the_cache_are_those_recomputed(
    patch_len, channels, linear_skip, num_heads, dtype, tolerance
):
    network = build(
        decoding="autoregressive",
        patch_len=patch_len,
        num_channels=channels,
        linear_skip=linear_skip,
        num_heads=num_heads,
    ).to(dtype)
    inputs = {
        name: x if x.dtype == torch.bool else x.to(dtype)
        for name, x in draw(channels=channels).items()
    }
    inputs["observed"][1, :9] = False
    recomputed = point(network, **inputs).detach()  # gradients rule the cache out
    torch.testing.assert_close(forecast(network, inputs), recomputed, rtol=0, atol=tolerance)


@each_decoding
def test_mixed_precision_gives_forecasts_in_full_precision(decoding):
    network = build(decoding=decoding, instance_norm=False).float()
    inputs = {n: x if x.dtype == torch.bool else x.float() for n, x in draw().items()}
    truth = teacher(draw_target().float())
    for given in ({}, truth):
        before = forecast(network, inputs, **given)
        with torch.autocast("cpu", torch.bfloat16):
            output = forecast(network, inputs, **given)
        assert output.dtype == torch.float32
        assert 0 < (output - before).abs().max() < 0.1


def test_compiled_decoding_takes_no_more_graphs_for_more_tokens():
    counts = []

    def count(graph, _):
        counts[-1] += 1
        return graph.forward

    for horizon in (4, 8):
        network = build(decoding="autoregressive", patch_len=1, horizon=horizon)
        inputs = draw(horizon=horizon)
        before = forecast(network, inputs)
        counts.append(0)
        torch._dynamo.reset()
        network.compile(backend=count)
        assert torch.equal(forecast(network, inputs), before)
    assert 0 < counts[0] == counts[1]


# The second compiler, which makes no machine code, takes a fifth of the time.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("decoding", "backend"), [("parallel", "inductor"), ("autoregressive", "aot_eager")]
)
def test_compiled_network_is_the_network(decoding, backend):
    network = build(decoding=decoding, patch_len=2, num_decoder_layers=1).float()
    inputs = {n: x if x.dtype == torch.bool else x.float() for n, x in draw().items()}
    truth = teacher(draw_target().float())
    before, names = forecast(network, inputs), list(network.state_dict())
    point(network, **inputs, **truth).square().mean().backward()
    gradients = [p.grad.clone() for p in network.parameters()]
    network.zero_grad()

    torch._dynamo.reset()
    network.compile(backend=backend)
    torch.testing.assert_close(forecast(network, inputs), before, rtol=0, atol=1e-5)
    point(network, **inputs, **truth).square().mean().backward()
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-5)
    assert list(network.state_dict()) == names


@pytest.mark.parametrize("patch_len", [1, 4])
def test_target_step_changes_later_tokens_alone(patch_len):
    network, inputs = build(decoding="autoregressive", patch_len=patch_len), draw()
    target = draw_target()
    before = forecast(network, inputs, **teacher(target))
    for step in range(10):
        changed = target.clone()
        changed[:, step] += 1
        after = forecast(network, inputs, **teacher(changed))
        end_of_token = (step // patch_len + 1) * patch_len
        assert torch.equal(before[:, :end_of_token], after[:, :end_of_token])
        assert (before[:, end_of_token:] != after[:, end_of_token:]).all()


def test_decoding_starts_from_the_last_token_of_the_context():
    network = build(decoding="autoregressive", instance_norm=False, linear_skip="none")
    inputs = draw()
    for layer in network.transformer.decoder_layers:  # the decoder no longer sees the encoder
        torch.nn.init.zeros_(layer.cross_attention.out_proj.weight)
    before, random = forecast(network, inputs), torch.randn(3, CONTEXT, 2)
    earlier, last = inputs["context"].clone(), inputs["context"].clone()
    earlier[:, :-4] += random[:, :-4]
    last[:, -4:] += random[:, -4:]
    assert torch.equal(before, forecast(network, inputs, context=earlier))
    assert (before != forecast(network, inputs, context=last)).all()


def test_missing_target_values_do_not_matter():
    network, inputs, target = build(decoding="autoregressive"), draw(), draw_target()
    known = torch.rand(target.shape) > 0.3
    before = forecast(network, inputs, target=target, target_observed=known)
    changed = target.where(known, 1e3)
    assert torch.equal(before, forecast(network, inputs, target=changed, target_observed=known))
    assert not torch.allclose(before, forecast(network, inputs, **teacher(target)))


def test_parallel_decoding_ignores_the_target():
    network, inputs = build(), draw()
    assert torch.equal(
        forecast(network, inputs), forecast(network, inputs, **teacher(draw_target()))
    )


@each_decoding
@pytest.mark.parametrize("instance_norm", [True, False])
@pytest.mark.parametrize("garbage", [1e6, float("nan")])
def test_missing_context_values_do_not_matter(decoding, instance_norm, garbage):
    network, inputs = build(decoding=decoding, instance_norm=instance_norm), draw()
    inputs["observed"][0, -4:] = False  # the token that seeds autoregressive decoding
    changed = inputs["context"].where(inputs["observed"], garbage)
    assert torch.equal(forecast(network, inputs), forecast(network, inputs, context=changed))


@each_decoding
def test_left_padding_does_not_matter(decoding):
    network, inputs = build(decoding=decoding, linear_skip="none"), draw()
    inputs["observed"][:, :9] = False  # two tokens and a step
    inputs["context"][:, :9] = 0
    context, past = inputs["context"].clone(), inputs["past_features"].clone()
    context[:, :9], past[:, :8] = -50, 50
    before = forecast(network, inputs)
    assert torch.equal(before, forecast(network, inputs, context=context, past_features=past))
    past[:, 8] = 50  # this step shares its token with measurements
    assert not torch.allclose(before, forecast(network, inputs, past_features=past))


@each_decoding
def test_missing_is_not_zero(decoding):
    network, inputs = build(decoding=decoding), draw()
    observed = torch.ones_like(inputs["observed"])
    assert not torch.allclose(
        forecast(network, inputs), forecast(network, inputs, observed=observed)
    )


@each_decoding
@pytest.mark.parametrize("instance_norm", [True, False])
def test_context_without_values_gives_finite_forecasts(decoding, instance_norm):
    network, inputs = build(decoding=decoding, instance_norm=instance_norm), draw()
    inputs["observed"][1] = False
    inputs["context"][1] = 0
    output = forecast(network, inputs)
    assert output.isfinite().all()
    point(network, **inputs, **teacher(draw_target())).sum().backward()
    assert all(p.grad.isfinite().all() for p in network.parameters())


@each_decoding
def test_context_without_values_still_has_features(decoding):
    network, inputs = build(decoding=decoding), draw()
    inputs["observed"][:] = False
    changed = inputs["past_features"] + torch.randn(3, CONTEXT, 3)
    before, after = forecast(network, inputs), forecast(network, inputs, past_features=changed)
    assert (before - after).abs().amax(dim=(1, 2)).min() > 1e-3


@each_decoding
def test_forecasts_follow_shift_and_scale_of_each_channel(decoding):
    network, inputs = build(decoding=decoding), draw()
    scale = torch.tensor([[[3.0, 50.0]], [[1.0, 0.5]], [[8.0, 2.0]]]).double()
    shift = torch.tensor([[[5.0, -900.0]], [[0.0, 20.0]], [[-7.0, 1.0]]]).double()
    expected = scale * forecast(network, inputs) + shift
    output = forecast(network, inputs, context=scale * inputs["context"] + shift)
    assert ((output - expected) / scale).abs().max() < 1e-3
    without = build(decoding=decoding, instance_norm=False)
    output = forecast(without, inputs, context=scale * inputs["context"] + shift)
    assert ((output - expected) / scale).abs().max() > 0.1


@each_decoding
def test_every_input_changes_the_forecast(decoding):
    network, inputs = build(decoding=decoding, linear_skip="none"), draw()
    before = forecast(network, inputs)
    for name in ("context", "past_features", "future_features", "static_features"):
        after = forecast(network, inputs, **{name: inputs[name] + torch.randn(inputs[name].shape)})
        assert (before - after).abs().amax(dim=(1, 2)).min() > 1e-3


@each_decoding
def test_future_features_change_no_earlier_token(decoding):
    network, inputs = build(decoding=decoding), draw()
    before = forecast(network, inputs)
    for step in range(10):
        changed = inputs["future_features"].clone()
        changed[:, step] += 1
        after = forecast(network, inputs, future_features=changed)
        token = step // 4 * 4
        assert torch.equal(before[:, :token], after[:, :token])
        assert (before[:, token:] != after[:, token:]).all()


@each_decoding
def test_windows_of_a_batch_do_not_see_each_other(decoding):
    network, inputs = build(decoding=decoding), draw(batch=5)
    inputs["observed"][2] = False
    output = forecast(network, inputs)
    order = torch.tensor([3, 0, 4, 2, 1])
    permuted = forecast(network, {name: x[order] for name, x in inputs.items()})
    assert_equal(permuted, output[order])
    for window in range(5):
        alone = forecast(network, {name: x[[window]] for name, x in inputs.items()})
        assert_equal(alone, output[[window]])


@each_decoding
@pytest.mark.parametrize("patch_len", [1, 4])
def test_without_the_transformer_the_forecast_is_the_linear_skip(decoding, patch_len):
    network, inputs = build(decoding=decoding, patch_len=patch_len), draw()
    for parameter in network.transformer.output.parameters():
        torch.nn.init.zeros_(parameter)
    weight, bias = (p.detach().numpy() for p in network.skip.parameters())
    context, observed = inputs["context"].numpy(), inputs["observed"].numpy()
    output = forecast(network, inputs).numpy()
    for window, channel in np.ndindex(3, 2):
        x, known = context[window, :, channel], observed[window, :, channel]
        mean, std = x[known].mean(), np.sqrt(x[known].var() + 1e-5)
        expected = (weight @ np.where(known, (x - mean) / std, 0) + bias) * std + mean
        np.testing.assert_allclose(output[window, :, channel], expected, atol=1e-10)


@each_decoding
def test_without_skip_and_transformer_the_forecast_is_the_mean(decoding):
    network, inputs = build(decoding=decoding, linear_skip="none"), draw()
    for parameter in network.transformer.output.parameters():
        torch.nn.init.zeros_(parameter)
    count = inputs["observed"].sum(dim=1, keepdim=True)
    mean = inputs["context"].sum(dim=1, keepdim=True) / count
    assert_equal(forecast(network, inputs), mean.expand(-1, 10, -1))


@each_decoding
@pytest.mark.parametrize("horizon", [10, 12])
def test_gradients_reach_every_parameter(decoding, horizon):
    network = build(decoding=decoding, horizon=horizon)
    target = draw_target(horizon=horizon)
    output = point(network, **draw(horizon=horizon), **teacher(target))
    (output - target).square().mean().backward()
    idle = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


def test_gradients_flow_through_free_running_forecasts():
    network = build(decoding="autoregressive")
    point(network, **draw()).square().mean().backward()
    idle = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


@each_decoding
def test_inputs_are_left_as_they_are(decoding):
    inputs = draw() | teacher(draw_target())
    copies = {name: x.clone() for name, x in inputs.items()}
    forecast(build(decoding=decoding), inputs)
    assert all(torch.equal(x, copies[name]) for name, x in inputs.items())


# Categories and static features

CATEGORIES = {"cardinalities": [0, 4, 3], "static_cardinalities": [0, 6]}


def draw_categories():
    """Return inputs whose features are categories where `CATEGORIES` has it so; none unknown."""
    random, inputs = torch.Generator().manual_seed(3), draw(static=2)
    for name, columns in (
        ("past_features", {1: 4, 2: 3}),
        ("future_features", {1: 4}),
        ("static_features", {1: 6}),
    ):
        for column, n in columns.items():
            shape = inputs[name].shape[:-1]
            inputs[name][..., column] = torch.randint(1, n, shape, generator=random).double()
    return inputs


def embed_by_hand(x, tables):
    """Put vectors in the place of categories, step by step."""
    rows = []
    for row in x.flatten(0, -2).tolist():
        new = []
        for column, value in enumerate(row):
            table = tables.get(column)
            new += [value] if table is None else table[int(value)].tolist()
        rows.append(new)
    return torch.tensor(rows, dtype=x.dtype).unflatten(0, x.shape[:-1])


@each_decoding
@pytest.mark.parametrize("patch_len", [1, 4])
@pytest.mark.parametrize("taught", [True, False])
def test_categories_are_the_numbers_of_their_vectors(decoding, patch_len, taught):
    network = build(decoding=decoding, patch_len=patch_len, **CATEGORIES)
    numeric = build(
        decoding=decoding,
        patch_len=patch_len,
        cardinalities=[0] * (1 + 2 + 2),
        num_future_features=1 + 2,
        static_cardinalities=[0] * (1 + 3),
    )
    state = network.state_dict()
    tables = {name: state.pop(name) for name in list(state) if name.startswith("embed_")}
    numeric.load_state_dict(state)
    inputs = draw_categories()
    steps = {column: tables[f"embed_features.tables.{column}.weight"] for column in (1, 2)}
    static = {1: tables["embed_static.tables.1.weight"]}
    by_hand = {
        "past_features": embed_by_hand(inputs["past_features"], steps),
        "future_features": embed_by_hand(inputs["future_features"], steps),
        "static_features": embed_by_hand(inputs["static_features"], static),
    }
    truth = teacher(draw_target()) if taught else {}
    assert_equal(forecast(network, inputs, **truth), forecast(numeric, inputs, **by_hand, **truth))


@each_decoding
def test_static_features_stand_beside_every_step(decoding):
    settings = {"decoding": decoding, "patch_len": 1}
    network = build(
        **settings, cardinalities=[0, 0], num_future_features=2, static_cardinalities=[0, 0]
    )
    constant = build(
        **settings, cardinalities=[0] * 4, num_future_features=4, static_cardinalities=[]
    )
    constant.load_state_dict(network.state_dict())
    inputs = draw(past=2, static=2)
    repeated = {"static_features": inputs["static_features"][:, :0]}
    for name in ("past_features", "future_features"):
        static = inputs["static_features"][:, None].expand(-1, inputs[name].size(1), -1)
        repeated[name] = torch.cat([inputs[name], static], dim=-1)
    assert_equal(forecast(network, inputs), forecast(constant, inputs, **repeated))


@each_decoding
@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("embed_features.tables.1", ["past_features", "future_features"]),
        ("embed_features.tables.2", ["past_features"]),
        ("embed_static.tables.1", ["static_features"]),
    ],
)
def test_unknown_categories_tell_nothing(decoding, table, names):
    network, known = build(decoding=decoding, **CATEGORIES), draw_categories()
    unknown = {name: known[name].clone() for name in names}
    for x in unknown.values():
        x[..., int(table[-1])] = 0
    with_known, with_unknown = forecast(network, known), forecast(network, known, **unknown)
    assert (with_known - with_unknown).abs().amax(dim=(1, 2)).min() > 1e-4
    torch.nn.init.zeros_(network.get_submodule(table).weight)  # as if there were no such feature
    assert torch.equal(forecast(network, known), with_unknown)


@each_decoding
@pytest.mark.parametrize("taught", [True, False])
def test_gradients_reach_every_category_but_the_unknown_one(decoding, taught):
    network = build(decoding=decoding, linear_skip="none", **CATEGORIES)
    inputs, target = draw_categories(), draw_target()
    inputs["past_features"][0, :, 1:] = 0
    inputs["static_features"] = torch.tensor([[0.0, 0], [1, 1], [2, 5]], dtype=torch.float64)
    output = point(network, **inputs, **(teacher(target) if taught else {}))
    (output - target).square().mean().backward()
    used = {
        "embed_features.tables.1": {1, 2, 3},
        "embed_features.tables.2": {1, 2},
        "embed_static.tables.1": {1, 5},
    }
    for name, categories in used.items():
        gradient = network.get_submodule(name).weight.grad
        assert set(gradient.any(dim=1).nonzero().ravel().tolist()) == categories
    idle = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.any()]
    assert idle == []


@each_decoding
def test_future_categories_change_no_earlier_token(decoding):
    network, inputs = build(decoding=decoding, **CATEGORIES), draw_categories()
    before = forecast(network, inputs)
    for step in range(10):
        changed = inputs["future_features"].clone()
        changed[:, step, 1] = changed[:, step, 1] % 3 + 1
        after = forecast(network, inputs, future_features=changed)
        token = step // 4 * 4
        assert torch.equal(before[:, :token], after[:, :token])
        assert (before[:, token:] != after[:, token:]).all()


@each_decoding
@pytest.mark.parametrize("joint", [True, False])
def test_without_categories_the_weights_are_those_of_the_transformer(decoding, joint):
    network = build(decoding=decoding, static_cardinalities=[], num_channels=1 + joint)
    parts = {name.split(".")[0] for name in network.state_dict()}
    assert parts == {"transformer", "skip"} | ({"queries"} if decoding == "parallel" else set())
    plain = network.transformer.encoder_embedding.linear.in_features
    assert plain == 4 * (1 + joint + 3)


def test_training_may_begin_at_the_linear_skip_alone():
    network, inputs = build(zero_output=True), draw()
    untrained = forecast(network, inputs)
    network.transformer.decoder_norm.bias.data += 1  # what is before a 0 does not count
    assert torch.equal(forecast(network, inputs), untrained)
    network.skip.bias.data += 1
    assert not torch.allclose(forecast(network, inputs), untrained)


def test_unknown_decoding_is_refused():
    with pytest.raises(ValueError, match="'sideways'"):
        build(decoding="sideways")


def test_patches_must_fill_the_context():
    with pytest.raises(ValueError, match=r"context_length=24 .*patch_len=5"):
        build(patch_len=5)


def test_contexts_of_any_number_of_tokens():
    network = build(context_length=6000, patch_len=1, d_model=2, num_heads=1, num_layers=1)
    values = torch.zeros(1, 6000, 2, dtype=torch.float64)
    future = torch.zeros(1, 10, 2, dtype=torch.float64)
    past = torch.zeros(1, 6000, 3, dtype=torch.float64)
    static = torch.zeros(1, 1, dtype=torch.float64)
    with torch.inference_mode():
        forecast = network(values, torch.ones_like(values, dtype=torch.bool), past, future, static)
    assert forecast.shape == (1, 10, 2, 1)


# Heads


HEADS = ("point", "quantile", "normal", "student_t", "negative_binomial")
LEVELS = (0.1, 0.25, 0.5, 0.9)
each_head = pytest.mark.parametrize("head", HEADS)


def build_with(head, **overrides):
    return build(head=head, quantiles=LEVELS if head == "quantile" else (), **overrides)


def counts(inputs):
    """Return inputs whose context holds counts."""
    return {**inputs, "context": inputs["context"].mul(3).abs().round()}


@each_decoding
@each_head
@pytest.mark.parametrize("channels", [1, 2])
def test_a_head_has_its_parameters_at_every_step(decoding, head, channels):
    network = build_with(head, decoding=decoding, num_channels=channels)
    inputs, target = counts(draw(channels=channels)), draw_target(channels=channels)
    num_parameters = {"point": 1, "quantile": 4, "student_t": 3}.get(head, 2)
    for given in ({}, teacher(target)):
        parameters = network(**inputs, **given)
        assert parameters.shape == (3, 10, channels, num_parameters)
        assert parameters.isfinite().all()
    assert network.sample(**inputs, num_samples=5).shape == (3, 5, 10, channels)


@each_head
@pytest.mark.parametrize("patch_len", [1, 4, 12])
def test_every_head_is_decoded_alike_freely_through_the_cache_and_from_its_own_points(
    head, patch_len
):
    network = build_with(head, decoding="autoregressive", patch_len=patch_len)
    inputs = counts(draw())
    recomputed = network(**inputs).detach()  # gradients rule the cache out
    with torch.no_grad():
        cached = network(**inputs)
        on_itself = network(**inputs, **teacher(network.head.point(cached)))
    torch.testing.assert_close(cached, recomputed, rtol=0, atol=1e-12)
    torch.testing.assert_close(on_itself, cached, rtol=0, atol=1e-10)


@each_head
@each_decoding
def test_the_linear_skip_moves_the_location_alone(head, decoding):
    network, inputs = build_with(head, decoding=decoding, patch_len=12), counts(draw())
    with torch.no_grad():
        before = network(**inputs)
        network.skip.bias += 0.5
        after = network(**inputs)
    assert (after[..., 0] != before[..., 0]).all()
    if head == "quantile":
        assert_equal(after.diff(), before.diff())
    else:
        assert_equal(after[..., 1:], before[..., 1:])


# Sample paths


def sample(network, inputs, num_samples, seed=0):
    torch.manual_seed(seed)
    return network.sample(**inputs, num_samples=num_samples)


@each_decoding
def test_paths_of_points_are_the_forecast(decoding):
    network, inputs = build(decoding=decoding), draw()
    paths = sample(network, inputs, 3)
    assert_equal(paths, forecast(network, inputs)[:, None].expand_as(paths))


@each_decoding
@each_head
def test_paths_are_drawn_again_from_the_same_seed_alone(decoding, head):
    network, inputs = build_with(head, decoding=decoding), counts(draw())
    paths = sample(network, inputs, 4)
    assert torch.equal(sample(network, inputs, 4), paths)
    if head != "point":
        assert not torch.equal(sample(network, inputs, 4, seed=1), paths)
        assert not torch.equal(paths[:, 0], paths[:, 1])


@pytest.mark.parametrize("patch_len", [1, 4, 12])
def test_paths_together_are_the_paths_one_by_one(patch_len):
    """Path m of window b adds its own shift to each value, and so differs from all others."""
    network = build_with("normal", decoding="autoregressive", patch_len=patch_len)
    inputs, num_paths = draw(), 5
    inputs["observed"][1, :9] = False
    shifts = torch.randn(3, num_paths, dtype=torch.float64)
    calls = []
    network.head.sample = lambda parameters: (
        calls.append(len(parameters)) or network.head.point(parameters) + shifts_now
    )
    shifts_now = shifts.view(-1, 1, 1, 1)
    together = sample(network, inputs, num_paths)
    assert set(calls) == {3 * num_paths}
    for b in range(3):
        window = {name: x[[b]] for name, x in inputs.items()}
        for m in range(num_paths):
            shifts_now = shifts[b, m]
            assert_equal(together[[b], m], sample(network, window, 1)[:, 0])


def test_each_path_is_fed_its_own_values():
    """Taught its own values, the network says of each step what the path was drawn from."""
    network = build_with("normal", decoding="autoregressive", instance_norm=False)
    inputs = draw(batch=1)
    inputs["observed"][:, :9] = False  # tokens that no path may attend to
    drawn_from = []
    draw_as_before = network.head.sample
    network.head.sample = lambda parameters: (
        drawn_from.append(parameters) or draw_as_before(parameters)
    )
    paths = sample(network, inputs, 3)[0]  # (M, H, C)
    parameters = torch.cat(drawn_from, dim=1).flatten(1, 2)[:, :10]
    for path, expected in zip(paths, parameters, strict=True):
        with torch.no_grad():
            taught = network(**inputs, **teacher(path[None]))
        assert_equal(taught[0], expected)


def test_the_context_is_encoded_once_for_all_paths():
    network, inputs = build_with("normal", decoding="autoregressive"), draw()
    batches = []
    for layer in network.transformer.encoder_layers:
        layer.register_forward_hook(lambda *call: batches.append(len(call[-1])))
    sample(network, inputs, 50)
    assert batches == [3]


def test_paths_have_no_gradient_and_need_no_caller_who_says_so():
    network, inputs = build_with("normal", decoding="autoregressive"), draw()
    assert torch.is_grad_enabled()
    paths = sample(network, inputs, 2)
    assert not paths.requires_grad
    with torch.no_grad():
        assert torch.equal(sample(network, inputs, 2), paths)


@pytest.mark.parametrize("slope", [0.0, 0.9])
def test_paths_of_a_linear_network_are_those_of_the_autoregression(slope):
    """y_t = slope y_t-1 + e_t from y = 3: its mean is 3 slope^h, its variance a geometric sum."""
    network = build_with(
        "normal",
        decoding="autoregressive",
        patch_len=1,
        num_channels=1,
        horizon=6,
        cardinalities=(),
        num_future_features=0,
        static_cardinalities=(),
        instance_norm=False,
        linear_skip="none",
    )
    network.head.parameters = lambda raw, mean, std: raw  # location and scale as they are
    last = []
    network.transformer.decode_next = lambda token, cache, position: (
        last.append(token) or (torch.cat([slope * token, torch.ones_like(token)], dim=-1))
    )
    inputs = draw(batch=1, horizon=6, channels=1, past=0, future=0, static=0)
    inputs["context"][:, -1], inputs["observed"][:] = 3.0, True
    count = 20_000
    paths = sample(network, inputs, count)[0, :, :, 0]  # (M, H)
    assert (last[0] == 3).all()
    steps = np.arange(1, 7)
    variance = np.cumsum(slope ** (2.0 * (steps - 1)))
    error = 5 * np.sqrt(variance / count)
    assert (abs(paths.mean(dim=0).numpy() - 3 * slope**steps) < error).all()
    np.testing.assert_allclose(paths.var(dim=0).numpy(), variance, rtol=0.05)
    lagged = np.corrcoef(paths.T.numpy())[0, 1]
    assert lagged == pytest.approx(slope / np.sqrt(1 + slope**2), abs=0.03)


def test_steps_decoded_at_once_are_drawn_independently():
    network, inputs = build_with("normal"), draw(batch=1)
    paths = sample(network, inputs, 4000)[0].flatten(1)  # (M, H*C)
    correlation = np.corrcoef(paths.T.numpy())
    assert abs(correlation - np.eye(20)).max() < 0.1
