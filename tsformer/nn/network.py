"""ForecastNetwork: TFModel over patches, with instance norm, linear skip and two decodings."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tsformer.nn.embedding import CategoricalEmbedding
from tsformer.nn.heads import make_head
from tsformer.nn.norm import instance_statistics
from tsformer.nn.skip import make_skip
from tsformer.nn.transformer import TFModel


class Window(NamedTuple):
    """A context as the decoder needs it.

    Attributes:
        mean: what the instance norm subtracts, (B, 1, 1, C).
        std: of the instance norm, (B, 1, 1, C).
        memory: the encoder's output, (B, P, D).
        exists: tokens of the context with an observed value, (B, P).
        features: known over the horizon, (B, T, p*F).
        skip: the linear map of the context, (B, T, p*C).
        start: the last token of the context, (B, 1, p*C).
    """

    mean: Tensor
    std: Tensor
    memory: Tensor
    exists: Tensor
    features: Tensor
    skip: Tensor
    start: Tensor


class ForecastNetwork(nn.Module):
    """Forecasts H steps of C channels from L steps, by a TFModel over patches of p steps.

    A token is p consecutive steps of all channels and features (patches: Nie et al. 2023), and the
    static features beside them. The transformer's output is added to a linear map of the context
    (the linear skip), both in units of the instance norm. Two decodings fill the horizon:

    - `parallel`: the decoder sees one learned query a token, and answers in one pass.
    - `autoregressive`: the decoder sees the target shifted by one token, the last token of the
      context standing first; forecasts walk token by token over their own output.

    What it says of a value, a point or a distribution, is its head's matter; see `heads`.
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
        linear_skip: str,
        head: str = "point",
        quantiles: Sequence[float] = (),
        zero_output: bool = False,
        instance_center: str = "mean",
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
            linear_skip: the linear map from context to horizon, see `make_skip`.
            head: see `make_head`.
            quantiles: levels of the head `quantile`.
            zero_output: let the transformer's output begin at 0, so that training begins at the
                linear skip alone.
            instance_center: what the instance norm subtracts, see `instance_statistics`.
            activation_checkpointing: see `TFModel`.

        Raises:
            ValueError: `patch_len` does not divide `context_length`; an unknown decoding, head,
                linear skip or center.
        """
        super().__init__()
        if instance_center not in ("mean", "last"):
            raise ValueError(f"instance_center={instance_center!r} is neither 'mean' nor 'last'")
        if context_length % patch_len:
            raise ValueError(
                f"context_length={context_length} is not a multiple of patch_len={patch_len}"
            )
        if decoding not in ("parallel", "autoregressive"):
            raise ValueError(f"decoding={decoding!r} is neither 'parallel' nor 'autoregressive'")
        self.horizon = horizon
        self.patch_len = patch_len
        self.instance_norm = instance_norm
        self.instance_center = instance_center
        self.num_channels = num_channels
        self.head = make_head(head, quantiles)
        self.target_tokens = -(-horizon // patch_len)
        self.embed_features = CategoricalEmbedding(cardinalities)
        self.embed_static = CategoricalEmbedding(static_cardinalities)
        num_past = self.embed_features.output_size(len(cardinalities))
        num_future = self.embed_features.output_size(num_future_features)
        num_static = self.embed_static.output_size(len(static_cardinalities))
        self.transformer = TFModel(
            encoder_input_size=patch_len * (num_channels + num_past) + num_static,
            decoder_input_size=patch_len * (num_channels + num_future) + num_static,
            output_size=patch_len * num_channels * self.head.num_parameters,
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
        self.skip = make_skip(linear_skip, context_length, horizon, patch_len, num_channels)
        if zero_output:
            nn.init.zeros_(self.transformer.output.weight)
            nn.init.zeros_(self.transformer.output.bias)

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
            The head's parameters of each value, in the units of `context`, (B, H, C, K).

        Raises:
            ValueError: autoregressive decoding got one of `target` and `target_observed` alone.
        """
        inputs = context, observed, past_features, future_features, static_features
        window = self._encode(*inputs)
        if self.queries is not None:
            tokens = self.queries.expand(context.size(0), -1, -1)
            parameters = self._decode(tokens, window)
        elif target is not None or target_observed is not None:
            if target is None or target_observed is None:
                raise ValueError("target and target_observed are needed together")
            shifted = (target - window.mean[:, 0]) / window.std[:, 0]  # (B, H, C)
            shifted = self._patch(self._fill_last_patch(shifted.where(target_observed, 0.0)))
            tokens = torch.cat([window.start, shifted[:, :-1]], dim=1)
            parameters = self._decode(tokens, window)
        else:
            parameters, _ = self._decode_freely(window)
        return parameters.flatten(1, 2)[:, : self.horizon]

    @torch.no_grad()  # paths need the cache, and their draws have no gradient
    def sample(
        self,
        context: Tensor,
        observed: Tensor,
        past_features: Tensor,
        future_features: Tensor,
        static_features: Tensor,
        *,
        num_samples: int,
    ) -> Tensor:
        """Draw sample paths of the horizon, by torch's generator.

        Autoregressive decoding feeds each path its own values; parallel decoding draws each step by
        itself. The context is encoded once for all paths.

        Args:
            context: see `forward`, and so for the four after it.
            observed: (B, L, C).
            past_features: (B, L, F).
            future_features: (B, H, F).
            static_features: (B, F).
            num_samples: paths of each window, M.

        Returns:
            Values in the units of `context`, (B, M, H, C).
        """
        inputs = context, observed, past_features, future_features, static_features
        if self.queries is not None:
            parameters = self(*inputs)[:, None]  # (B, 1, H, C, K)
            return self.head.sample(parameters.expand(-1, num_samples, *parameters.shape[2:]))
        _, values = self._decode_freely(self._encode(*inputs), self.head.sample, num_samples)
        return values.flatten(1, 2)[:, : self.horizon].unflatten(0, (-1, num_samples))

    def _encode(
        self,
        context: Tensor,
        observed: Tensor,
        past_features: Tensor,
        future_features: Tensor,
        static_features: Tensor,
    ) -> Window:
        if self.instance_norm:
            mean, std = instance_statistics(context, observed, self.instance_center)  # (B, 1, C)
        else:
            mean, std = torch.zeros_like(context[:, :1]), torch.ones_like(context[:, :1])
        context = ((context - mean) / std).where(observed, 0.0)
        static = self.embed_static(static_features)[:, None]  # (B, 1, F)
        past = self.embed_features(past_features)
        source = self._patch(torch.cat([context, past], dim=-1))  # (B, P, p*(C+F))
        source = _beside(source, static)
        exists = self._patch(observed).any(dim=-1)  # (B, P)
        # Softmax over no key is undefined: a context without any value attends to its zeros.
        exists = exists | ~exists.any(dim=1, keepdim=True)
        future = self.embed_features(future_features)
        features = self._patch(self._fill_last_patch(future))  # (B, T, p*F)
        return Window(
            mean=mean[:, None],
            std=std[:, None],
            memory=self.transformer.encode(source, exists),
            exists=exists,
            features=_beside(features, static),
            skip=self._linear_skip(context),
            start=self._patch(context[:, -self.patch_len :]),
        )

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile as `nn.Module.compile`, decoding token by token as one graph for all tokens."""
        # Its loop over the tokens is left out, so that it is not unrolled. Not a decorator of it,
        # which would import the compiler with this module: longer than all the rest takes.
        loop = torch.compiler.disable(self._decode_freely, recursive=False)
        self._decode_freely = loop  # type: ignore[method-assign]
        super().compile(*args, **kwargs)

    def _decode(self, tokens: Tensor, window: Window) -> Tensor:
        """Decode tokens (B, T, p*C) as parameters, (B, T, p, C, K)."""
        decoder_input = torch.cat([tokens, window.features[:, : tokens.size(1)]], dim=-1)
        output = self.transformer.decode(decoder_input, window.memory, window.exists)
        return self._head_parameters(output, window.skip[:, : tokens.size(1)], window)

    def _decode_freely(
        self,
        window: Window,
        choose: Callable[[Tensor], Tensor] | None = None,
        num_paths: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """Decode token by token, each from the values chosen before it.

        Args:
            window: the context, encoded.
            choose: takes values from parameters, the head's point forecast when None.
            num_paths: paths from each window, M.

        Returns:
            Parameters (B*M, T, p, C, K) and the values chosen, (B*M, T, p, C).
        """
        choose = choose or self.head.point
        parameters, values = [], []
        if torch.is_grad_enabled():  # which a cache does not allow, as it is written in place
            tokens = window.start
            for _ in range(self.target_tokens):
                decoded = self._decode(tokens, window)
                chosen = choose(decoded)
                tokens = torch.cat([window.start, self._as_tokens(chosen, window)], dim=1)
            return decoded, chosen
        cache = self.transformer.new_cache(
            window.memory, self.target_tokens, window.exists, num_copies=num_paths
        )
        if num_paths > 1:
            needed = ("mean", "std", "features", "skip", "start")  # the cache has its memory
            parts = {name: getattr(window, name) for name in needed}
            parts = {name: x.repeat_interleave(num_paths, dim=0) for name, x in parts.items()}
            window = window._replace(**parts)
        token = window.start
        for position in range(self.target_tokens):
            here = slice(position, position + 1)
            decoder_input = torch.cat([token, window.features[:, here]], dim=-1)
            output = self.transformer.decode_next(decoder_input[:, 0], cache, position)
            parameters.append(self._head_parameters(output[:, None], window.skip[:, here], window))
            values.append(choose(parameters[-1]))
            token = self._as_tokens(values[-1], window)
        return torch.cat(parameters, dim=1), torch.cat(values, dim=1)

    def _head_parameters(self, output: Tensor, skip: Tensor, window: Window) -> Tensor:
        """Return the head's parameters of tokens, (B, T, p, C, K), given (B, T, p*C*K)."""
        num_parameters = self.head.num_parameters
        raw = output.unflatten(-1, (self.patch_len, self.num_channels, num_parameters))
        location = skip.unflatten(-1, (self.patch_len, self.num_channels))[..., None]
        raw = raw.to(location.dtype) + F.pad(location, (0, num_parameters - 1))
        return self.head.parameters(raw, window.mean, window.std)

    def _as_tokens(self, values: Tensor, window: Window) -> Tensor:
        """Return values in scaled units, (B, T, p, C), as decoder tokens, (B, T, p*C)."""
        return ((values - window.mean) / window.std).flatten(2)

    def _patch(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.patch_len)).flatten(2)  # (B, T*p, C) -> (B, T, p*C)

    def _fill_last_patch(self, x: Tensor) -> Tensor:
        missing = self.target_tokens * self.patch_len - self.horizon
        return F.pad(x, (0, 0, 0, missing))  # (B, H, C) -> (B, T*p, C)

    def _linear_skip(self, context: Tensor) -> Tensor:
        if self.skip is None:
            size = (context.size(0), self.target_tokens, self.patch_len * self.num_channels)
            return context.new_zeros(size)
        return self._patch(self._fill_last_patch(self.skip(context)))


def _beside(tokens: Tensor, static: Tensor) -> Tensor:
    """Join to each token (B, T, F) what all tokens of a sample share, (B, 1, Fs)."""
    if not static.size(-1):
        return tokens
    return torch.cat([tokens, static.expand(-1, tokens.size(1), -1)], dim=-1)
