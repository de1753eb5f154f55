"""Reversible instance normalisation over the observed steps of a window."""

import torch
from torch import Tensor


def instance_statistics(
    x: Tensor, observed: Tensor, center: str = "mean", eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Return center and standard deviation over the observed steps (Kim et al. 2022, equation 1).

    Args:
        x: values, (B, L, C); what stands at unobserved steps does not matter.
        observed: True where `x` is a measurement, (B, L, C).
        center: `mean`; or `last`, the last observed value (Zeng et al. 2023, NLinear).
        eps: added to the variance, so that a constant window divides by sqrt(eps).

    Returns:
        center and standard deviation, each (B, 1, C); 0 and 1 where nothing was observed.
    """
    count = observed.sum(dim=1, keepdim=True)  # (B, 1, C)
    x = x.where(observed, 0.0)
    mean = x.sum(dim=1, keepdim=True) / count.clamp(min=1)
    deviation = (x - mean).where(observed, 0.0)
    variance = deviation.square().sum(dim=1, keepdim=True) / count.clamp(min=1)
    std = torch.sqrt(variance + eps).where(count > 0, 1.0)
    return (last_observed(x, observed) if center == "last" else mean), std


def last_observed(x: Tensor, observed: Tensor) -> Tensor:
    """Return the last observed value of (B, L, C), (B, 1, C); the first where there is none."""
    steps = torch.arange(x.size(1), device=x.device)[:, None]
    last = (observed * steps).amax(dim=1, keepdim=True)  # (B, 1, C)
    return x.gather(1, last)
