"""The settings of a search, which `conf/sweep/` holds."""

from typing import Literal

from pydantic import Field

from tsformer.settings import Config


class PrunerConfig(Config):
    """Which trials are stopped early; see Optuna's `MedianPruner` and `HyperbandPruner`."""

    name: Literal["median", "hyperband", "none"]
    n_startup_trials: int = Field(ge=0)
    n_warmup_steps: int = Field(ge=0)


class SweepConfig(Config):
    """How Optuna searches."""

    sampler: Literal["tpe", "random"]
    n_startup_trials: int = Field(ge=0)
    seed: int = Field(ge=0, lt=2**32)
    n_trials: int = Field(gt=0)
    timeout: float | None = Field(gt=0, allow_inf_nan=False)
    storage: str | None
    pruner: PrunerConfig
    space: dict[str, str] | None = None
