"""Write golden folders: models, tables and the forecasts that releases to come have to give too.

`python tests/golden/make.py` writes those of today's schema beside itself. Folders of a schema that
was released are never written again: what they hold is what users have.
"""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsformer import Forecaster
from tsformer.config import ModelConfig
from tsformer.data.columns import Columns
from tsformer.model.config import (
    EncoderConfig,
    ForecasterConfig,
    ScalerConfig,
    network_settings,
)
from tsformer.model.conformal import ConformalOffsets
from tsformer.model.folder import SCHEMA_VERSION
from tsformer.nn import ForecastNetwork
from tsformer.settings import parse

L, H, P = 24, 7, 6  # the last token reaches beyond the horizon
ROWS = 40
LEVELS = [0.05, 0.1, 0.5, 0.9, 0.95]
LONG = Columns("unique_id", "ds", ("y",))


@dataclass(frozen=True)
class Golden:
    """One kind of forecaster, and what it is asked for.

    Attributes:
        columns: of the table.
        model: fields of `ModelConfig` that differ from the others'.
        config: fields of `ForecasterConfig` that differ from the others'.
        arguments: of `predict`.
    """

    columns: Columns = LONG
    model: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)


GOLDEN = {
    "parallel": Golden(arguments={"horizon": 10}),
    "quantile-conformal": Golden(
        model={"head": "quantile", "quantiles": LEVELS, "linear_skip": "none"},
        config={"conformal": True},
        arguments={"level": [80, 85], "quantiles": [0.3], "adaptive": True},
    ),
    "autoregressive-covariates": Golden(
        columns=Columns(
            "shop",
            "day",
            ("sales",),
            past_covariates=("visitors",),
            future_covariates=("price", "weather"),
            static_covariates=("region", "size"),
            categorical=("weather", "region"),
        ),
        model={"decoding": "autoregressive"},
        config={"freq": "D"},
    ),
    "joint": Golden(
        columns=Columns(None, "date", ("a", "b")),
        model={"channels": "joint", "instance_norm": False},
        config={"channels": ["a", "b"], "calendar": False, "freq": "MS"},
    ),
}
VALUES: dict[str, list[str]] = {"weather": ["rain", "snow", "sun"], "region": ["north", "south"]}


def make_table(columns: Columns, freq: str) -> pd.DataFrame:
    """Return a table of two series, with a missing value and a category that no model has seen."""
    rng = np.random.default_rng(7)
    parts = []
    for id in ("a", "b") if columns.id else (None,):
        days = pd.date_range("2024-01-01", periods=ROWS + H, freq=freq)
        part: dict[str, Any] = {} if id is None else {columns.id: id}
        part[columns.time] = days
        for name in columns.target:
            values = 10 + np.sin(np.arange(len(days)) / 2) + rng.normal(0, 0.3, len(days)).cumsum()
            values[30] = np.nan
            part[name] = values.round(3)
        for name in columns.covariates + columns.static_covariates:
            static = name in columns.static_covariates
            size = 1 if static else len(days)
            if name in columns.categorical:
                drawn = rng.choice([*VALUES[name], "hail"], size)
            else:
                drawn = rng.normal(5, 2, size).round(3)
            part[name] = drawn[0] if static else drawn
        parts.append(pd.DataFrame(part))
    return pd.concat(parts, ignore_index=True)


def make_forecaster(golden: Golden) -> Forecaster:
    """Return a forecaster with random weights."""
    columns = golden.columns
    model = {
        "d_model": 8,
        "num_heads": 2,
        "d_ff": 16,
        "num_layers": 2,
        "num_decoder_layers": 1,
        "dropout": 0.1,
        "attention_dropout": 0.0,
        "patch_len": P,
        "decoding": "parallel",
        "channels": "independent",
        "instance_norm": True,
        "linear_skip": "full",
    }
    config = {
        "context_length": L,
        "horizon": H,
        "freq": "h",
        "regular": True,
        "duplicates": "error",
        "time_zone": None,
        "calendar": True,
        "holidays": None,
        "columns": columns,
        "channels": None,
        "model": parse(ModelConfig, model | golden.model),
        "scaler": ScalerConfig(
            per="series",
            method="standard",
            transform="none",
            ids=["a", "b"],
            mean=[9.0, 11.0],
            std=[1.5, 2.5],
            fallback_mean=10.0,
            fallback_std=2.0,
        ),
        "covariates": encoder(columns.covariates),
        "static": encoder(columns.static_covariates),
        "versions": {},
    }
    parsed = parse(ForecasterConfig, config | golden.config)
    torch.manual_seed(0)
    network = ForecastNetwork(**network_settings(parsed))
    conformal = None
    if parsed.conformal:
        offsets = np.random.default_rng(1).normal(0, 0.1, (3, H, 1, len(LEVELS)))
        conformal = ConformalOffsets(tuple(LEVELS), offsets.astype(np.float32))
    return Forecaster(network, parsed, conformal)


def encoder(names: tuple[str, ...]) -> EncoderConfig:
    """Return an encoder of covariates."""
    return EncoderConfig(
        mean=[0.0 if name in VALUES else 5.0 for name in names],
        std=[1.0 if name in VALUES else 2.0 for name in names],
        vocabularies={name: VALUES[name] for name in names if name in VALUES},
    )


def write(folder: Path, golden: Golden) -> None:
    """Write the model, `history.csv`, `future.csv`, `arguments.json` and `forecast.csv`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    forecaster, columns = make_forecaster(golden), golden.columns
    table = make_table(columns, forecaster.config.freq)
    stamps = table[columns.time].drop_duplicates().sort_values()
    ahead = table[columns.time] >= stamps.iloc[ROWS]
    table[~ahead].to_csv(folder / "history.csv", index=False)
    if columns.future_covariates:
        table[ahead].drop(columns=list(columns.target)).to_csv(folder / "future.csv", index=False)
    (folder / "arguments.json").write_text(json.dumps(golden.arguments) + "\n")
    forecaster.save(folder / "model")
    forecast = predict(folder)
    forecast.to_csv(folder / "forecast.csv", index=False)


def predict(folder: Path) -> pd.DataFrame:
    """Return what a golden model forecasts today."""
    future = folder / "future.csv"
    arguments = json.loads((folder / "arguments.json").read_text())
    return Forecaster.load(folder / "model").predict(
        folder / "history.csv", future if future.exists() else None, **arguments
    )


if __name__ == "__main__":
    for kind, golden in GOLDEN.items():
        write(Path(__file__).parent / f"{SCHEMA_VERSION}-{kind}", golden)
