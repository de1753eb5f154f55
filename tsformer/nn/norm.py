"""Reversible instance normalisation over the observed steps of a window."""

import torch
from torch import Tensor


def instance_statistics(x: Tensor, observed: Tensor, eps: float = 1e-5) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation over the observed steps (Kim et al. 2022, equation 1).

    Args:
        x: values, (B, L, C); what stands at unobserved steps does not matter.
        observed: True where `x` is a measurement, (B, L, C).
        eps: added to the variance, so that a constant window divides by sqrt(eps).

    Returns:
        mean and standard deviation, each (B, 1, C); 0 and 1 where nothing was observed.
    """
    count = observed.sum(dim=1, keepdim=True)  # (B, 1, C)
    x = x.where(observed, 0.0)
    mean = x.sum(dim=1, keepdim=True) / count.clamp(min=1)
    deviation = (x - mean).where(observed, 0.0)
    variance = deviation.square().sum(dim=1, keepdim=True) / count.clamp(min=1)
    return mean, torch.sqrt(variance + eps).where(count > 0, 1.0)


def last_observed(x: Tensor, observed: Tensor) -> Tensor:
    """Return the last observed value of each channel, (B, 1, C); 0 where nothing was observed."""
    steps = torch.arange(1, x.size(1) + 1, device=x.device)[:, None]
    last = (observed * steps).amax(dim=1, keepdim=True)  # (B, 1, C), from 1; 0: none
    value = x.gather(1, (last - 1).clamp(min=0))
    return value.where(last > 0, 0.0)
