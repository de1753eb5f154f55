"""Forecaster: a fitted network with all it needs to turn a table into forecasts."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from tsformer.config import Config, ModelConfig, Positive, TimeZone, parse
from tsformer.data.calendar import calendar_features
from tsformer.data.columns import Columns
from tsformer.data.future import fill_future
from tsformer.data.parsing import check_freq
from tsformer.data.reading import Source, errors_naming, read_columns, read_frame
from tsformer.data.scaling import Scaler
from tsformer.data.store import SeriesStore
from tsformer.data.table import SeriesTable, build_table
from tsformer.data.types import FloatArray
from tsformer.data.windows import WindowDataset, WindowIndex
from tsformer.errors import ConfigError, DataError, ModelFolderError
from tsformer.nn import ForecastNetwork

SCHEMA_VERSION = 1
WEIGHTS = "model.safetensors"
CONFIG = "config.json"


Finite = Annotated[float, Field(allow_inf_nan=False)]
Scale = Annotated[float, Field(allow_inf_nan=False, gt=0)]


class ScalerConfig(Config):
    """A `Scaler` as plain lists."""

    ids: list[str] = Field(min_length=1)
    mean: list[list[Finite]]
    std: list[list[Scale]]
    covariate_mean: list[Finite]
    covariate_std: list[Scale]


class ForecasterConfig(Config):
    """What `config.json` in a model folder holds: data, never names of code to run."""

    schema_version: Literal[1] = 1
    context_length: int = Positive
    horizon: int = Positive
    freq: str
    regular: bool
    time_zone: TimeZone | None
    calendar: bool
    columns: Columns
    model: ModelConfig
    scaler: ScalerConfig
    versions: dict[str, str]

    @property
    def num_channels(self) -> int:
        """Series forecast together, C."""
        return len(self.scaler.ids) if self.model.channels == "joint" else 1

    @model_validator(mode="after")
    def _check_scaler(self) -> Self:
        scaler, channels = self.scaler, self.num_channels
        rows = len(scaler.ids) // channels
        if len(set(scaler.ids)) < len(scaler.ids):
            raise ValueError("scaler.ids: an id stands twice")
        for name, values in (("mean", scaler.mean), ("std", scaler.std)):
            if len(values) != rows or any(len(row) != channels for row in values):
                raise ValueError(f"scaler.{name}: not one number for each of scaler.ids")
        covariates = len(self.columns.covariates)
        if {len(scaler.covariate_mean), len(scaler.covariate_std)} != {covariates}:
            raise ValueError("scaler: not one covariate_mean and covariate_std a covariate")
        check_freq(self.freq)
        return self


def network_settings(
    model: ModelConfig,
    columns: Columns,
    *,
    context_length: int,
    horizon: int,
    num_channels: int,
    freq: str,
    calendar: bool,
) -> dict[str, Any]:
    """Return the arguments of the `ForecastNetwork` that fits these data."""
    num_calendar = 0
    if calendar:
        num_calendar = calendar_features(pd.DatetimeIndex(["2000-01-01"]), freq).shape[1]
    return {
        "context_length": context_length,
        "horizon": horizon,
        "num_channels": num_channels,
        "num_past_features": num_calendar + len(columns.covariates),
        "num_future_features": num_calendar + len(columns.future_covariates),
        **model.model_dump(exclude={"channels"}),
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
        frame: Source,
        future: Source | None = None,
        *,
        batch_size: int = 1024,
    ) -> pd.DataFrame:
        """Forecast the H steps after the end of each series.

        Series shorter than the context are used as far as they go. Series not seen in training
        are scaled by their own rows.

        Args:
            frame: history: a table with the columns of the training data, or a long one with
                `unique_id, ds, y` and the covariates. More rows than the context are welcome. A
                pandas or Polars frame, a pyarrow table, or a path; see `tsformer.data.reading`.
            future: with future covariates, their values over the horizon: a table of the same
                form without the target.
            batch_size: series forecast at once.

        Returns:
            `unique_id, ds, tsformer`, a pandas frame: H rows a series, series in order of
            appearance.

        Raises:
            DataError: the table cannot be used, or future covariates do not cover the horizon.
        """
        rows, columns = read_columns(frame, self._columns_of)
        with errors_naming(frame):
            history = build_table(rows, columns, freq=self.config.freq, regular=self.config.regular)
            _refuse_unobserved(history)
        if future is not None:
            with errors_naming("future"):
                future = read_frame(future, columns.id)
        table = fill_future(history.extended(self.horizon), future, columns, self.horizon)
        if self.config.model.channels == "joint":
            channels = self.config.scaler.ids
            history, table = history.joined(channels), table.joined(channels)
        scaler = self._scaler().adapt(table)
        store = SeriesStore.build(
            table,
            scaler,
            calendar=self.config.calendar,
            time_zone=self.config.time_zone or table.time_zone,
        )
        first = table.offsets[:-1] + history.lengths
        windows = WindowDataset(
            store,
            WindowIndex(first, np.arange(1, len(first) + 1)),
            context_length=self.config.context_length,
            horizon=self.horizon,
            num_future_covariates=len(columns.future_covariates),
        )
        forecast = self._forecast(windows, batch_size)  # (S, H, C)
        forecast = forecast * scaler.std[:, None] + scaler.mean[:, None]
        if not np.isfinite(forecast).all():
            wrong = int(np.argmax(~np.isfinite(forecast).all(axis=(1, 2))))
            raise DataError(
                f"series {table.ids[wrong]!r}: its values, or its covariates', are too large to "
                "forecast from."
            )
        position = (table.starts + history.lengths)[:, None] + np.arange(self.horizon)  # (S, H)
        num_channels = forecast.shape[2]
        return pd.DataFrame(
            {
                "unique_id": np.repeat(_original_ids(rows, columns, table.ids), self.horizon),
                "ds": table.stamps(np.repeat(position, num_channels, axis=0).ravel()),
                "tsformer": forecast.transpose(0, 2, 1).ravel(),
            }
        )

    def _scaler(self) -> Scaler:
        s = self.config.scaler
        arrays = (s.mean, s.std, s.covariate_mean, s.covariate_std)
        return Scaler(tuple(s.ids), *(np.array(x, dtype=np.float64) for x in arrays))

    def _columns_of(self, names: Sequence[str]) -> Columns:
        own = self.config.columns
        long = Columns("unique_id", "ds", ("y",), own.past_covariates, own.future_covariates)
        for columns in (own, long):
            if set(columns.names) <= set(names):
                return columns
        raise DataError(
            f"the table needs the columns {list(own.names)} or {list(long.names)}, "
            f"but has {list(names)}."
        )

    def _forecast(self, windows: WindowDataset, batch_size: int) -> FloatArray:
        device = next(self.network.parameters()).device
        parts = []
        with torch.inference_mode():
            for begin in range(0, len(windows), batch_size):
                batch = windows[np.arange(begin, min(begin + batch_size, len(windows)))]
                inputs = (
                    batch.context,
                    batch.observed,
                    batch.past_features,
                    batch.future_features,
                )
                parts.append(self.network(*(x.to(device) for x in inputs)).double().cpu().numpy())
        return np.concatenate(parts)


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
    settings = network_settings(
        config.model,
        config.columns,
        context_length=config.context_length,
        horizon=config.horizon,
        num_channels=config.num_channels,
        freq=config.freq,
        calendar=config.calendar,
    )
    try:
        with torch.device("meta"):  # shapes alone: nothing is allocated for sizes that do not fit
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


def _shapes(state: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in state.items()}


def _refuse_unobserved(history: SeriesTable) -> None:
    observed = ~np.isnan(history.target).all(axis=1)
    counts = np.bincount(history.row_series, observed, len(history.lengths))
    if (counts == 0).any():
        raise DataError(
            f"series {history.ids[int(np.argmin(counts))]!r} has no value to forecast from "
            f"({int((counts == 0).sum())} of {len(counts)} series have none). Leave it out."
        )


def _original_ids(frame: pd.DataFrame, columns: Columns, ids: Sequence[str]) -> pd.Index:
    """Return the ids with the values and the type they have in the frame."""
    if columns.id is None:
        return pd.Index(ids)
    values = frame[columns.id].drop_duplicates()
    first = pd.Index(values.astype(str)).drop_duplicates()
    return pd.Index(values)[first.get_indexer(pd.Index(ids))]
