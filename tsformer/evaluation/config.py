"""The settings of an evaluation; `conf/fitted/evaluate.yaml` holds their values."""

from typing import Any, Literal

from pydantic import Field

from tsformer.config import DatasetConfig, PathsConfig
from tsformer.settings import Config, Names, Numbers


class EvaluateConfig(Config):
    """All settings of one evaluation."""

    model: str = Field(min_length=1)
    dataset: DatasetConfig
    paths: PathsConfig
    output: str = Field(min_length=1)
    part: Literal["test", "all"]
    n_windows: int | None = Field(gt=0)
    step: int | None = Field(gt=0)
    horizon: int | None = Field(gt=0)
    quantiles: Numbers | None
    adaptive: bool
    refit: bool | dict[str, Any]
    baselines: Names
    loss: Literal["mae", "mse"]
    report: bool
    seed: int = Field(ge=0, lt=2**32)
    batch_size: int = Field(gt=0)
    num_workers: int = Field(gt=0, le=1024)
    device: str
