"""ForecastNetwork: TFModel over patches, with instance norm, linear skip and two decodings."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsformer.nn.embedding import CategoricalEmbedding
from tsformer.nn.norm import instance_statistics
from tsformer.nn.transformer import TFModel


class ForecastNetwork(nn.Module):
    """Forecasts H steps of C channels from L steps, by a TFModel over patches of p steps.

    A token is p consecutive steps of all channels and features (patches: Nie et al. 2023), and the
    static features beside them. The transformer's output is added to a linear map of the context
    (the linear skip), both in units of the instance norm. Two decodings fill the horizon:

    - `parallel`: the decoder sees one learned query a token, and answers in one pass.
    - `autoregressive`: the decoder sees the target shifted by one token, the last token of the
      context standing first; forecasts walk token by token over their own output.
    """

    def __init__(
        self,
        *,
        context_length: int,
        horizon: int,
        num_channels: int,
        cardinalities: Sequence[int],
        num_future_features: int,
        static_cardinalities: Sequence[int],
        d_model: int,
        num_heads: int,
        d_ff: int,
        num_layers: int,
        num_decoder_layers: int,
        dropout: float,
        attention_dropout: float,
        patch_len: int,
        decoding: str,
        instance_norm: bool,
        linear_skip: bool,
        activation_checkpointing: bool = False,
    ) -> None:
        """Build the network.

        Args:
            context_length: steps seen, L; a multiple of `patch_len`.
            horizon: steps forecast, H; any number, the last token may reach beyond it.
            num_channels: values of a step that are forecast together, C.
            cardinalities: of each feature known over the context, its number of categories with
                the unknown one, or 0 for a number; see `CategoricalEmbedding`.
            num_future_features: how many of these features, the first ones, are known over the
                horizon too.
            static_cardinalities: the same of each feature that does not change with time.
            d_model: width of the tokens.
            num_heads: attention heads.
            d_ff: width of the feed-forward layers.
            num_layers: encoder layers.
            num_decoder_layers: decoder layers.
            dropout: dropout rate.
            attention_dropout: dropout rate of the attention weights.
            patch_len: steps a token spans, p.
            decoding: `parallel` or `autoregressive`.
            instance_norm: normalise each window by its own context.
            linear_skip: add a linear map from context to horizon.
            activation_checkpointing: see `TFModel`.

        Raises:
            ValueError: `patch_len` does not divide `context_length`, or an unknown decoding.
        """
        super().__init__()
        if context_length % patch_len:
            raise ValueError(
                f"context_length={context_length} is not a multiple of patch_len={patch_len}"
            )
        if decoding not in ("parallel", "autoregressive"):
            raise ValueError(f"decoding={decoding!r} is neither 'parallel' nor 'autoregressive'")
        self.horizon = horizon
        self.patch_len = patch_len
        self.instance_norm = instance_norm
        self.target_tokens = -(-horizon // patch_len)
        self.embed_features = CategoricalEmbedding(cardinalities)
        self.embed_static = CategoricalEmbedding(static_cardinalities)
        num_past = self.embed_features.output_size(len(cardinalities))
        num_future = self.embed_features.output_size(num_future_features)
        num_static = self.embed_static.output_size(len(static_cardinalities))
        self.transformer = TFModel(
            encoder_input_size=patch_len * (num_channels + num_past) + num_static,
            decoder_input_size=patch_len * (num_channels + num_future) + num_static,
            output_size=patch_len * num_channels,
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            num_layers=num_layers,
            num_decoder_layers=num_decoder_layers,
            dropout=dropout,
            attention_dropout=attention_dropout,
            max_length=max(context_length // patch_len, self.target_tokens),
            activation_checkpointing=activation_checkpointing,
        )
        # A query stands where the shifted target stands in the other decoding: p x C values.
        self.queries = (
            nn.Parameter(torch.randn(self.target_tokens, patch_len * num_channels))
            if decoding == "parallel"
            else None
        )
        self.skip = nn.Linear(context_length, horizon) if linear_skip else None

    def forward(
        self,
        context: Tensor,
        observed: Tensor,
        past_features: Tensor,
        future_features: Tensor,
        static_features: Tensor,
        target: Tensor | None = None,
        target_observed: Tensor | None = None,
    ) -> Tensor:
        """Forecast the horizon.

        Args:
            context: last L steps of the target, (B, L, C).
            observed: True where `context` is a measurement, (B, L, C).
            past_features: calendar and covariates over the context, (B, L, F).
            future_features: what of them is known over the horizon, (B, H, F).
            static_features: what does not change with time, (B, F).
            target: true values, (B, H, C); autoregressive decoding then feeds them to the decoder
                (teacher forcing, for training only), parallel decoding ignores them.
            target_observed: True where `target` is a measurement, (B, H, C); needed with `target`.

        Returns:
            Forecasts in the units of `context`, (B, H, C).
        """
        if self.instance_norm:
            mean, std = instance_statistics(context, observed)  # (B, 1, C)
        else:
            mean, std = context.new_zeros(()), context.new_ones(())
        context = ((context - mean) / std).where(observed, 0.0)
        static = self.embed_static(static_features)[:, None]  # (B, 1, F)
        past = self.embed_features(past_features)
        source = self._patch(torch.cat([context, past], dim=-1))  # (B, P, p*(C+F))
        source = _beside(source, static)
        exists = self._patch(observed).any(dim=-1)  # (B, P)
        # Softmax over no key is undefined: a context without any value attends to its zeros.
        exists = exists | ~exists.any(dim=1, keepdim=True)
        memory = self.transformer.encode(source, exists)

        future = self.embed_features(future_features)
        features = self._patch(self._fill_last_patch(future))  # (B, T, p*F)
        features = _beside(features, static)
        skip = self._linear_skip(context)  # (B, T, p*C)

        if self.queries is not None:
            tokens = self.queries.expand(context.size(0), -1, -1)
            output = self._decode(tokens, features, memory, exists) + skip
        else:
            start = self._patch(context[:, -self.patch_len :])  # (B, 1, p*C)
            if target is not None and target_observed is not None:
                shifted = ((target - mean) / std).where(target_observed, 0.0)
                shifted = self._patch(self._fill_last_patch(shifted))[:, :-1]
                tokens = torch.cat([start, shifted], dim=1)
                output = self._decode(tokens, features, memory, exists) + skip
            else:
                output = self._decode_freely(start, features, skip, memory, exists)
        forecast = output.unflatten(-1, (self.patch_len, -1)).flatten(1, 2)  # (B, T*p, C)
        return forecast[:, : self.horizon].to(mean.dtype) * std + mean

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile as `nn.Module.compile`, decoding token by token as one graph for all tokens."""
        # Its loop over the tokens is left out, so that it is not unrolled. Not a decorator of it,
        # which would import the compiler with this module: longer than all the rest takes.
        loop = torch.compiler.disable(self._decode_freely, recursive=False)
        self._decode_freely = loop  # type: ignore[method-assign]
        super().compile(*args, **kwargs)

    def _decode(self, tokens: Tensor, features: Tensor, memory: Tensor, exists: Tensor) -> Tensor:
        decoder_input = torch.cat([tokens, features[:, : tokens.size(1)]], dim=-1)
        return self.transformer.decode(decoder_input, memory, exists)

    def _decode_freely(
        self, start: Tensor, features: Tensor, skip: Tensor, memory: Tensor, exists: Tensor
    ) -> Tensor:
        """Decode token by token, each from the outputs before it; `start` is (B, 1, p*C)."""
        if torch.is_grad_enabled():  # which a cache does not allow, as it is written in place
            tokens = start
            for length in range(1, self.target_tokens + 1):
                output = self._decode(tokens, features, memory, exists) + skip[:, :length]
                tokens = torch.cat([start, output], dim=1)
            return output
        cache = self.transformer.new_cache(memory, self.target_tokens, exists)
        outputs = [start[:, 0]]
        for position in range(self.target_tokens):
            decoder_input = torch.cat([outputs[-1], features[:, position]], dim=-1)
            output = self.transformer.decode_next(decoder_input, cache, position)
            outputs.append(output + skip[:, position])
        return torch.stack(outputs[1:], dim=1)

    def _patch(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.patch_len)).flatten(2)  # (B, T*p, C) -> (B, T, p*C)

    def _fill_last_patch(self, x: Tensor) -> Tensor:
        missing = self.target_tokens * self.patch_len - self.horizon
        return F.pad(x, (0, 0, 0, missing))  # (B, H, C) -> (B, T*p, C)

    def _linear_skip(self, context: Tensor) -> Tensor:
        if self.skip is None:
            return context.new_zeros(1, self.target_tokens, 1)
        forecast = self.skip(context.transpose(1, 2)).transpose(1, 2)  # (B, H, C)
        return self._patch(self._fill_last_patch(forecast))


def _beside(tokens: Tensor, static: Tensor) -> Tensor:
    """Join to each token (B, T, F) what all tokens of a sample share, (B, 1, Fs)."""
    if not static.size(-1):
        return tokens
    return torch.cat([tokens, static.expand(-1, tokens.size(1), -1)], dim=-1)
