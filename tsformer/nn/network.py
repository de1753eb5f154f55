"""ForecastNetwork: TFModel over patches, with instance norm, linear skip and two decodings."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsformer.nn.norm import instance_statistics
from tsformer.nn.transformer import TFModel


class ForecastNetwork(nn.Module):
    """Forecasts H steps of C channels from L steps, by a TFModel over patches of p steps.

    A token is p consecutive steps of all channels and features (patches: Nie et al. 2023). The
    transformer's output is added to a linear map of the context (the linear skip), both in
    units of the instance norm. Two decodings fill the horizon:

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
        num_past_features: int,
        num_future_features: int,
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
    ) -> None:
        """Build the network.

        Args:
            context_length: steps seen, L; a multiple of `patch_len`.
            horizon: steps forecast, H; any number, the last token may reach beyond it.
            num_channels: values of a step that are forecast together, C.
            num_past_features: features known over the context.
            num_future_features: features known over the horizon.
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
        self.transformer = TFModel(
            encoder_input_size=patch_len * (num_channels + num_past_features),
            decoder_input_size=patch_len * (num_channels + num_future_features),
            output_size=patch_len * num_channels,
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            num_layers=num_layers,
            num_decoder_layers=num_decoder_layers,
            dropout=dropout,
            attention_dropout=attention_dropout,
            max_length=max(context_length // patch_len, self.target_tokens),
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
        target: Tensor | None = None,
        target_observed: Tensor | None = None,
    ) -> Tensor:
        """Forecast the horizon.

        Args:
            context: last L steps of the target, (B, L, C).
            observed: True where `context` is a measurement, (B, L, C).
            past_features: calendar and covariates over the context, (B, L, F).
            future_features: what of them is known over the horizon, (B, H, F).
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
        source = self._patch(torch.cat([context, past_features], dim=-1))  # (B, P, p*(C+F))
        exists = self._patch(observed).any(dim=-1)  # (B, P)
        # Softmax over no key is undefined: a context without any value attends to its zeros.
        exists = exists | ~exists.any(dim=1, keepdim=True)
        memory = self.transformer.encode(source, exists)

        features = self._patch(self._fill_last_patch(future_features))  # (B, T, p*F)
        skip = self._linear_skip(context)  # (B, T, p*C)

        def decode(tokens: Tensor) -> Tensor:
            length = tokens.size(1)
            decoder_input = torch.cat([tokens, features[:, :length]], dim=-1)
            return self.transformer.decode(decoder_input, memory, exists) + skip[:, :length]

        if self.queries is not None:
            output = decode(self.queries.expand(context.size(0), -1, -1))
        else:
            start = self._patch(context[:, -self.patch_len :])  # (B, 1, p*C)
            if target is not None and target_observed is not None:
                shifted = ((target - mean) / std).where(target_observed, 0.0)
                shifted = self._patch(self._fill_last_patch(shifted))[:, :-1]
                output = decode(torch.cat([start, shifted], dim=1))
            else:
                tokens = start
                for _ in range(self.target_tokens):
                    output = decode(tokens)
                    tokens = torch.cat([start, output], dim=1)
        forecast = output.unflatten(-1, (self.patch_len, -1)).flatten(1, 2)  # (B, T*p, C)
        return forecast[:, : self.horizon] * std + mean

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
