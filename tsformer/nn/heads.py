"""Heads: what the network's numbers say of a value, a point or a distribution.

A head has no weights. The network gives it K numbers a value, in units of the instance norm; the
first is a location, to which the linear skip has been added.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributions import NegativeBinomial, Normal, StudentT

_SMALLEST = 1e-4  # of a scale, in units of the instance norm


class Head(ABC):
    """One family of forecasts.

    Attributes:
        num_parameters: numbers that a value needs, K.
        levels: quantile levels that it is trained at; none unless its quantiles are its parameters.
    """

    num_parameters: int
    levels: tuple[float, ...] = ()

    @abstractmethod
    def parameters(self, raw: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return parameters in scaled units, (..., K).

        Args:
            raw: the network's numbers, (..., K).
            mean: of the instance norm, broadcastable to (...).
            std: of the instance norm, broadcastable to (...).
        """

    @abstractmethod
    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """Return the training loss of each value, (..., K), (...) -> (...)."""

    def point(self, parameters: Tensor) -> Tensor:
        """Return the point forecast, (..., K) -> (...)."""
        return parameters[..., 0]

    @abstractmethod
    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        """Return quantiles at rising levels between 0 and 1, (..., K) -> (..., Q)."""

    @abstractmethod
    def sample(self, parameters: Tensor) -> Tensor:
        """Draw a value from each distribution by torch's generator, (..., K) -> (...)."""


class PointHead(Head):
    """A point forecast; its distribution is that point alone."""

    num_parameters = 1

    def parameters(self, raw: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return the point, (..., 1)."""
        return raw * std[..., None] + mean[..., None]

    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """Return the absolute error, which is the CRPS of a point."""
        return (parameters[..., 0] - target).abs()

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        """Return the point at every level."""
        return parameters.expand(*parameters.shape[:-1], len(levels))

    def sample(self, parameters: Tensor) -> Tensor:
        """Return the point."""
        return self.point(parameters)


class QuantileHead(Head):
    """Quantiles that cannot cross: the median, and gaps above 0 between neighbours.

    Trained by twice the mean pinball loss (Koenker & Bassett 1978), which for many levels is the
    CRPS (Gneiting & Raftery 2007) and for the median alone the absolute error.
    """

    def __init__(self, levels: Sequence[float]) -> None:
        """Set the levels, which are sorted, and joined by 0.5 if it is not among them."""
        self.levels = tuple(sorted({*levels, 0.5}))
        self.num_parameters = len(self.levels)
        self.median = self.levels.index(0.5)
        scores = normal_scores(self.levels)
        # Offsets chosen so that raw output 0 gives standard-normal quantile gaps.
        self.offsets = inverse_softplus(scores.diff())

    def parameters(self, raw: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return the quantiles, rising, (..., Q)."""
        gaps = F.softplus(raw[..., 1:] + self.offsets.to(raw))
        below, above = gaps.tensor_split([self.median], dim=-1)
        below = -below.flip(-1).cumsum(-1).flip(-1)
        from_median = torch.cat([below, torch.zeros_like(raw[..., :1]), above.cumsum(-1)], dim=-1)
        return (raw[..., :1] + from_median) * std[..., None] + mean[..., None]

    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """Return twice the mean pinball loss over the levels."""
        error = target[..., None] - parameters
        levels = error.new_tensor(self.levels)
        return 2 * torch.maximum(levels * error, (levels - 1) * error).mean(dim=-1)

    def point(self, parameters: Tensor) -> Tensor:
        """Return the median."""
        return parameters[..., self.median]

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        """Return quantiles at any levels; see `at_levels`."""
        return at_levels(parameters, self.levels, levels)

    def sample(self, parameters: Tensor) -> Tensor:
        """Draw from the distribution that the quantiles outline."""
        scores = torch.randn_like(parameters[..., :1])
        return _at_scores(parameters, self.levels, scores)[..., 0]


class NormalHead(Head):
    """A normal distribution, trained by its negative log-likelihood."""

    num_parameters = 2

    def parameters(self, raw: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return mean and standard deviation, (..., 2)."""
        location, scale = location_scale(raw, mean, std)
        return torch.stack([location, scale], dim=-1)

    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """Return the negative log-likelihood."""
        return -_normal(parameters).log_prob(target)

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        """Return the normal's quantiles."""
        scores = normal_scores(levels).to(parameters)
        location, scale = parameters.split(1, dim=-1)
        return location + scale * scores

    def sample(self, parameters: Tensor) -> Tensor:
        """Draw from the normal."""
        return _normal(parameters).sample()


class StudentTHead(Head):
    """A Student t distribution of more than 2 degrees of freedom, by negative log-likelihood."""

    num_parameters = 3

    def parameters(self, raw: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return location, scale and degrees of freedom, (..., 3)."""
        location, scale = location_scale(raw, mean, std)
        return torch.stack([location, scale, 2 + F.softplus(raw[..., 2])], dim=-1)

    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """Return the negative log-likelihood."""
        return -_student_t(parameters).log_prob(target)

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        """Return the t distribution's quantiles."""
        from scipy.special import stdtrit  # here, as it takes a fifth of a second

        location, scale, freedom = parameters.detach().cpu().double().split(1, dim=-1)
        scores = torch.from_numpy(stdtrit(freedom.numpy(), np.asarray(levels)))
        return (location + scale * scores).to(parameters)

    def sample(self, parameters: Tensor) -> Tensor:
        """Draw from the t distribution."""
        return _student_t(parameters).sample()


class NegativeBinomialHead(Head):
    """A negative binomial of counts, by negative log-likelihood (Salinas et al. 2020, section 3.1).

    Its mean follows the location; targets must not be scaled, as counts are not.
    """

    num_parameters = 2

    def parameters(self, raw: Tensor, mean: Tensor, std: Tensor) -> Tensor:
        """Return mean and dispersion alpha, (..., 2); the variance is mean + alpha mean^2."""
        # Above 0, and in units of the context's spread, so that little counts stay little.
        average = std * F.softplus(raw[..., 0] + mean / std) + _SMALLEST
        return torch.stack([average, F.softplus(raw[..., 1]) + _SMALLEST], dim=-1)

    def loss(self, parameters: Tensor, target: Tensor) -> Tensor:
        """Return the negative log-likelihood."""
        return -_negative_binomial(parameters).log_prob(target)

    def quantiles(self, parameters: Tensor, levels: Sequence[float]) -> Tensor:
        """Return the least counts that are not exceeded with the levels' probabilities."""
        from scipy.stats import nbinom  # here, as it takes a second

        average, alpha = parameters.detach().cpu().double().split(1, dim=-1)
        success = 1 / (1 + alpha * average)
        counts = nbinom.ppf(np.asarray(levels), (1 / alpha).numpy(), success.numpy())
        return torch.from_numpy(counts).to(parameters)

    def sample(self, parameters: Tensor) -> Tensor:
        """Draw counts."""
        return _negative_binomial(parameters).sample()


def make_head(name: str, levels: Sequence[float] = ()) -> Head:
    """Return a head by its name.

    Args:
        name: `point`, `quantile`, `normal`, `student_t` or `negative_binomial`.
        levels: of `quantile`, each above 0 and below 1.

    Raises:
        ValueError: an unknown name, or `quantile` without a level beside 0.5.
    """
    if name == "quantile":
        if not set(levels) - {0.5}:
            raise ValueError("head='quantile' needs a level beside 0.5")
        return QuantileHead(levels)
    kinds: dict[str, type[Head]] = {
        "point": PointHead,
        "normal": NormalHead,
        "student_t": StudentTHead,
        "negative_binomial": NegativeBinomialHead,
    }
    if name not in kinds:
        raise ValueError(f"head={name!r} is none of {['quantile', *kinds]}")
    return kinds[name]()


def location_scale(raw: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
    """Return location and scale, (...) each, in scaled units, of raw numbers (..., K)."""
    scale = F.softplus(raw[..., 1] + _RAW_ONE) + _SMALLEST
    return raw[..., 0] * std + mean, scale * std


def at_levels(values: Tensor, known: Sequence[float], wanted: Sequence[float]) -> Tensor:
    """Return quantiles at other levels than those that are known.

    Between known levels, and beyond them, a value is taken to be linear in the normal score of its
    level: tails are a normal's.

    Args:
        values: quantiles, (..., Q).
        known: their levels, two at least, rising, (Q,).
        wanted: levels, (M,).

    Returns:
        (..., M).
    """
    scores = normal_scores(wanted).to(values)
    return _at_scores(values, known, scores.expand(*values.shape[:-1], len(wanted)))


def _at_scores(values: Tensor, levels: Sequence[float], scores: Tensor) -> Tensor:
    known = normal_scores(levels).to(values)
    right = torch.searchsorted(known, scores.contiguous()).clamp(1, len(known) - 1)
    left = right - 1
    low, high = values.gather(-1, left), values.gather(-1, right)
    # Which gives the known values exactly, and the same one between two that are alike.
    return low.lerp(high, (scores - known[left]) / (known[right] - known[left]))


def normal_scores(levels: Sequence[float]) -> Tensor:
    """Return the standard normal's quantiles, (Q,), in double precision."""
    # On the CPU in any case: on the meta device it would import torch's compiler.
    return torch.special.ndtri(torch.tensor(levels, dtype=torch.float64, device="cpu"))


def inverse_softplus(x: Tensor) -> Tensor:
    """Return y with softplus(y) = x > 0."""
    return x + torch.log(-torch.expm1(-x))


_RAW_ONE = inverse_softplus(torch.ones(())).item()  # of which a raw 0 makes a scale of 1


def _normal(parameters: Tensor) -> Normal:
    location, scale = parameters.unbind(-1)
    return Normal(location, scale, validate_args=False)


def _student_t(parameters: Tensor) -> StudentT:
    location, scale, freedom = parameters.unbind(-1)
    return StudentT(freedom, location, scale, validate_args=False)


def _negative_binomial(parameters: Tensor) -> NegativeBinomial:
    average, alpha = parameters.unbind(-1)
    logits = torch.log(alpha * average)
    return NegativeBinomial(1 / alpha, logits=logits, validate_args=False)
