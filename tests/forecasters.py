"""Forecasters with random weights, and tables for them."""

import numpy as np
import pandas as pd
import torch

from tsformer.config import ModelConfig
from tsformer.data.columns import Columns
from tsformer.forecaster import Forecaster
from tsformer.model.config import (
    EncoderConfig,
    ForecasterConfig,
    ScalerConfig,
    network_settings,
)
from tsformer.model.conformal import ConformalOffsets
from tsformer.nn import ForecastNetwork

L, H = 24, 6
LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)


def make_forecaster(
    *,
    ids: tuple[str, ...] = ("a", "b"),
    columns: Columns | None = None,
    freq: str = "h",
    channels: str = "independent",
    time_zone: str | None = None,
    regular: bool = True,
    transform: str = "none",
    vocabularies: dict[str, list[str]] | None = None,
    head: str = "point",
    decoding: str = "parallel",
    quantiles: tuple[float, ...] = (),
    conformal: np.ndarray | None = None,
) -> Forecaster:
    """Return a forecaster with random weights."""
    columns = columns or Columns("unique_id", "ds", ("y",))
    vocabularies = vocabularies or {}
    model = ModelConfig.model_validate(
        {
            "d_model": 8,
            "num_heads": 2,
            "d_ff": 16,
            "num_layers": 1,
            "num_decoder_layers": 1,
            "dropout": 0.1,
            "attention_dropout": 0.0,
            "patch_len": 6,
            "decoding": decoding,
            "channels": channels,
            "instance_norm": True,
            "linear_skip": "full",
            "head": head,
            "quantiles": quantiles,
        }
    )
    config = ForecasterConfig(
        context_length=L,
        horizon=H,
        freq=freq,
        regular=regular,
        duplicates="error",
        time_zone=time_zone,
        calendar=True,
        holidays=None,
        columns=columns,
        channels=list(ids) if channels == "joint" else None,
        model=model,
        scaler=ScalerConfig(
            per="series",
            method="standard",
            transform=transform,
            ids=list(ids),
            mean=(np.arange(len(ids)) + 5.0).tolist(),
            std=[2.0] * len(ids),
            fallback_mean=0.0,
            fallback_std=1.0,
        ),
        covariates=encoder(columns.covariates, vocabularies),
        static=encoder(columns.static_covariates, vocabularies),
        conformal=conformal is not None,
        versions={},
    )
    torch.manual_seed(0)
    network = ForecastNetwork(**network_settings(config))
    offsets = None if conformal is None else ConformalOffsets(quantiles, np.float32(conformal))
    return Forecaster(network, config, offsets)


def encoder(names: tuple[str, ...], vocabularies: dict[str, list[str]]) -> EncoderConfig:
    """Return an encoder that scales by 1 and 3."""
    return EncoderConfig(
        mean=[1.0] * len(names),
        std=[3.0] * len(names),
        vocabularies={name: vocabularies[name] for name in names if name in vocabularies},
    )


def make_long(lengths: dict[str, int], freq: str = "h", seed: int = 0) -> pd.DataFrame:
    """Return a long table of random walks, given the length of each."""
    rng = np.random.default_rng(seed)
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "unique_id": id,
                    "ds": pd.date_range("2024-03-01", periods=length, freq=freq),
                    "y": rng.normal(size=length).cumsum() + 5,
                }
            )
            for id, length in lengths.items()
        ],
        ignore_index=True,
    )


def recognisable(groups: int, channels: int = 1, levels: int = 3) -> np.ndarray:
    """Return offsets (N+1, H, C, Q), all different, outwards from a median that stays."""
    size = (groups + 1, H, channels, levels)
    outwards = np.sign(np.arange(levels) - (levels - 1) / 2)
    return (np.arange(np.prod(size)).reshape(size) / 10 + 1) * outwards
