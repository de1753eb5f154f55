"""The attention weights of a forecast, which the network itself does not keep."""

from contextlib import ExitStack
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from tsformer.nn.attention import MultiHeadAttention
from tsformer.nn.network import ForecastNetwork


class AttentionWeights(NamedTuple):
    """Weights of B windows, by layer and head; each row sums to 1 over the keys.

    Attributes:
        encoder: of the context's tokens among each other, (B, layers, N, P, P).
        decoder: of the horizon's tokens, each over itself and those before, (B, layers, N, T, T).
        cross: of the horizon's tokens over the context's, (B, layers, N, T, P).
    """

    encoder: Tensor
    decoder: Tensor
    cross: Tensor


@torch.inference_mode()
def attention_weights(network: ForecastNetwork, *inputs: Tensor) -> AttentionWeights:
    """Return the attention weights of a free-running forecast.

    They are taken while the network forecasts, so no other thread may use it meanwhile.

    Args:
        network: in evaluation mode.
        inputs: the five of `ForecastNetwork.forward`.
    """
    # `forward`, not the network itself: code that was compiled before knows nothing of hooks.
    given: dict[str, Tensor] = {}
    if network.queries is None:  # one pass over all of its own forecasts gives them once more
        forecast = network.head.point(network.forward(*inputs))
        observed = torch.ones_like(forecast, dtype=torch.bool)
        given = {"target": forecast, "target_observed": observed}
    with ExitStack() as hooks:
        encoder, decoder, cross = (
            [_kept_weights(layer.get_submodule(part), hooks) for layer in layers]
            for layers, part in (
                (network.transformer.encoder_layers, "attention"),
                (network.transformer.decoder_layers, "attention"),
                (network.transformer.decoder_layers, "cross_attention"),
            )
        )
        network.forward(*inputs, **given)
    return AttentionWeights(*(_stacked(maps) for maps in (encoder, decoder, cross)))


def _kept_weights(attention: nn.Module, hooks: ExitStack) -> list[Tensor]:
    """Return a list that receives the weights of each call, until the hooks are closed."""
    weights: list[Tensor] = []

    def keep(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        weights.append(cast(MultiHeadAttention, module).weights(*args, **kwargs))

    hooks.callback(attention.register_forward_pre_hook(keep, with_kwargs=True).remove)
    return weights


def _stacked(maps: list[list[Tensor]]) -> Tensor:
    """Return the weights of each layer's one call, (B, layers, N, T, S)."""
    return torch.stack([weights for (weights,) in maps], dim=1)
