"""The settings of a fit, their types and limits; `conf/` holds their values.

Hydra composes a plain dict from `conf/`, `FitConfig` checks it, and the rest of the code sees
only these classes. A saved model keeps its `ModelConfig` as JSON, beside what prediction needs.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import inf
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from tsformer.settings import (
    Config,
    Level,
    Names,
    OneOrMore,
    Positive,
    Rate,
    Sha256,
    TimeZone,
    parse,
)

# The first models said true or false.
Skip = Annotated[
    Literal["full", "individual", "seasonal", "none"],
    BeforeValidator(lambda x: {True: "full", False: "none"}[x] if isinstance(x, bool) else x),
]
# Tokens x d_model: their table of positions is in no file, so that no file's size bounds it.
_MAX_POSITIONS = 2**24
Split = (
    Annotated[list[float], Field(min_length=3, max_length=3)]
    | Annotated[list[str], Field(min_length=2, max_length=3)]
)


class DatasetConfig(Config):
    """Which table, the parts of its columns, its split and scaling; see `conf/dataset/`."""

    name: str
    path: str
    source: str | None = None
    url: str | None = None
    sha256: Sha256 | None = None
    licence: str | None = None
    time_column: str | None = None
    id_column: str | None = None
    target: Names | None = None
    past_covariates: Names = []
    future_covariates: Names = []
    static_covariates: Names = []
    categorical: Names = []
    weight_column: str | None = None
    freq: str | None = None
    regular: bool = True
    duplicates: Literal["error", "first", "mean", "sum"] = "error"
    short_series: Literal["pad", "drop"] = "pad"
    time_zone: TimeZone | None = None
    calendar: bool = True
    holidays: str | None = None
    unit: str | None = None
    split: Split
    suggested: dict[str, int | None] = {}

    @model_validator(mode="after")
    def _check_split_and_calendar(self) -> Self:
        if self.holidays is not None and not self.calendar:
            raise ValueError("holidays are a part of the calendar: set calendar=true")
        if isinstance(self.split[0], str):
            return self
        total = sum(self.split)
        valid = min(self.split) >= 0 and (0 < total <= 1 + 1e-9 or 3 <= total < inf)
        if not valid:
            raise ValueError(
                f"split={self.split} is neither three fractions that sum to at most 1 nor three "
                "numbers of steps"
            )
        return self


class ModelConfig(Config):
    """The network; see `tsformer.nn.ForecastNetwork` for the keys.

    What has a default here was not there when the first models were saved.
    """

    d_model: int = Positive
    num_heads: int = Positive
    d_ff: int = Positive
    num_layers: int = Field(gt=0, le=1000)
    num_decoder_layers: int = Field(gt=0, le=1000)
    dropout: float = Rate
    attention_dropout: float = Rate
    patch_len: int = Positive
    decoding: Literal["parallel", "autoregressive"]
    channels: Literal["independent", "joint"]
    instance_norm: bool
    linear_skip: Skip
    head: Literal["point", "quantile", "normal", "student_t", "negative_binomial"] = "point"
    quantiles: Annotated[list[Level], Field(max_length=1000, fail_fast=True), OneOrMore] = []
    zero_output: bool = False
    instance_center: Literal["mean", "last"] = "mean"
    activation_checkpointing: bool = False
    compile: bool = False

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.d_model % self.num_heads:
            raise ValueError(
                f"d_model={self.d_model} is not divisible by num_heads={self.num_heads}"
            )
        return self

    @model_validator(mode="after")
    def _check_quantiles(self) -> Self:
        if any(b - a < 0.9e-4 for a, b in pairwise(self.quantiles)):
            raise ValueError(
                f"quantiles={self.quantiles} must rise by 0.0001 at least, such as [0.1, 0.5, 0.9]"
            )
        if self.head == "quantile" and not set(self.quantiles) - {0.5}:
            raise ValueError("head=quantile needs quantiles beside 0.5, such as [0.1, 0.5, 0.9]")
        return self


def check_lengths(context_length: int, horizon: int, model: ModelConfig) -> None:
    """Refuse lengths that are no multiple of a patch, or more tokens than have a position.

    Raises:
        ValueError: says which length would do.
    """
    patch_len = model.patch_len
    if context_length % patch_len:
        nearest = max(round(context_length / patch_len), 1) * patch_len
        raise ValueError(
            f"context_length={context_length} is not a multiple of model.patch_len={patch_len}; "
            f"the nearest multiple: {nearest}"
        )
    tokens = max(context_length, horizon) // patch_len
    if tokens * model.d_model > _MAX_POSITIONS:
        raise ValueError(
            f"context_length={context_length} and horizon={horizon} make {tokens:,} tokens, which "
            f"are too many for model.d_model={model.d_model}: raise model.patch_len"
        )


class ScalingConfig(Config):
    """How targets are scaled; see `tsformer.data.scaling.Scaler`."""

    per: Literal["series", "dataset", "none"]
    method: Literal["standard", "robust"]
    transform: Literal["none", "log1p", "asinh"]


class SamplingConfig(Config):
    """Which train windows an epoch holds; see `tsformer.data.sampling.BatchSampler`."""

    over: Literal["windows", "series"]
    stride: int = Positive
    eval_stride: int = Positive
    windows_per_epoch: int | None = Field(gt=0)


class OptimizerConfig(Config):
    """The optimiser: AdamW (Loshchilov & Hutter 2019) or Adam.

    The linear skip has a rate and a decay of its own, or, where they are None, those of the rest.
    """

    name: Literal["adamw", "adam"]
    lr: float = Field(gt=0, allow_inf_nan=False)
    weight_decay: float = Field(ge=0, allow_inf_nan=False)
    skip_lr: float | None = Field(gt=0, allow_inf_nan=False)
    skip_weight_decay: float | None = Field(ge=0, allow_inf_nan=False)
    betas: tuple[Annotated[float, Rate], Annotated[float, Rate]]


class SchedulerConfig(Config):
    """Learning rate over the steps: linear warm-up, then cosine, or constant."""

    name: Literal["cosine", "constant"]
    warmup_fraction: float = Rate
    min_lr_ratio: float = Field(ge=0, le=1)


class TrainerConfig(Config):
    """How long is trained and on what; -1 means no limit of epochs or steps.

    What has a default here says how ranks share the work.
    """

    max_epochs: int = Field(ge=-1)
    max_steps: int = Field(ge=-1)
    accelerator: Literal["cpu", "gpu", "cuda", "auto"]
    devices: Annotated[int, Field(gt=0)] | Literal["auto"]
    num_nodes: int = Field(default=1, gt=0)
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    max_restarts: int = Field(default=0, ge=0)
    accumulate_grad_batches: int = Field(default=1, gt=0)
    deterministic: bool = False
    precision: Literal["32-true", "bf16-mixed", "16-mixed"]
    tf32: bool
    gradient_clip_val: float | None = Field(ge=0)
    log_every_n_steps: int = Positive
    progress_bar: bool
    find_lr: bool = False
    find_batch_size: bool = False

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if 0 in (self.max_epochs, self.max_steps) or self.max_epochs == self.max_steps == -1:
            raise ValueError(
                "nothing ends the training, or it has no step: set max_epochs or max_steps above "
                "0, and the other to -1 for no limit"
            )
        return self


class CallbacksConfig(Config):
    """Which validation figure chooses the checkpoint, and when to stop early."""

    monitor: Literal["val/mae", "val/mse", "val/loss"]
    early_stopping_patience: int | None = Field(gt=0)
    save_every_n_steps: int | None = Field(default=None, gt=0)


class MLflowConfig(Config):
    """Where MLflow keeps a run: a server or a database, and the experiment there."""

    tracking_uri: str = Field(min_length=1)
    experiment: str = Field(min_length=1)


class WandbConfig(Config):
    """Where Weights & Biases keeps a run."""

    project: str = Field(min_length=1)
    mode: Literal["offline", "online"] = "offline"
    entity: str | None = None
    group: str | None = None
    tags: Names = []


class LoggerConfig(Config):
    """Which logs a run writes."""

    tensorboard: bool
    csv: bool
    mlflow: MLflowConfig | None = None
    wandb: WandbConfig | None = None


class PathsConfig(Config):
    """Where data are looked for, whether they may be downloaded, where results are written."""

    data: str
    download: bool = False
    cache: str | None = None
    runs: str
    run: str


class TrialConfig(Config):
    """Which trial of a sweep a fit is; its sweeper sets this.

    Attributes:
        number: of the trial.
        storage: what the study of a search is kept in, a journal file or the URL of a database;
            None: a grid.
        study: its name there.
    """

    number: int = Field(ge=0)
    storage: str | None = None
    study: str | None = None


class FitConfig(Config):
    """All settings of one fit."""

    seed: int = Field(ge=0, lt=2**32)
    context_length: int = Positive
    horizon: int = Positive
    batch_size: int = Positive
    eval_batch_size: int = Positive
    num_workers: int = Field(ge=0, le=1024)
    loss: Literal["l1", "huber", "mse"]
    spectral_loss: float = Field(ge=0, le=1)
    ema_decay: float | None = Field(gt=0, lt=1)
    conformal: bool
    report: bool = True
    verbose: bool = False
    resume: str | None = None
    trial: TrialConfig | None = None
    dataset: DatasetConfig
    scaling: ScalingConfig
    sampling: SamplingConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig
    trainer: TrainerConfig
    callbacks: CallbacksConfig
    logger: LoggerConfig
    paths: PathsConfig

    @model_validator(mode="after")
    def _check_patches(self) -> Self:
        check_lengths(self.context_length, self.horizon, self.model)
        return self

    @model_validator(mode="after")
    def _check_conformal(self) -> Self:
        if self.conformal and len(self.model.quantiles) < 2:
            raise ValueError("conformal=true calibrates model.quantiles: give at least two")
        if self.conformal and self.model.head == "negative_binomial":
            raise ValueError(
                "conformal=true would make count quantiles fractional or negative: set "
                "model.head=quantile, or conformal=false"
            )
        return self

    @model_validator(mode="after")
    def _check_levels(self) -> Self:
        if self.model.head != "point" and not self.model.quantiles:
            raise ValueError(
                f"model.head={self.model.head} needs model.quantiles for the test: give at least "
                "one"
            )
        return self

    @model_validator(mode="after")
    def _check_loss(self) -> Self:
        if self.model.head != "point" and self.loss != "l1":
            raise ValueError(
                f"loss={self.loss} applies only to model.head=point; {self.model.head} has its own "
                "loss: leave loss out"
            )
        return self

    @model_validator(mode="after")
    def _check_counts(self) -> Self:
        scaled = self.scaling.per != "none" or self.scaling.transform != "none"
        if self.model.head == "negative_binomial" and scaled:
            raise ValueError(
                "model.head=negative_binomial forecasts counts as they are: set scaling.per=none "
                "and scaling.transform=none"
            )
        return self


class Lengths(NamedTuple):
    """Steps seen L, steps forecast H, steps a token spans p."""

    context_length: int
    horizon: int
    patch_len: int


_ANY_LENGTHS = Lengths(336, 48, 24)


def parse_fit(settings: Mapping[str, Any], suggested: Lengths = _ANY_LENGTHS) -> FitConfig:
    """Check plain values and return them as settings of a fit.

    Args:
        settings: as `conf/fit.yaml` composes them.
        suggested: lengths in place of those that are None; a patch length that is not given is
            made to divide the context, or else the context a multiple of it.

    Raises:
        ConfigError: lists every key that is unknown, missing, or has a wrong value.
    """
    if not isinstance(settings.get("model") or {}, Mapping):
        return parse(FitConfig, settings)  # which tells that it is no group
    model = dict(settings.get("model") or {})
    length, patch_len = settings.get("context_length"), model.get("patch_len")
    if isinstance(length, int) and patch_len is None and length > 0:
        divisors = (p for p in range(min(suggested.patch_len, length), 0, -1) if length % p == 0)
        model["patch_len"] = next(divisors)
    elif patch_len is None:
        model["patch_len"] = suggested.patch_len
    if length is None and isinstance(patch_len := model["patch_len"], int) and patch_len > 0:
        length = max(suggested.context_length // patch_len, 1) * patch_len
    horizon = settings.get("horizon")
    lengths = {
        "context_length": length,
        "horizon": suggested.horizon if horizon is None else horizon,
        "model": model,
    }
    return parse(FitConfig, {**settings, **lengths})
