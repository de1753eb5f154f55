"""ForecastModule: a network with its loss, optimiser and free-running validation."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn
from torchmetrics import MeanMetric

from tsformer.data.windows import WindowBatch
from tsformer.metrics import ErrorSums
from tsformer.nn import ForecastNetwork
from tsformer.nn.heads import Head, PointHead

POINT_LOSSES: dict[str, Callable[..., Tensor]] = {
    "l1": F.l1_loss,
    "huber": F.huber_loss,
    "mse": F.mse_loss,
    "l1_mse": lambda x, y, reduction: (
        F.l1_loss(x, y, reduction=reduction) + F.mse_loss(x, y, reduction=reduction)
    ) / 2,
}


def masked_loss(
    head: Head,
    loss: str,
    parameters: Tensor,
    target: Tensor,
    observed: Tensor,
    horizon_weight: float = 0.0,
) -> Tensor:
    """Return the mean loss over observed target steps; 0 when nothing was observed.

    Args:
        head: of the network; all but `PointHead` have their own loss.
        loss: of a point: `l1`, `huber` (delta 1) or `mse`.
        parameters: (B, H, C, K).
        target: (B, H, C).
        observed: True where `target` is a measurement, (B, H, C).
    """
    if isinstance(head, PointHead):
        losses = POINT_LOSSES[loss](head.point(parameters), target, reduction="none")
    else:
        losses = head.loss(parameters, target)
    if horizon_weight:  # step h weighs h ** -horizon_weight
        weights = torch.arange(1, losses.size(1) + 1).to(losses) ** -horizon_weight
        losses = losses * (weights / weights.mean())[:, None]
    return losses.where(observed, 0.0).sum() / observed.sum().clamp(min=1)


def augmented(batch: WindowBatch, kind: str) -> WindowBatch:
    """Return windows that might have been: with noise, mixed, or without some frequencies."""
    context, target = batch.context, batch.target
    if kind == "jitter":
        return batch._replace(context=context + 0.1 * torch.randn_like(context))
    if kind == "mix":  # Zhang et al. 2018
        share = torch.distributions.Beta(0.3, 0.3).sample((len(context), 1, 1)).to(context)
        other = torch.randperm(len(context))
        mixed = [share * x + (1 - share) * x[other] for x in (context, target)]
        return batch._replace(context=mixed[0], target=mixed[1])
    if kind == "frequency":  # Chen et al. 2023, FrAug
        whole = torch.cat([context, target], dim=1)
        spectrum = torch.fft.rfft(whole, dim=1)
        lost = torch.rand(spectrum.shape, device=whole.device) < 0.1
        lost[:, 0] = False
        changed = torch.fft.irfft(spectrum.masked_fill(lost, 0), n=whole.size(1), dim=1)
        half = torch.rand(len(whole), 1, 1, device=whole.device) < 0.5
        whole = torch.where(half, changed, whole)
        length = context.size(1)
        return batch._replace(context=whole[:, :length], target=whole[:, length:])
    if kind == "mask":  # 10 % of the days are as if they were not observed
        days = torch.rand(len(context), context.size(1) // 24 + 1, 1, device=context.device) < 0.1
        lost = days.repeat_interleave(24, dim=1)[:, : context.size(1)]
        observed = batch.observed & ~lost
        return batch._replace(context=context.where(observed, 0.0), observed=observed)
    return batch


def spectral_loss(forecast: Tensor, target: Tensor, observed: Tensor) -> Tensor:
    """Return the mean absolute error of the spectrum over the horizon (Wang et al. 2025, FreDF).

    Steps of the horizon are correlated, their spectrum is less so.

    Args:
        forecast: (B, H, C).
        target: (B, H, C).
        observed: True where `target` is a measurement, (B, H, C); elsewhere the error counts as 0.
    """
    error = (forecast - target).where(observed, 0.0).float()  # half precision has no transform
    return torch.fft.rfft(error, dim=1, norm="ortho").abs().mean()


class ForecastModule(LightningModule):
    """Trains a `ForecastNetwork`; validates it by the forecasts it would give."""

    def __init__(
        self,
        *,
        network: dict[str, Any],
        num_groups: int,
        loss: str,
        spectral_loss: float = 0.0,
        ema_decay: float | None,
        optimizer: dict[str, Any],
        scheduler: dict[str, Any],
        compile: bool = False,
        swa_fraction: float = 0.0,
        scheduled_sampling: float = 0.0,
        horizon_weight: float = 0.0,
        augment: str = "none",
    ) -> None:
        """Build the network.

        All arguments are plain values, so that checkpoints load with `weights_only=True`.

        Args:
            network: arguments of `ForecastNetwork`.
            num_groups: groups of series that are forecast together, N.
            loss: of point forecasts; see `masked_loss`.
            spectral_loss: part of the loss that the function of this name takes.
            ema_decay: see `update_average`; None forecasts with the weights as they are.
            optimizer: fields of `OptimizerConfig`.
            scheduler: fields of `SchedulerConfig`.
            compile: compile the network that is trained; its weights keep their names.
        """
        super().__init__()
        self.save_hyperparameters()
        self.network = ForecastNetwork(**network)
        self.averaged = None if ema_decay is None else deepcopy(self.network).requires_grad_(False)
        if compile:
            self.network.compile()
        self.ema_decay = ema_decay
        self.loss = loss
        self.swa_fraction = swa_fraction
        self.scheduled_sampling = scheduled_sampling
        self.horizon_weight = horizon_weight
        self.augment = augment
        self.spectral_loss = spectral_loss
        self.optimizer_settings = optimizer
        self.scheduler_settings = scheduler
        channels = network["channel_attention"] or network["num_channels"]
        self.validation_errors = ErrorSums(num_groups, network["horizon"], channels)
        self.validation_loss = MeanMetric()

    @property
    def forecasting_network(self) -> ForecastNetwork:
        """The network that forecasts: with averaged weights, if they are averaged."""
        return self.averaged or self.network

    def forward(self, batch: WindowBatch) -> Tensor:
        """Forecast the batch's horizon, free-running, as parameters of the head, (B, H, C, K)."""
        return self.forecasting_network(*batch.inputs)

    def training_step(self, batch: WindowBatch, batch_idx: int) -> Tensor:
        """Return the loss; autoregressive decoding is taught with the true target."""
        batch = augmented(batch, self.augment)
        target, observed = batch.target, batch.target_observed
        if self.scheduled_sampling:  # by a first pass (Mihaylova & Martins 2019)
            share = self.scheduled_sampling * self.trainer.global_step / max(self.total_steps, 1)
            with torch.no_grad():
                first = self.network.head.point(self.network(*batch.inputs, target, observed))
            own = torch.rand(len(target), target.size(1), 1, device=target.device) < share
            target = torch.where(own | ~observed, first, target)
            observed = torch.ones_like(observed)
        parameters = self.network(*batch.inputs, target, observed)
        loss = self._loss(parameters, batch)
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: WindowBatch, batch_idx: int) -> None:
        """Take the new weights into the average."""
        if self.averaged is not None and self.ema_decay is not None:
            step = self.trainer.global_step
            if self.swa_fraction:  # the plain mean of the last steps (Izmailov et al. 2018)
                taken = max(step - round((1 - self.swa_fraction) * self.total_steps), 0)
                decay, step = taken / (taken + 1), 10**9
            else:
                decay = self.ema_decay
            update_average(self.averaged, self.network, decay=decay, step=step)

    def validation_step(self, batch: WindowBatch, batch_idx: int) -> None:
        """Add up the errors and the loss of free-running forecasts."""
        parameters = self(batch)
        point = self.network.head.point(parameters)
        self.validation_errors.update(point, batch.target, batch.target_observed, batch.series)
        self.validation_loss.update(self._loss(parameters, batch), batch.target_observed.sum())

    def on_validation_epoch_end(self) -> None:
        """Log the mean errors in scaled units."""
        errors = self.validation_errors.compute()
        self.validation_errors.reset()
        self.log("val/mae", errors.mae(), prog_bar=True)
        self.log("val/mse", errors.mse())
        self.log("val/loss", self.validation_loss.compute())
        self.validation_loss.reset()

    def _loss(self, parameters: Tensor, batch: WindowBatch) -> Tensor:
        head, truth = self.network.head, (batch.target, batch.target_observed)
        weight = self.horizon_weight if self.training else 0.0
        loss = masked_loss(head, self.loss, parameters, *truth, weight)
        if self.spectral_loss:
            spectral = spectral_loss(head.point(parameters), *truth)
            loss = (1 - self.spectral_loss) * loss + self.spectral_loss * spectral
        return loss

    def configure_optimizers(self) -> Any:
        """Return the optimiser with a learning rate that changes every step."""
        settings = dict(self.optimizer_settings)
        skip = {name: settings.pop(f"skip_{name}", None) for name in ("lr", "weight_decay")}
        skip = {name: value for name, value in skip.items() if value is not None}
        kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[settings.pop("name")]
        # One kernel for all weights. In mixed precision Lightning cannot clip its gradients.
        fused = self.trainer.precision == "32-true"
        parts: dict[bool, list[nn.Parameter]] = {False: [], True: []}
        for name, parameter in self.network.named_parameters():
            parts[bool(skip) and name.startswith("skip.")].append(parameter)
        groups: list[dict[str, Any]] = [{"params": parts[False]}]
        if parts[True]:
            groups.append({"params": parts[True], **skip})
        optimizer = kind(groups, fused=fused, **settings)
        total = max(int(self.trainer.estimated_stepping_batches), 1)
        self.total_steps = total
        schedule = learning_rate_factor(total_steps=total, **self.scheduler_settings)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def update_average(average: nn.Module, current: nn.Module, *, decay: float, step: int) -> None:
    """Move the weights of one network towards another's (Polyak & Juditsky 1992).

    average <- d x average + (1 - d) x current, where d = min(decay, (1 + step) / (10 + step)), so
    that the random first weights are soon forgotten.
    """
    decay = min(decay, (1 + step) / (10 + step))
    move = get_ema_multi_avg_fn(decay)  # all weights at once
    move(list(average.parameters()), list(current.parameters()), 0)


def learning_rate_factor(
    *, name: str, warmup_fraction: float, min_lr_ratio: float, total_steps: int
) -> Callable[[int], float]:
    """Return the function from step to the factor of the learning rate.

    The factor grows linearly over the warm-up; then it stays at 1 (`constant`), or falls along
    half a cosine to `min_lr_ratio` behind the last step (`cosine`; Loshchilov & Hutter 2017).

    Args:
        name: `cosine` or `constant`.
        warmup_fraction: part of all steps.
        min_lr_ratio: factor at the end.
        total_steps: steps of the whole training.
    """
    warmup = round(warmup_fraction * total_steps)

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if name == "constant":
            return 1.0
        progress = min((step - warmup) / max(total_steps - warmup, 1), 1.0)
        return min_lr_ratio + (1 - min_lr_ratio) * (1 + math.cos(math.pi * progress)) / 2

    return factor
