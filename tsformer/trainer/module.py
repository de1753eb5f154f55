"""ForecastModule: a network with its loss, optimiser and free-running validation."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
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
}


def masked_loss(
    head: Head, loss: str, parameters: Tensor, target: Tensor, observed: Tensor
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
    return losses.where(observed, 0.0).sum() / observed.sum().clamp(min=1)


def spectral_loss(forecast: Tensor, target: Tensor, observed: Tensor) -> Tensor:
    """Return the mean absolute error of the spectrum over the horizon (Wang et al. 2025, FreDF).

    Steps of the horizon are correlated, their spectrum is less so. As in `masked_loss`, the mean is
    over observed steps, and 0 when nothing was observed.

    Args:
        forecast: (B, H, C).
        target: (B, H, C).
        observed: True where `target` is a measurement, (B, H, C); elsewhere the error counts as 0.
    """
    error = (forecast - target).where(observed, 0.0).float()  # half precision has no transform
    if not len(error):  # of a rank without a share of the last batch; it has no transform
        return error.sum()
    spectrum = torch.fft.rfft(error, dim=1, norm="ortho").abs()
    return spectrum.mean() * (observed.numel() / observed.sum().clamp(min=1))


class DivergedError(ArithmeticError):
    """The loss of a batch is not finite.

    Attributes:
        groups: of the windows at fault, by their numbers.
        loss: infinite or NaN.
    """

    def __init__(self, groups: list[int], loss: float) -> None:
        """Remember both."""
        super().__init__(f"the loss is {loss}")
        self.groups = groups
        self.loss = loss


class ForecastModule(LightningModule):
    """Trains a `ForecastNetwork`; validates it by the forecasts it would give."""

    def __init__(
        self,
        *,
        network: dict[str, Any],
        loss: str,
        spectral_loss: float = 0.0,
        ema_decay: float | None,
        optimizer: dict[str, Any],
        scheduler: dict[str, Any],
        compile: bool = False,
        seed: int = 0,
    ) -> None:
        """Build the network.

        All arguments are plain values, so that checkpoints load with `weights_only=True`.

        Args:
            network: arguments of `ForecastNetwork`.
            loss: of point forecasts; see `masked_loss`.
            spectral_loss: weight of the spectral loss, 0 to 1; the rest is the ordinary loss.
            ema_decay: see `update_average`; None forecasts with the weights as they are.
            optimizer: fields of `OptimizerConfig`.
            scheduler: fields of `SchedulerConfig`.
            compile: compile the network that is trained; its weights keep their names.
            seed: of dropout.
        """
        super().__init__()
        self.save_hyperparameters(logger=False)  # which get all settings
        self.network = ForecastNetwork(**network)
        self.averaged = None if ema_decay is None else deepcopy(self.network).requires_grad_(False)
        if compile:
            self.network.compile()
        self.ema_decay = ema_decay
        self.loss = loss
        self.spectral_loss = spectral_loss
        self.optimizer_settings = optimizer
        self.scheduler_settings = scheduler
        self.seed = seed
        self.validation_errors = ErrorSums(1, network["horizon"], network["num_channels"])
        self.validation_loss = MeanMetric()

    @property
    def forecasting_network(self) -> ForecastNetwork:
        """The network that forecasts: with averaged weights, if they are averaged."""
        return self.averaged or self.network

    def forward(self, batch: WindowBatch) -> Tensor:
        """Forecast the batch's horizon, free-running, as parameters of the head, (B, H, C, K)."""
        return self.forecasting_network(*batch.inputs)

    def configure_model(self) -> None:
        """Shard the weights over the ranks, if that is the trainer's strategy (FSDP)."""
        if self.device_mesh is None:
            return
        from torch.distributed.fsdp import FSDPModule, fully_shard

        # As a whole: decoding uses weights of layers without calling the layers.
        for network in filter(None, (self.network, self.averaged)):
            if not isinstance(network, FSDPModule):
                fully_shard(network, mesh=self.device_mesh["data_parallel"])

    def on_train_batch_start(self, batch: WindowBatch, batch_idx: int) -> None:
        """Let dropout follow from seed, rank and step, so that a training can go on anywhere."""
        mixed = np.random.SeedSequence([self.seed, self.global_rank, batch_idx])
        torch.manual_seed(int(mixed.generate_state(1)[0]))

    def training_step(self, batch: WindowBatch, batch_idx: int) -> Tensor:
        """Return the loss; autoregressive decoding is taught with the true target.

        Raises:
            DivergedError: the loss is not finite; no weight has moved since.
        """
        parameters = self.network(*batch.inputs, batch.target, batch.target_observed)
        loss = self._loss(parameters, batch)
        if not loss.isfinite():
            raise DivergedError(self._name_bad(parameters, batch), float(loss.detach()))
        self.log("train/loss", loss, prog_bar=True)
        return loss

    def _name_bad(self, parameters: Tensor, batch: WindowBatch) -> list[int]:
        """Return the groups of the windows whose loss is not finite."""
        windows = WindowBatch(*(part.split(1) for part in batch))
        return [
            int(window.series)
            for window, own in zip(
                map(WindowBatch._make, zip(*windows, strict=True)), parameters.split(1), strict=True
            )
            if not self._loss(own, window).isfinite()
        ]

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Move the weights, and take the new ones into the average."""
        super().optimizer_step(*args, **kwargs)
        if self.averaged is not None and self.ema_decay is not None:
            step = self.trainer.global_step + 1  # this one is counted later
            update_average(self.averaged, self.network, decay=self.ema_decay, step=step)

    def validation_step(self, batch: WindowBatch, batch_idx: int) -> None:
        """Add up the errors and the loss of free-running forecasts."""
        parameters = self(batch)
        point = self.network.head.point(parameters)
        together = torch.zeros_like(batch.series)
        self.validation_errors.update(point, batch.target, batch.target_observed, together)
        self.validation_loss.update(self._loss(parameters, batch), batch.target_observed.sum())

    def on_validation_epoch_end(self) -> None:
        """Log the mean errors in scaled units."""
        errors = self.validation_errors.compute()
        self.validation_errors.reset()
        # Sums over all ranks, and so the same on each; Lightning warns if it is not to sync them.
        self.log("val/mae", errors.mae(), prog_bar=True, sync_dist=True)
        self.log("val/mse", errors.mse(), sync_dist=True)
        self.log("val/loss", self.validation_loss.compute(), sync_dist=True)
        self.validation_loss.reset()

    def _loss(self, parameters: Tensor, batch: WindowBatch) -> Tensor:
        head, truth = self.network.head, (batch.target, batch.target_observed)
        loss = masked_loss(head, self.loss, parameters, *truth)
        if self.spectral_loss:
            spectral = spectral_loss(head.point(parameters), *truth)
            loss = (1 - self.spectral_loss) * loss + self.spectral_loss * spectral
        return loss

    def configure_optimizers(self) -> Any:
        """Return the optimiser with a learning rate that changes every step."""
        settings = dict(self.optimizer_settings)
        skip = {name: settings.pop(name, None) for name in ("skip_lr", "skip_weight_decay")}
        kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[settings.pop("name")]
        # One kernel for all weights. In mixed precision Lightning cannot clip its gradients.
        fused = self.trainer.precision == "32-true"
        groups = weight_groups(self.network, **skip)
        optimizer = kind(groups, fused=fused, **settings)
        total = max(int(self.trainer.estimated_stepping_batches), 1)
        schedule = learning_rate_factor(total_steps=total, **self.scheduler_settings)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }


def weight_groups(
    network: nn.Module, skip_lr: float | None, skip_weight_decay: float | None
) -> list[dict[str, Any]]:
    """Return the groups of an optimiser: the linear skip may have its own rate and decay.

    The seasonal skip's map of the latest steps has its rate, but decays as all else: a strong decay
    serves what all positions of a season share, and harms what the last hours say of the next ones.

    Args:
        network: a `ForecastNetwork`.
        skip_lr: learning rate of the linear skip; that of the rest when None.
        skip_weight_decay: that of the rest when None.
    """
    rest: list[nn.Parameter] = []
    skip: list[nn.Parameter] = []
    latest: list[nn.Parameter] = []
    for name, weight in network.named_parameters():
        is_latest, is_skip = name.startswith("skip.latest."), name.startswith("skip.")
        (latest if is_latest else skip if is_skip else rest).append(weight)
    rate = {} if skip_lr is None else {"lr": skip_lr}
    decay = {} if skip_weight_decay is None else {"weight_decay": skip_weight_decay}
    groups: list[dict[str, Any]] = [
        {"params": rest},
        {"params": skip, **rate, **decay},
        {"params": latest, **rate},
    ]
    return [group for group in groups if group["params"]]


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
    half a cosine to `min_lr_ratio` after the last step (`cosine`; Loshchilov & Hutter 2017).

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
