"""Forecaster: a fitted network with all it needs to turn a table into forecasts."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tsformer.config import Config, ModelConfig, Positive, TimeZone, parse
from tsformer.data.building import build_store
from tsformer.data.calendar import grid_features, num_calendar_features
from tsformer.data.checks import check_transform, listed
from tsformer.data.columns import Columns, find_columns
from tsformer.data.covariates import CovariateEncoder
from tsformer.data.findings import Findings
from tsformer.data.future import read_future
from tsformer.data.groups import group_series
from tsformer.data.parsing import check_freq, parse_texts
from tsformer.data.scaling import Scaler
from tsformer.data.sources import Source, errors_naming, open_source, read_frame
from tsformer.data.store import SeriesStore
from tsformer.data.types import Float32Array, FloatArray, IntArray
from tsformer.data.windows import BatchSampler, WindowBatch, WindowDataset, WindowIndex
from tsformer.errors import ConfigError, DataError, ModelFolderError
from tsformer.nn import ForecastNetwork

SCHEMA_VERSION = 2
WEIGHTS = "model.safetensors"
CONFIG = "config.json"


# Beyond these, float32 could not hold what is scaled by them.
Finite = Annotated[float, Field(allow_inf_nan=False, ge=-1e38, le=1e38)]
Scale = Annotated[float, Field(allow_inf_nan=False, ge=1e-38, le=1e38)]


class ScalerConfig(Config):
    """A `Scaler` as plain lists."""

    per: Literal["series", "dataset", "none"]
    method: Literal["standard", "robust"]
    transform: Literal["none", "log1p", "asinh"]
    ids: list[str] = Field(min_length=1)
    mean: list[Finite]
    std: list[Scale]
    fallback_mean: Finite
    fallback_std: Scale

    @classmethod
    def of(cls, scaler: Scaler) -> Self:
        """Return a scaler as plain lists."""
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(scaler).items()
        }
        return cls(**{**plain, "ids": list(scaler.ids)})

    def scaler(self) -> Scaler:
        """Return the scaler."""
        values = self.model_dump()
        ids, mean, std = (values.pop(name) for name in ("ids", "mean", "std"))
        return Scaler(ids=tuple(ids), mean=np.array(mean), std=np.array(std), **values)

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if len(set(self.ids)) < len(self.ids):
            raise ValueError("an id stands twice")
        if not len(self.ids) == len(self.mean) == len(self.std):
            raise ValueError("not one mean and one std for each of ids")
        return self


class EncoderConfig(Config):
    """A `CovariateEncoder` as plain lists."""

    mean: list[Finite]
    std: list[Scale]
    vocabularies: dict[str, list[str]]

    @classmethod
    def of(cls, encoder: CovariateEncoder) -> Self:
        """Return an encoder as plain lists."""
        return cls(
            mean=encoder.mean.tolist(),
            std=encoder.std.tolist(),
            vocabularies={name: list(texts) for name, texts in encoder.vocabularies.items()},
        )

    def encoder(self, names: Sequence[str]) -> CovariateEncoder:
        """Return the encoder of these columns."""
        vocabularies = {name: tuple(texts) for name, texts in self.vocabularies.items()}
        return CovariateEncoder(tuple(names), np.array(self.mean), np.array(self.std), vocabularies)


class ForecasterConfig(Config):
    """What `config.json` in a model folder holds: data, never names of code to run.

    `channels` names the series that are forecast together; it is None where each is by itself.
    """

    schema_version: Literal[2] = 2
    context_length: int = Positive
    horizon: int = Positive
    freq: str
    regular: bool
    duplicates: Literal["error", "first", "mean", "sum"]
    time_zone: TimeZone | None
    calendar: bool
    holidays: str | None
    columns: Columns
    channels: list[str] | None
    model: ModelConfig
    scaler: ScalerConfig
    covariates: EncoderConfig
    static: EncoderConfig
    versions: dict[str, str]

    @property
    def num_channels(self) -> int:
        """Series forecast together, C."""
        return len(self.channels) if self.channels else 1

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        columns = self.columns
        find_columns(columns.names, **{**asdict(columns), "weight": None})
        if not all(columns.names) or columns.weight:
            raise ValueError("columns: a name is empty, or there are weights")
        if (self.channels is not None) != (self.model.channels == "joint"):
            raise ValueError("channels: not as model.channels says")
        if self.channels is not None and len(set(self.channels)) < len(self.channels):
            raise ValueError("channels: a name stands twice")
        if not self.regular and columns.id:
            raise ValueError("regular: false takes a wide table")
        if self.model.channels == "joint" and columns.static_covariates and not columns.target[1:]:
            raise ValueError("joint series have no static covariates")
        return self

    @model_validator(mode="after")
    def _check_encoders(self) -> Self:
        for name, encoder, columns in (
            ("covariates", self.covariates, self.columns.covariates),
            ("static", self.static, self.columns.static_covariates),
        ):
            if not len(columns) == len(encoder.mean) == len(encoder.std):
                raise ValueError(f"{name}: not one mean and one std a covariate")
            if any(len(set(texts)) < len(texts) for texts in encoder.vocabularies.values()):
                raise ValueError(f"{name}: a category stands twice")
            if set(encoder.vocabularies) != set(columns) & set(self.columns.categorical):
                raise ValueError(f"{name}: not one vocabulary a categorical covariate")
        check_freq(self.freq)
        if self.calendar:
            num_calendar_features(self.freq, self.holidays)
        return self


def network_settings(config: ForecasterConfig) -> dict[str, Any]:
    """Return the arguments of the `ForecastNetwork` that a configuration describes."""
    num_calendar = num_calendar_features(config.freq, config.holidays) if config.calendar else 0
    covariates = config.covariates.encoder(config.columns.covariates)
    static = config.static.encoder(config.columns.static_covariates)
    return {
        "context_length": config.context_length,
        "horizon": config.horizon,
        "num_channels": config.num_channels,
        "cardinalities": [0] * num_calendar + list(covariates.cardinalities),
        "num_future_features": num_calendar + len(config.columns.future_covariates),
        "static_cardinalities": list(static.cardinalities),
        **config.model.model_dump(exclude={"channels", "compile"}),
    }


class Forecaster:
    """Forecasts the horizon after any table of series, seen in training or not.

    Attributes:
        network: the fitted network, in evaluation mode.
        config: everything else; see `ForecasterConfig`.
    """

    def __init__(self, network: ForecastNetwork, config: ForecasterConfig) -> None:
        """Hold a network and its configuration; users call `load` instead."""
        self.network = network.eval()
        self.config = config

    @property
    def horizon(self) -> int:
        """Steps forecast, H."""
        return self.config.horizon

    def save(self, folder: str | Path) -> None:
        """Write the model folder: `model.safetensors` and `config.json`, both or none.

        Raises:
            ModelFolderError: the folder exists and is not a model folder.
        """
        folder = Path(folder)
        if folder.exists() and {path.name for path in folder.iterdir()} != {CONFIG, WEIGHTS}:
            raise ModelFolderError(f"{folder}: exists and is not a model folder; not overwritten.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
            fresh = Path(scratch) / "new"
            fresh.mkdir()
            weights = {name: x.contiguous() for name, x in self.network.state_dict().items()}
            (fresh / WEIGHTS).write_bytes(save(weights))
            (fresh / CONFIG).write_text(self.config.model_dump_json(indent=1), encoding="utf-8")
            if folder.exists():
                folder.replace(Path(scratch) / "old")
            fresh.replace(folder)

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> "Forecaster":
        """Read a model folder.

        Args:
            folder: what `save` or `scripts/fit.py` wrote, such as `runs/electricity/.../model`.
            device: where the network computes.

        Raises:
            ModelFolderError: the folder is missing, incomplete, damaged or of another version.
        """
        folder = Path(folder)
        for name in (CONFIG, WEIGHTS):
            if not (folder / name).is_file():
                raise ModelFolderError(f"{folder}: not a model folder, it has no {name}.")
        config = _read_config(folder / CONFIG)
        return cls(_read_network(folder / WEIGHTS, config).to(device), config)

    def predict(
        self,
        frame: Any,
        future: Any | None = None,
        *,
        batch_size: int = 1024,
    ) -> pd.DataFrame:
        """Forecast the H steps after the end of each series.

        Series shorter than the context are used as far as they go. Series not seen in training
        are scaled by their own rows.

        Args:
            frame: history: a table with the columns of the training data, or a long one with
                `unique_id, ds, y` and the covariates. More rows than the context are welcome. A
                pandas or Polars frame, a pyarrow table, or a path; see `tsformer.data.sources`.
            future: with future covariates, their values over the horizon: a table of the same
                form without the target.
            batch_size: series forecast at once.

        Returns:
            `unique_id, ds, tsformer`, a pandas frame: H rows a series, series in order of
            appearance. Where a long table has several target columns, `target` names them.

        Raises:
            DataError: the table cannot be used, or future covariates do not cover the horizon.
            ConfigError: `batch_size` is below 1.
        """
        if batch_size < 1:
            raise ConfigError(f"batch_size={batch_size}: give the number of series, from 1 up.")
        config = self.config
        text_columns = [*filter(None, [config.columns.id]), *config.columns.categorical]
        with errors_naming(frame):
            rows = open_source(frame, text_columns)
            columns = self._columns_of(rows.names)
            history = build_store(
                rows,
                columns,
                Findings(),
                freq=config.freq,
                regular=config.regular,
                duplicates=config.duplicates,
                time_zone=config.time_zone,
            )
            history, groups = group_series(history, columns, config.model.channels, config.channels)
            _refuse_unusable(history, groups, config.scaler.transform)
        if future is not None:
            with errors_naming("future"):
                future = read_frame(future, text_columns)
        store = history.extended(self.horizon)
        ahead, categories = read_future(future, columns, store, groups, self.horizon)
        scaler = config.scaler.scaler().adapt(store)
        covariates = config.covariates.encoder(config.columns.covariates)
        windows = WindowDataset(
            store,
            WindowIndex.ahead(store, groups),
            scaler,
            covariates,
            config.static.encoder(config.columns.static_covariates),
            grid_features(
                store, calendar=config.calendar, holidays=config.holidays, zone=config.time_zone
            ),
            context_length=config.context_length,
            horizon=self.horizon,
            num_future_covariates=len(columns.future_covariates),
            future=_encode_future(covariates, ahead, categories),
        )
        batches = BatchSampler(windows.index, batch_size, shuffle=False)
        scaled = np.concatenate([forecast_windows(self.network, windows[i]) for i in batches])
        forecast = np.empty((len(store.ids), self.horizon))
        forecast[groups] = scaler.unscale(scaled, groups).transpose(0, 2, 1)
        if not np.isfinite(forecast).all():
            wrong = int(np.argmax(~np.isfinite(forecast).all(axis=1)))
            raise DataError(
                f"series {store.ids[wrong]!r}: its values, or its covariates', are too large to "
                "forecast from."
            )
        begins = np.empty(len(store.ids), dtype=np.int64)
        begins[groups] = windows.index.first[:, None]
        names = _series_columns(rows, columns, store)
        return pd.DataFrame(
            {name: np.repeat(values, self.horizon) for name, values in names.items()}
            | {
                "ds": store.stamps((begins[:, None] + np.arange(self.horizon)).ravel()),
                "tsformer": forecast.ravel(),
            }
        )

    def _columns_of(self, names: Sequence[str]) -> Columns:
        own = self.config.columns
        long = replace(own, id="unique_id", time="ds", target=("y",))
        for columns in (own, long):
            if set(columns.names) <= set(names):
                return columns
        raise DataError(
            f"the table needs the columns {list(own.names)} or {list(long.names)}, "
            f"but has {list(names)}."
        )


def forecast_windows(network: ForecastNetwork, batch: WindowBatch) -> FloatArray:
    """Return the network's forecasts of windows, in scaled units, (B, H, C)."""
    device = next(network.parameters()).device
    with torch.inference_mode():
        forecast: FloatArray = network(*(x.to(device) for x in batch.inputs)).double().cpu().numpy()
    return forecast


def _read_config(path: Path) -> ForecasterConfig:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("schema_version") != SCHEMA_VERSION:
            raise ModelFolderError(
                f"{path}: not of schema_version {SCHEMA_VERSION}; load it with the release of "
                "tsformer that wrote it."
            )
        return parse(ForecasterConfig, values)
    except (ValueError, RecursionError, ConfigError, DataError) as error:  # of JSON or a setting
        raise ModelFolderError(f"{path}: damaged ({error}).") from error


def _read_network(path: Path, config: ForecasterConfig) -> ForecastNetwork:
    settings = network_settings(config)
    try:
        # Shapes alone: nothing is allocated for sizes that do not fit.
        with torch.device("meta"), _Unfilled():
            expected = ForecastNetwork(**settings).state_dict()
        weights = load_file(path, device="cpu")
        if _shapes(weights) != _shapes(expected):
            raise ModelFolderError(
                f"{path}: its weights do not have the shapes that {CONFIG} says."
            )
        if not all(weight.isfinite().all() for weight in weights.values()):
            raise ModelFolderError(f"{path}: some weights are not finite numbers.")
        network = ForecastNetwork(**settings)
        network.load_state_dict(weights)
    except (SafetensorError, ValueError, RuntimeError, OSError) as error:
        raise ModelFolderError(f"{path}: damaged, or not for this {CONFIG} ({error}).") from error
    return network


class _Unfilled(TorchFunctionMode):
    """Leaves unfilled what has no values: to fill it, the meta device imports torch's compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.init.normal_:
            return kwargs["tensor"]
        if func is torch.randn:
            return torch.empty(*args)
        return func(*args, **kwargs)


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}


def _encode_future(
    covariates: CovariateEncoder, ahead: FloatArray, categories: Mapping[str, Sequence[str]]
) -> Float32Array:
    """Return future covariates as the network takes them, (N, H, Ff)."""
    num_past = len(covariates.names) - ahead.shape[2]
    padded = np.pad(ahead, ((0, 0), (0, 0), (0, num_past)), constant_values=np.nan)
    encoded = covariates.encode(padded, covariates.lookups(categories))
    return encoded[:, :, : ahead.shape[2]]


def _refuse_unusable(store: SeriesStore, groups: IntArray, transform: str) -> None:
    findings = Findings()
    check_transform(store, transform, findings)
    findings.refuse()
    observed = np.zeros(len(store.ids), dtype=np.int64)
    for series, values in store.blocks():
        observed += np.bincount(series, ~np.isnan(values), len(observed)).astype(np.int64)
    empty = groups[observed[groups].sum(axis=1) == 0, 0]
    if len(empty):
        names = listed([store.ids[series] for series in empty])
        raise DataError(
            f"{names}: no value to forecast from, in {len(empty)} of {len(groups)} series. Leave "
            "them out."
        )


def _series_columns(rows: Source, columns: Columns, store: SeriesStore) -> dict[str, Any]:
    """Return what names each series in a forecast, by column; ids as they are in the table."""
    if columns.id is None:
        return {"unique_id": pd.Index(store.ids)}
    parts = [chunk.frame[columns.id].drop_duplicates() for chunk in rows.chunks([columns.id])]
    values = pd.concat(parts, ignore_index=True)
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    _, codes = parse_texts(values, columns.id)
    ids = pd.Index(values)[~pd.Series(codes).duplicated()]
    if store.num_targets == 1:
        return {"unique_id": ids}
    return {
        "unique_id": ids.repeat(store.num_targets),
        "target": np.tile(store.targets, len(ids)),
    }
