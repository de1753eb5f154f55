"""The settings of a batch forecast; `conf/fitted/forecast.yaml` holds their values."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tsformer.arguments import MAX_PATHS
from tsformer.places import expand
from tsformer.settings import Config, Numbers, parse


def _absolute(path: Any) -> Path:
    if not isinstance(path, (str, Path)) or not str(path):
        raise ValueError("a path is needed")
    return expand(path).absolute()


# Absolute, since workers may start elsewhere.
AbsolutePath = Annotated[Path, BeforeValidator(_absolute)]


class RayConfig(Config):
    """Where Ray runs, and what each of its actors is given."""

    address: str | None
    num_cpus: float = Field(gt=0, allow_inf_nan=False)
    num_gpus: float = Field(ge=0, allow_inf_nan=False)


class BatchConfig(Config):
    """All settings of one batch forecast."""

    model: AbsolutePath
    input: AbsolutePath
    future: AbsolutePath | None
    output: AbsolutePath
    resume: bool
    on_error: Literal["raise", "skip"]
    horizon: int | None = Field(gt=0)
    level: Numbers
    quantiles: Numbers
    num_samples: int | None = Field(gt=0, le=MAX_PATHS)
    adaptive: bool
    seed: int = Field(ge=0, lt=2**32)
    batch_size: int = Field(gt=0)
    rows_per_part: int = Field(gt=0)
    series_per_part: int = Field(gt=0)
    engine: Literal["local", "ray"]
    num_workers: int = Field(ge=0, le=1024)
    device: str
    progress_bar: bool | None
    ray: RayConfig

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        if self.engine == "local" and self.ray.address is not None:
            raise ValueError("ray.address needs engine=ray: set that too, or leave ray.address out")
        return self


def parse_batch(settings: Mapping[str, Any]) -> BatchConfig:
    """Check plain values and return them as settings of a batch forecast.

    Raises:
        ConfigError: lists every key that is unknown, missing, or has a wrong value.
    """
    return parse(BatchConfig, settings)
