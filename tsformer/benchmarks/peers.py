"""NeuralForecast and Darts beside tsformer, with layers of equal sizes.

Each function maps the name of a row to what is timed there, or to None where the library that it
takes is not installed. The names say what even equal sizes leave different.
"""

import logging
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from torch import Tensor, nn

T = TypeVar("T")

IMPORTS = {
    "neuralforecast": "from neuralforecast import NeuralForecast",
    "darts": "from darts.models import TransformerModel",
}
QUIET = "import logging; logging.disable(logging.WARNING); "
TRAINER = {
    "accelerator": "cpu",
    "enable_model_summary": False,
    "enable_progress_bar": False,
    "logger": False,
}


class Sizes(NamedTuple):
    """Of a transformer's layers."""

    d_model: int
    num_heads: int
    d_ff: int
    num_layers: int
    num_decoder_layers: int
    dropout: float


class Network(NamedTuple):
    """A peer's network, what it takes, and the target in the shape of what it returns."""

    model: nn.Module
    inputs: tuple[Any, ...]
    target: Tensor


def networks(source: Tensor, target: Tensor, sizes: Sizes) -> dict[str, Network | None]:
    """Return the networks that map source (B, L, C) to target (B, H, C)."""
    (_, context_length, num_channels), horizon = source.shape, target.shape[1]

    def neuralforecast() -> Network:
        model = vanilla_transformer(context_length, horizon, sizes)
        inputs = {"insample_y": source[..., :1], "futr_exog": None}
        return Network(model.train(), (inputs,), target[..., :1])

    def darts() -> Network:
        from darts import TimeSeries

        model = transformer_model(context_length, horizon, sizes)
        values = np.zeros((context_length + horizon, num_channels), dtype=np.float32)
        model.fit(TimeSeries.from_values(values))  # which creates the network
        return Network(model.model.train(), ((source, None, None),), target[..., None])

    return {
        "NeuralForecast VanillaTransformer, 1 channel": built("neuralforecast", neuralforecast),
        "Darts TransformerModel, 1 token of decoder": built("darts", darts),
    }


def predictions(
    frame: pd.DataFrame, context_length: int, horizon: int, sizes: Sizes, batch_size: int
) -> dict[str, Callable[[], Any] | None]:
    """Return actions that forecast each series of a long frame, `batch_size` series at once."""

    def neuralforecast() -> Callable[[], Any]:
        from neuralforecast import NeuralForecast

        model = vanilla_transformer(context_length, horizon, sizes, batch_size)
        peer = NeuralForecast(models=[model], freq="h")
        peer.fit(frame)
        return lambda: peer.predict(frame)

    def darts() -> tuple[Callable[[], Any], Callable[[], Any]]:
        from darts import TimeSeries
        from darts.timeseries import to_group_dataframe

        model = transformer_model(context_length, horizon, sizes)

        def read() -> list[Any]:
            narrow = frame.astype({"y": "float32"})  # the type of the weights follows it
            return TimeSeries.from_group_dataframe(narrow, "unique_id", "ds", "y", freq="h")

        def predict(own: list[Any]) -> list[Any]:
            return model.predict(horizon, own, batch_size=batch_size, show_warnings=False)

        def write(forecasts: list[Any]) -> pd.DataFrame:
            return to_group_dataframe(forecasts, add_static_covariates="unique_id")

        series = read()
        model.fit(series[:1], max_samples_per_ts=1)
        return lambda: write(predict(read())), lambda: predict(series)

    framed, alone = built("darts", darts) or (None, None)
    found = {
        "NeuralForecast VanillaTransformer": built("neuralforecast", neuralforecast),
        "Darts TransformerModel, 1 token of decoder": framed,
    }
    return found | ({"the same, from and to Darts' own TimeSeries": alone} if alone else {})


def built(package: str, build: Callable[[], T]) -> T | None:
    """Build with a package, after which the process is silent; None where it is not installed."""
    if not find_spec(package):
        return None
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    return build()


def vanilla_transformer(
    context_length: int, horizon: int, sizes: Sizes, batch_size: int = 32
) -> Any:
    """Return NeuralForecast's model, whose fit takes one step."""
    from neuralforecast.models import VanillaTransformer

    return VanillaTransformer(
        h=horizon,
        input_size=context_length,
        decoder_input_size_multiplier=1 / context_length,  # 1 token before those of the horizon
        hidden_size=sizes.d_model,
        n_head=sizes.num_heads,
        conv_hidden_size=sizes.d_ff,
        encoder_layers=sizes.num_layers,
        decoder_layers=sizes.num_decoder_layers,
        dropout=sizes.dropout,
        max_steps=1,
        windows_batch_size=32,
        valid_batch_size=batch_size,
        inference_windows_batch_size=batch_size,
        **TRAINER,
    )


def transformer_model(context_length: int, horizon: int, sizes: Sizes) -> Any:
    """Return Darts' model, whose fit takes one pass over the windows."""
    from darts.models import TransformerModel

    return TransformerModel(
        input_chunk_length=context_length,
        output_chunk_length=horizon,
        d_model=sizes.d_model,
        nhead=sizes.num_heads,
        num_encoder_layers=sizes.num_layers,
        num_decoder_layers=sizes.num_decoder_layers,
        dim_feedforward=sizes.d_ff,
        dropout=sizes.dropout,
        n_epochs=1,
        pl_trainer_kwargs=TRAINER,
    )
