"""FittedModel: a network with all it needs to forecast."""

from collections.abc import Sequence

from tsformer.arguments import Asked, count, quantile_levels
from tsformer.errors import ConfigError
from tsformer.model.config import ForecasterConfig
from tsformer.model.conformal import ConformalOffsets
from tsformer.nn import ForecastNetwork


class FittedModel:
    """What a fit leaves, and a model folder holds.

    Attributes:
        network: the fitted network, in evaluation mode.
        config: everything else but weights; see `ForecasterConfig`.
        conformal: what calibrates its quantiles, or None.
        card: the model card that it is saved with; None: one that says what `config` does.
    """

    def __init__(
        self,
        network: ForecastNetwork,
        config: ForecasterConfig,
        conformal: ConformalOffsets | None = None,
        card: str | None = None,
    ) -> None:
        """Hold a network and its configuration."""
        self.network = network.eval()
        self.config = config
        self.conformal = conformal
        self.card = card

    @property
    def horizon(self) -> int:
        """Steps forecast, H."""
        return self.config.horizon

    @property
    def is_probabilistic(self) -> bool:
        """Whether it forecasts distributions, not only points."""
        return self.config.model.head != "point" or self.conformal is not None

    def asked(
        self,
        level: float | Sequence[float],
        quantiles: float | Sequence[float],
        num_paths: int,
        adaptive: bool,
        seed: int,
    ) -> Asked:
        """Return what is asked of each window; see `Forecaster.predict` for the arguments.

        Raises:
            ConfigError: an argument is out of range, or is not for this model.
        """
        levels = quantile_levels(level, quantiles)
        is_point = self.config.model.head == "point"
        if (levels and not self.is_probabilistic) or (num_paths and is_point):
            raise ConfigError(
                "the model gives only point forecasts. Fit it with model.head=quantile (or normal, "
                "student_t), or with conformal=true for intervals."
            )
        if adaptive and self.conformal is None:
            raise ConfigError("adaptive=True needs a model that was fitted with conformal=true.")
        return Asked(levels, num_paths, adaptive, count("seed", seed, least=0))
