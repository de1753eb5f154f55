"""What a model folder says of a forecaster: plain data, checked when they are read."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from tsformer.config import ModelConfig, check_lengths
from tsformer.data.calendar import num_calendar_features
from tsformer.data.columns import Columns, find_columns
from tsformer.data.covariates import CovariateEncoder
from tsformer.data.parsing import check_freq
from tsformer.data.scaling import Scaler
from tsformer.settings import Config, Positive, TimeZone

# Beyond these, float32 could not hold what is scaled by them.
Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e38, le=1e38)]
Scale = Annotated[float, Field(allow_inf_nan=False, ge=1e-38, le=1e38)]
# Of lists that may hold millions, the first mistake is enough.
Texts = Annotated[list[str], Field(fail_fast=True)]
Means = Annotated[list[Finite], Field(fail_fast=True)]
Scales = Annotated[list[Scale], Field(fail_fast=True)]
ShortText = Annotated[str, Field(max_length=100)]

MAX_COVARIATES, MAX_CATEGORICAL = 10_000, 1000


def _check_names(columns: Any) -> Any:
    for part, names in columns.items() if isinstance(columns, dict) else ():
        if isinstance(names, list) and not all(isinstance(name, str) for name in names):
            raise ValueError(f"{part}: a name is not a text")
    return columns


class ScalerConfig(Config):
    """A `Scaler` as plain lists."""

    per: Literal["series", "dataset", "none"]
    method: Literal["standard", "robust"]
    transform: Literal["none", "log1p", "asinh"]
    ids: Texts = Field(min_length=1)
    mean: Means
    std: Scales
    fallback_mean: Finite
    fallback_std: Scale
    unfitted: Texts = []

    @classmethod
    def of(cls, scaler: Scaler) -> Self:
        """Return a scaler as plain lists."""
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(scaler).items()
        }
        return cls(**{**plain, "ids": list(scaler.ids), "unfitted": list(scaler.unfitted)})

    def scaler(self) -> Scaler:
        """Return the scaler."""
        values = self.model_dump()
        values |= {name: tuple(values[name]) for name in ("ids", "unfitted")}
        values |= {name: np.array(values[name]) for name in ("mean", "std")}
        return Scaler(**values)

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(set(self.ids)) < len(self.ids):
            raise ValueError("an id is listed twice")
        if not len(self.ids) == len(self.mean) == len(self.std):
            raise ValueError("not one mean and one std for each of ids")
        return self


class EncoderConfig(Config):
    """A `CovariateEncoder` as plain lists."""

    mean: Means
    std: Scales
    vocabularies: dict[str, Texts]

    @classmethod
    def of(cls, encoder: CovariateEncoder) -> Self:
        """Return an encoder as plain lists."""
        return cls(
            mean=encoder.mean.tolist(),
            std=encoder.std.tolist(),
            vocabularies={name: list(texts) for name, texts in encoder.vocabularies.items()},
        )

    def encoder(self, names: Sequence[str]) -> CovariateEncoder:
        """Return the encoder of these columns."""
        vocabularies = {name: tuple(texts) for name, texts in self.vocabularies.items()}
        return CovariateEncoder(tuple(names), np.array(self.mean), np.array(self.std), vocabularies)


class ForecasterConfig(Config):
    """What `config.json` in a model folder holds: data, never names of code to run.

    `channels` names the series that are forecast together; it is None where each is by itself.
    `loss` is that of point forecasts, by which a training goes on.
    """

    schema_version: Literal[2] = 2
    context_length: int = Positive
    horizon: int = Positive
    freq: ShortText
    regular: bool
    duplicates: Literal["error", "first", "mean", "sum"]
    time_zone: TimeZone | None
    calendar: bool
    yearly: bool = True
    holidays: ShortText | None
    columns: Annotated[Columns, BeforeValidator(_check_names)]
    channels: Texts | None
    model: ModelConfig
    scaler: ScalerConfig
    covariates: EncoderConfig
    static: EncoderConfig
    conformal: bool = False
    loss: Literal["l1", "huber", "mse"] = "l1"
    versions: dict[str, str]

    @property
    def num_channels(self) -> int:
        """Series forecast together, C."""
        return len(self.channels) if self.channels else 1

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        columns = self.columns
        num_covariates = len(columns.covariates) + len(columns.static_covariates)
        if num_covariates > MAX_COVARIATES or len(columns.categorical) > MAX_CATEGORICAL:
            raise ValueError(
                f"columns: more than {MAX_COVARIATES:,} covariates, or {MAX_CATEGORICAL:,} of "
                "categories"
            )
        find_columns(columns.names, **{**asdict(columns), "weight": None})
        if not all(columns.names) or columns.weight:
            raise ValueError("columns: a name is empty, or there are weights")
        if (self.channels is not None) != (self.model.channels == "joint"):
            raise ValueError("channels: does not match model.channels")
        if self.conformal and len(self.model.quantiles) < 2:
            raise ValueError("conformal: needs at least two model.quantiles")
        if self.conformal and self.model.head == "negative_binomial":
            raise ValueError("conformal: counts are not calibrated")
        if self.channels is not None and len(set(self.channels)) < len(self.channels):
            raise ValueError("channels: a name is listed twice")
        if not self.regular and columns.id:
            raise ValueError("regular: false needs a wide table")
        if self.model.channels == "joint" and columns.static_covariates and not columns.target[1:]:
            raise ValueError("joint series have no static covariates")
        return self

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        check_lengths(self.context_length, self.horizon, self.model)
        return self

    @model_validator(mode="after")
    def _check_encoders(self) -> Self:
        for name, encoder, columns in (
            ("covariates", self.covariates, self.columns.covariates),
            ("static", self.static, self.columns.static_covariates),
        ):
            if not len(columns) == len(encoder.mean) == len(encoder.std):
                raise ValueError(f"{name}: not one mean and one std a covariate")
            if any(len(set(texts)) < len(texts) for texts in encoder.vocabularies.values()):
                raise ValueError(f"{name}: a category is listed twice")
            if set(encoder.vocabularies) != set(columns) & set(self.columns.categorical):
                raise ValueError(f"{name}: not one vocabulary a categorical covariate")
        check_freq(self.freq)
        if self.calendar:
            num_calendar_features(self.freq, self.holidays, yearly=self.yearly)
        return self


def network_settings(config: ForecasterConfig) -> dict[str, Any]:
    """Return the arguments of the `ForecastNetwork` that a configuration describes."""
    num_calendar = 0
    if config.calendar:
        num_calendar = num_calendar_features(config.freq, config.holidays, yearly=config.yearly)
    covariates = config.covariates.encoder(config.columns.covariates)
    static = config.static.encoder(config.columns.static_covariates)
    return {
        "context_length": config.context_length,
        "horizon": config.horizon,
        "num_channels": config.num_channels,
        "cardinalities": [0] * num_calendar + list(covariates.cardinalities),
        "num_future_features": num_calendar + len(config.columns.future_covariates),
        "static_cardinalities": list(static.cardinalities),
        **config.model.model_dump(exclude={"channels", "compile"}),
    }
