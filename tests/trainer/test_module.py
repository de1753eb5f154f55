"""The loss, the learning rate, and training with Lightning on a tiny problem."""

import itertools
import math

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback, Trainer
from torch.utils.data import DataLoader

from tsformer.data.windows import WindowBatch
from tsformer.nn import ForecastNetwork
from tsformer.nn.heads import PointHead, make_head
from tsformer.trainer.module import (
    ForecastModule,
    learning_rate_factor,
    masked_loss,
    spectral_loss,
    weight_groups,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec"),  # Lightning's own use of torch
]

CONTEXT, HORIZON = 24, 8
NUMPY_LOSSES = {
    "l1": np.abs,
    "huber": lambda e: np.where(np.abs(e) < 1, e**2 / 2, np.abs(e) - 0.5),
    "mse": np.square,
}
each_loss = pytest.mark.parametrize("loss", NUMPY_LOSSES)


def point_loss(loss, forecast, target, observed):
    return masked_loss(PointHead(), loss, forecast[..., None], target, observed)


@pytest.fixture
def triple():
    """Return forecast, target and what of the target is observed."""
    random = torch.Generator().manual_seed(0)
    forecast, target = torch.randn(2, 4, 7, 3, generator=random, dtype=torch.float64) * 2
    return forecast, target, torch.rand(4, 7, 3, generator=random) < 0.6


@each_loss
def test_loss_is_the_mean_over_observed_steps(loss, triple):
    forecast, target, observed = triple
    error = (forecast - target).numpy()[observed.numpy()]
    expected = NUMPY_LOSSES[loss](error).mean()
    assert point_loss(loss, *triple).item() == pytest.approx(expected, rel=1e-12)


@each_loss
def test_loss_has_no_gradient_on_missing_steps(loss, triple):
    forecast, target, observed = triple
    forecast.requires_grad_()
    point_loss(loss, forecast, target, observed).backward()
    assert (forecast.grad[~observed] == 0).all()
    assert (forecast.grad[observed] != 0).all()


def test_the_spectral_loss_is_that_of_the_discrete_fourier_transform(triple):
    forecast, target, observed = triple
    error = np.where(observed, forecast - target, 0.0)
    spectrum = np.abs(np.fft.rfft(error, axis=1)) / np.sqrt(7)
    expected = spectrum.mean() / observed.double().mean().item()
    assert spectral_loss(*triple).item() == pytest.approx(expected, rel=1e-5)
    missing = forecast.where(observed, 1e6)
    assert spectral_loss(missing, target, observed) == spectral_loss(*triple)
    assert spectral_loss(target, target, observed) == 0


def test_windows_without_observed_steps_leave_the_spectral_loss_as_it_is(triple):
    forecast, target, _ = triple
    half = torch.zeros_like(forecast, dtype=torch.bool)
    half[:2] = True
    whole = spectral_loss(forecast[:2], target[:2], half[:2])
    assert spectral_loss(forecast, target, half).item() == pytest.approx(whole.item())


@pytest.mark.parametrize("length", [0, 4])
def test_the_spectral_loss_of_nothing_is_zero_with_a_gradient(triple, length):
    forecast, target, observed = (x[:length] for x in triple)
    forecast = forecast.clone().requires_grad_()
    value = spectral_loss(forecast, target, torch.zeros_like(observed))
    value.backward()
    assert value.item() == 0
    assert (forecast.grad == 0).all()


@pytest.mark.filterwarnings("ignore:.*trainer. reference is not registered")
def test_the_spectral_loss_is_a_part_of_the_loss():
    batch = sine_batch(0)
    losses = {}
    for part in (0.0, 0.25, 1.0):
        module = build(spectral_loss=part).eval()
        losses[part] = module.training_step(batch, 0).item()
    assert losses[0.25] == pytest.approx(0.75 * losses[0.0] + 0.25 * losses[1.0])
    assert losses[1.0] != pytest.approx(losses[0.0], rel=0.01)


@each_loss
def test_loss_of_nothing_is_zero(loss, triple):
    forecast, target, observed = triple
    forecast.requires_grad_()
    value = point_loss(loss, forecast, target, torch.zeros_like(observed))
    value.backward()
    assert value.item() == 0
    assert (forecast.grad == 0).all()


@pytest.mark.parametrize("name", ["quantile", "normal", "student_t", "negative_binomial"])
def test_loss_of_a_distribution_is_its_heads_over_observed_steps(name, triple):
    head = make_head(name, (0.1, 0.5, 0.9))
    location, target, observed = triple
    target = target.abs().round()
    raw = location[..., None].repeat(1, 1, 1, head.num_parameters).requires_grad_()
    parameters = head.parameters(raw, torch.zeros(()), torch.ones(()))
    # A point's loss has no say; what is not observed has neither loss nor gradient.
    loss = masked_loss(head, "mse", parameters, target.where(observed, 0.0), observed)
    expected = head.loss(parameters, target).detach().numpy()[observed.numpy()].mean()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    loss.backward()
    assert (raw.grad[~observed] == 0).all()
    assert (raw.grad[observed] != 0).any(dim=-1).all()


def factors(total, **settings):
    factor = learning_rate_factor(total_steps=total, **settings)
    return [factor(step) for step in range(total + 1)]


def test_cosine_warms_up_then_falls_to_its_end():
    values = factors(100, name="cosine", warmup_fraction=0.1, min_lr_ratio=0.05)
    assert values[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert values[10] == 1
    assert values[55] == pytest.approx((1 + 0.05) / 2)
    assert all(a > b for a, b in itertools.pairwise(values[10:]))
    assert values[100] == pytest.approx(0.05)
    assert values[99] == pytest.approx(0.05, abs=1e-3)


def test_cosine_stays_at_its_end():
    factor = learning_rate_factor(
        name="cosine", warmup_fraction=0.0, min_lr_ratio=0.2, total_steps=10
    )
    assert factor(0) == 1
    assert factor(10) == factor(1000) == pytest.approx(0.2)


def test_constant_warms_up_then_stays():
    values = factors(20, name="constant", warmup_fraction=0.2, min_lr_ratio=0.0)
    assert values[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert set(values[4:]) == {1.0}


@pytest.mark.parametrize("name", ["cosine", "constant"])
@pytest.mark.parametrize("warmup_fraction", [0.0, 0.05, 0.9])
@pytest.mark.parametrize("total", [1, 2, 7])
def test_short_trainings_have_positive_rates(name, warmup_fraction, total):
    values = factors(total, name=name, warmup_fraction=warmup_fraction, min_lr_ratio=0.1)
    assert all(0 < value <= 1 for value in values)


def build(decoding="parallel", linear_skip="none", **overrides):
    torch.manual_seed(0)
    network = {
        "context_length": CONTEXT,
        "horizon": HORIZON,
        "num_channels": 1,
        "cardinalities": [],
        "num_future_features": 0,
        "static_cardinalities": [],
        "d_model": 16,
        "num_heads": 2,
        "d_ff": 32,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "patch_len": 4,
        "decoding": decoding,
        "instance_norm": False,
        "linear_skip": linear_skip,
    }
    settings = {
        "loss": "mse",
        "ema_decay": None,
        "optimizer": {"name": "adamw", "lr": 1e-2, "weight_decay": 0.0, "betas": (0.9, 0.999)},
        "scheduler": {"name": "cosine", "warmup_fraction": 0.1, "min_lr_ratio": 0.01},
    }
    return ForecastModule(network=network, **settings | overrides)


def sine_batch(seed, batch=32, missing=0.1):
    """Return windows of sines of period 12 and random phase."""
    random = torch.Generator().manual_seed(seed)
    phase = torch.rand(batch, 1, 1, generator=random) * 2 * math.pi
    steps = torch.arange(CONTEXT + HORIZON).reshape(1, -1, 1)
    values = torch.sin(steps * (2 * math.pi / 12) + phase)  # (B, L+H, 1)
    observed = torch.rand(values.shape, generator=random) >= missing
    values = values.where(observed, 0.0)
    return WindowBatch(
        context=values[:, :CONTEXT],
        observed=observed[:, :CONTEXT],
        past_features=torch.zeros(batch, CONTEXT, 0),
        future_features=torch.zeros(batch, HORIZON, 0),
        static_features=torch.zeros(batch, 0),
        target=values[:, CONTEXT:],
        target_observed=observed[:, CONTEXT:],
        series=torch.randint(3, (batch,), generator=random),
    )


def loader(*seeds):
    return DataLoader([sine_batch(seed) for seed in seeds], batch_size=None)


def build_trainer(tmp_path, **settings):
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return Trainer(accelerator="cpu", devices=1, default_root_dir=tmp_path, **quiet | settings)


@pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])
def test_a_sine_is_learnt(tmp_path, decoding):
    module, held_out = build(decoding), loader(100, 101)
    trainer = build_trainer(tmp_path, max_steps=200)
    before = trainer.validate(module, held_out, verbose=False)[0]
    trainer.fit(module, loader(*range(15)))
    after = trainer.validate(module, held_out, verbose=False)[0]
    assert after["val/mse"] < 0.2 * before["val/mse"]
    assert after["val/mae"] < 0.25


@pytest.mark.parametrize("optimizer", ["adamw", "adam"])
def test_the_learning_rate_follows_the_schedule(tmp_path, optimizer):
    settings = {"name": optimizer, "lr": 0.5, "weight_decay": 0.0, "betas": (0.8, 0.9)}
    module = build(optimizer=settings)
    trainer = build_trainer(tmp_path, max_steps=10)
    trainer.fit(module, loader(*range(5)))
    group = trainer.optimizers[0].param_groups[0]
    assert type(trainer.optimizers[0]).__name__.lower() == optimizer
    assert group["betas"] == (0.8, 0.9)
    assert group["lr"] == pytest.approx(0.5 * 0.01)


def test_the_skip_may_learn_at_a_rate_of_its_own(tmp_path):
    settings = {"name": "adamw", "lr": 0.5, "weight_decay": 0.1, "betas": (0.8, 0.9)}
    settings |= {"skip_lr": 0.25, "skip_weight_decay": 3.0}
    module = build(optimizer=settings, linear_skip="seasonal")
    trainer = build_trainer(tmp_path, max_steps=10)
    trainer.fit(module, loader(*range(5)))
    (optimizer,) = trainer.optimizers
    found = {
        weight: (group["initial_lr"], group["weight_decay"], group["lr"])
        for group in optimizer.param_groups
        for weight in group["params"]
    }
    assert set(found) == set(module.network.parameters())
    for name, weight in module.network.named_parameters():
        lr = 0.25 if name.startswith("skip.") else 0.5
        decay = 3.0 if name.startswith(("skip.patches", "skip.neighbours")) else 0.1
        assert found[weight] == (lr, decay, pytest.approx(0.01 * lr)), name


@pytest.mark.parametrize("linear_skip", ["seasonal", "full", "none"])
def test_all_weights_are_alike_where_the_skip_has_nothing_of_its_own(linear_skip):
    network = build(linear_skip=linear_skip).network
    groups = weight_groups(network, None, None)
    assert all(group.keys() == {"params"} for group in groups)
    assert all(group["params"] for group in groups)
    weights = [weight for group in groups for weight in group["params"]]
    assert len(weights) == len(set(weights)) == len(list(network.parameters()))


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_weights_stay_in_full_precision_whatever_is_trained_in(tmp_path, precision):
    module = build()
    trainer = build_trainer(tmp_path, max_steps=5, precision=precision, gradient_clip_val=1.0)
    before = [p.detach().clone() for p in module.parameters()]
    trainer.fit(module, loader(*range(5)))
    for old, new in zip(before, module.parameters(), strict=True):
        assert new.dtype == torch.float32
        assert new.isfinite().all()
        assert not torch.equal(old, new)


def test_compiling_changes_no_name_and_not_the_average(monkeypatch):
    compiled = []
    monkeypatch.setattr(ForecastNetwork, "compile", lambda network: compiled.append(network))
    plain, module = build(ema_decay=0.9), build(ema_decay=0.9, compile=True)
    assert compiled == [module.network]
    assert list(module.state_dict()) == list(plain.state_dict())


class WeightsOfEachStep(Callback):
    """Keeps the trained network's output weights before and after every step."""

    def __init__(self):
        self.weights = []

    def keep(self, module):
        weight = module.network.transformer.output.weight
        self.weights.append(weight.detach().clone().numpy())

    def on_train_start(self, trainer, module):
        self.keep(module)

    def on_train_batch_end(self, trainer, module, *args):
        self.keep(module)


def test_forecasts_come_from_the_moving_average_of_the_weights(tmp_path):
    module, seen = build(ema_decay=0.5), WeightsOfEachStep()
    build_trainer(tmp_path, max_steps=12, callbacks=[seen]).fit(module, loader(*range(6)))
    expected, *trained = seen.weights
    assert len(trained) == 12
    for step, weight in enumerate(trained, start=1):
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * weight
    averaged = module.averaged.transformer.output.weight.detach()
    np.testing.assert_allclose(averaged, expected, rtol=0, atol=1e-6)
    assert np.abs(averaged.numpy() - trained[-1]).max() > 1e-4

    batch = sine_batch(0)
    with torch.no_grad():
        assert torch.equal(module(batch), module.averaged(*batch.inputs))
        assert not torch.allclose(module(batch), module.network(*batch.inputs))


@pytest.mark.filterwarnings("ignore:.*trainer. reference is not registered")
def test_training_is_taught_with_the_target_and_validation_is_not():
    module, batch = build("autoregressive").eval(), sine_batch(0)
    changed = batch.target.clone()
    changed[:, 0] += 1  # the first token's forecast does not see it, the second's does
    with torch.no_grad():
        free_running = module(batch)
        assert torch.equal(free_running, module(batch._replace(target=changed)))
        teacher_forced = module.network(*batch.inputs, batch.target, batch.target_observed)
        head = module.network.head
        loss = masked_loss(head, "mse", teacher_forced, batch.target, batch.target_observed)
        assert module.training_step(batch, 0).item() == pytest.approx(loss.item())
    assert not torch.allclose(free_running, teacher_forced)


def test_validation_errors_are_those_of_free_running_forecasts(tmp_path):
    module, batches = build("autoregressive").eval(), [sine_batch(0), sine_batch(1, batch=5)]
    with torch.no_grad():
        points = [module.network.head.point(module(b)) for b in batches]
        pairs = zip(points, batches, strict=True)
        error = torch.cat([(p - b.target)[b.target_observed] for p, b in pairs]).numpy()
    trainer, data = build_trainer(tmp_path), DataLoader(batches, batch_size=None)
    mae, mse = np.abs(error).mean(), np.square(error).mean()
    expected = pytest.approx((mae, mse, mse), rel=1e-5)  # the loss is mse
    for _ in range(2):  # the second run starts from zero
        logged = trainer.validate(module, data, verbose=False)[0]
        assert (logged["val/mae"], logged["val/mse"], logged["val/loss"]) == expected


@pytest.mark.parametrize("ema_decay", [None, 0.9])
def test_checkpoints_load_as_plain_data(tmp_path, ema_decay):
    module, batch = build(ema_decay=ema_decay), sine_batch(100)
    trainer = build_trainer(tmp_path, max_steps=2)
    trainer.fit(module, loader(0, 1))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert checkpoint["hyper_parameters"]["network"]["context_length"] == CONTEXT
    loaded = ForecastModule.load_from_checkpoint(tmp_path / "last.ckpt")
    with torch.no_grad():
        assert torch.equal(loaded.eval()(batch), module.eval()(batch))


def test_metrics_are_no_weights():
    module = build()
    assert set(module.state_dict()) == {name for name, _ in module.named_parameters()}
