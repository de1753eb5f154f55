"""Dropout whose masks are cheap on a CPU."""

import torch
from torch import Tensor, nn

_LEVELS = 1 << 16  # values that 16 random bits take


class Dropout(nn.Dropout):
    """Dropout (Srivastava et al. 2014), on a CPU with masks from 16 random bits a value.

    On a CPU torch's own dropout draws a double for each value and takes a quarter of a training
    step. Here one draw of torch's generator serves four values, so that seeds work as always. The
    rate is rounded to a multiple of 2^-16, and what is kept is scaled by the rounded rate, so that
    means stay what they are. Other devices, and compiled code, use torch's own.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return 0 or x / (1 - p), with probabilities p and 1 - p; `x` itself in evaluation."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        return x * random_mask(x, self.p)


def random_mask(x: Tensor, rate: float) -> Tensor:
    """Return 0 with probability `rate` and else 1 / (1 - rate), in the shape and type of `x`."""
    dropped = min(round(rate * _LEVELS), _LEVELS - 1)  # this many of the levels
    draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64)
    draws.random_(torch.iinfo(torch.int64).min, None)  # all 64 bits; without limits but 63
    levels = draws.view(torch.int16)[: x.numel()].view(x.shape)
    mask = torch.empty(x.shape, dtype=x.dtype)
    torch.ge(levels, dropped - _LEVELS // 2, out=mask)
    return mask.mul_(_LEVELS / (_LEVELS - dropped))
