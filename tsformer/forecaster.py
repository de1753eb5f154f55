"""Forecaster: a fitted network with all it needs to turn a table into forecasts."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsformer.checkpoint import read_checkpoint
from tsformer.conformal import ConformalOffsets, shifted, step_size, track
from tsformer.data.building import build_store
from tsformer.data.calendar import grid_features
from tsformer.data.checks import check_counts, check_transform, listed
from tsformer.data.columns import Columns
from tsformer.data.covariates import CovariateEncoder
from tsformer.data.findings import Findings
from tsformer.data.future import read_future
from tsformer.data.groups import group_series
from tsformer.data.parsing import parse_texts
from tsformer.data.sources import Source, errors_naming, open_source, read_frame
from tsformer.data.store import SeriesStore
from tsformer.data.types import Float32Array, FloatArray, IntArray
from tsformer.data.windows import BatchSampler, WindowDataset, WindowIndex, group_spans
from tsformer.errors import ConfigError, DataError
from tsformer.forecaster_config import ForecasterConfig
from tsformer.forecasting import forecast_windows, sample_windows
from tsformer.hub import download_folder, upload_folder
from tsformer.model_card import model_card
from tsformer.model_folder import read_folder, write_folder
from tsformer.nn import ForecastNetwork
from tsformer.nn.heads import at_levels

ADAPTIVE_WINDOWS = 100  # latest ones, by which intervals follow a series that drifts


class Forecaster:
    """Forecasts the horizon after any table of series, seen in training or not.

    Attributes:
        network: the fitted network, in evaluation mode.
        config: everything else but weights; see `ForecasterConfig`.
        conformal: what calibrates its quantiles, or None.
        card: the model card that it is saved with; None: one that says what `config` does.
    """

    def __init__(
        self,
        network: ForecastNetwork,
        config: ForecasterConfig,
        conformal: ConformalOffsets | None = None,
        card: str | None = None,
    ) -> None:
        """Hold a network and its configuration; users call `load` instead."""
        self.network = network.eval()
        self.config = config
        self.conformal = conformal
        self.card = card

    @property
    def horizon(self) -> int:
        """Steps forecast, H."""
        return self.config.horizon

    @property
    def is_probabilistic(self) -> bool:
        """Whether it forecasts distributions, not points alone."""
        return self.config.model.head != "point" or self.conformal is not None

    def save(self, folder: str | Path) -> None:
        """Write the model folder, all of it or nothing.

        It holds `model.safetensors`, `config.json` and a model card, `README.md`, which is there to
        be read and not needed to load.

        Raises:
            ModelFolderError: the folder exists and holds other files.
        """
        card = self.card or model_card(self.config)
        write_folder(Path(folder), self.network, self.config, self.conformal, card)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float32",
    ) -> "Forecaster":
        """Read a model folder.

        Args:
            folder: what `save` or `scripts/fit.py` wrote, such as `runs/electricity/.../model`.
            device: where the network computes, such as `cuda`.
            dtype: in which it computes, `float32` or `float64`.

        Raises:
            ModelFolderError: the folder is missing, incomplete, damaged, of a newer release, or
                its files are links that lead out of it.
            ConfigError: the device is not there, or another dtype.
        """
        network, config, conformal, card = read_folder(Path(folder))
        return cls(_placed(network, device, dtype), config, conformal, card)

    @classmethod
    def from_checkpoint(
        cls,
        path: str | Path,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float32",
    ) -> "Forecaster":
        """Read a checkpoint of a fit, such as `checkpoints/best.ckpt`, with its averaged weights.

        A fit calibrates intervals at its end, so a checkpoint has no conformal offsets: with
        `conformal=true` its quantiles are those of the head alone, of which a warning tells.

        Args:
            path: the file; of what is in it no code is run.
            device: see `load`.
            dtype: see `load`.

        Raises:
            ModelFolderError: the file is missing, damaged, or not a checkpoint of a fit.
            ConfigError: see `load`.
        """
        network, config = read_checkpoint(Path(path))
        if config.conformal:
            warnings.warn(
                f"{path}: a checkpoint has no conformal offsets, which a fit finds at its end; "
                "intervals are not calibrated.",
                stacklevel=2,
            )
            config = config.model_copy(update={"conformal": False})
        return cls(_placed(network, device, dtype), config)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        revision: str | None = None,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype = "float32",
    ) -> "Forecaster":
        """Read a model folder from the Hugging Face Hub, or a local one.

        Args:
            name: of a repository, such as `organisation/name`, or a folder that exists.
            revision: branch, tag or commit of the repository.
            device: see `load`.
            dtype: see `load`.

        Raises:
            ModelFolderError: there is no such repository or revision, or see `load`.
            ConfigError: the package huggingface_hub is missing, or see `load`.
        """
        if Path(name).is_dir():
            return cls.load(name, device, dtype)
        folder, cache = download_folder(str(name), revision)
        network, config, conformal, card = read_folder(folder, links_within=cache)
        return cls(_placed(network, device, dtype), config, conformal, card)

    def push_to_hub(
        self,
        name: str,
        *,
        private: bool = False,
        revision: str | None = None,
        message: str = "Add a tsformer forecaster",
    ) -> str:
        """Upload the model folder to the Hugging Face Hub, and return the address of the commit.

        Args:
            name: of the repository, such as `organisation/name`, made if there is none.
            private: of a repository that is made.
            revision: branch, the main one when None.
            message: of the commit.

        Raises:
            ModelFolderError: the upload failed.
            ConfigError: the package huggingface_hub is missing.
        """
        with TemporaryDirectory() as scratch:
            folder = Path(scratch) / "model"
            self.save(folder)
            return upload_folder(folder, name, private=private, revision=revision, message=message)

    def predict(
        self,
        frame: Any,
        future: Any | None = None,
        *,
        horizon: int | None = None,
        level: float | Sequence[float] = (),
        quantiles: float | Sequence[float] = (),
        num_samples: int | None = None,
        adaptive: bool = False,
        seed: int = 0,
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
            horizon: steps, H; those trained for when None. Beyond them the network goes on from
                its own forecasts, of which a warning tells.
            level: nominal coverage of central intervals in percent, such as `[80, 90]`.
            quantiles: levels of quantiles, such as `[0.1, 0.5]`.
            num_samples: sample paths of each series.
            adaptive: let conformal intervals follow each series through its latest
                `ADAPTIVE_WINDOWS` windows; see `tsformer.conformal.track`.
            seed: of the sample paths. Step-wise decoding takes its quantiles from 100 of them;
                levels beyond 0.01 and 0.99 are those of the outermost.
            batch_size: series forecast at once.

        Returns:
            `unique_id, ds, tsformer`, a pandas frame: H rows a series, series in order of
            appearance. Where a long table has several target columns, `target` names them. Then
            `tsformer-lo-90, tsformer-hi-90` for each level, `tsformer-q-0.1` for each quantile and
            `tsformer-sample-1` for each path.

        Raises:
            DataError: the table cannot be used, or future covariates do not cover the horizon.
            ConfigError: an argument is out of range, or asks for a distribution of a model that
                gives points alone.
        """
        batch_size = _count("batch_size", batch_size)
        steps = self.horizon if horizon is None else _count("horizon", horizon)
        num_paths = 0 if num_samples is None else _count("num_samples", num_samples)
        seed = _count("seed", seed, least=0)
        columns_of = self._distribution_columns(level, quantiles, num_paths, adaptive)
        if steps > self.horizon:
            warnings.warn(
                f"horizon={steps}: the model was trained for {self.horizon} steps; beyond them it "
                "goes on from its own forecasts, and intervals are too narrow.",
                stacklevel=2,
            )
        rows, columns, store, groups = self._read_history(frame)
        if future is not None:
            with errors_naming("future"):
                future = read_frame(future, self._text_columns)
        whole = -(-steps // self.horizon) * self.horizon  # tokens span steps beyond the last
        store = store.extended(whole)
        ahead, categories = read_future(future, columns, store, groups, steps)
        encoder = self.config.covariates.encoder(self.config.columns.covariates)
        windows = self._windows(store, WindowIndex.ahead(store, groups), columns, whole)
        windows.future = _encode_future(encoder, ahead, categories, whole)
        past = self._latest_windows(store, groups, columns) if adaptive else None
        offset_rows = self._offset_rows(store, groups)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            scaled = np.concatenate(
                [
                    self._forecast(windows, i, columns_of, num_paths, offset_rows[i], past)
                    for i in BatchSampler(windows.index, batch_size, shuffle=False)
                ]
            )[:, :steps]  # (N, H, C, Q)
        forecast = np.empty((len(store.ids), steps, scaled.shape[-1]))
        for place, values in enumerate(np.moveaxis(scaled, -1, 0)):
            unscaled = windows.scaler.unscale(values, groups)
            forecast[groups, :, place] = unscaled.transpose(0, 2, 1)
        if not np.isfinite(forecast).all():
            wrong = int(np.argmax(~np.isfinite(forecast).all(axis=(1, 2))))
            raise DataError(
                f"series {store.ids[wrong]!r}: its values, or its covariates', are too large to "
                "forecast from."
            )
        begins = np.empty(len(store.ids), dtype=np.int64)
        begins[groups] = windows.index.first[:, None]
        names = _series_columns(rows, columns, store)
        values = forecast.reshape(-1, forecast.shape[-1]).T
        samples = [f"sample-{number + 1}" for number in range(num_paths)]
        forecasts = ["tsformer", *(f"tsformer-{name}" for name in [*columns_of, *samples])]
        return pd.DataFrame(
            {name: np.repeat(values, steps) for name, values in names.items()}
            | {"ds": store.stamps((begins[:, None] + np.arange(steps)).ravel())}
            | dict(zip(forecasts, values, strict=True))
        )

    def _distribution_columns(
        self,
        level: float | Sequence[float],
        quantiles: float | Sequence[float],
        num_paths: int,
        adaptive: bool,
    ) -> dict[str, float]:
        """Return the quantile levels that are asked for by what their columns are called."""
        columns: dict[str, float] = {}
        for percent in _numbers("level", level):
            if not 1 <= percent <= 99.99:  # 0.9 is meant as 90
                raise ConfigError(f"level={percent}: give percents from 1 to 99.99, such as 90.")
            columns[f"lo-{_text(percent)}"] = round((100 - percent) / 200, 9)
            columns[f"hi-{_text(percent)}"] = round((100 + percent) / 200, 9)
        for quantile in _numbers("quantiles", quantiles):
            if not 0 < quantile < 1:
                raise ConfigError(f"quantiles={quantile}: give levels between 0 and 1.")
            columns[f"q-{_text(quantile)}"] = quantile
        is_point = self.config.model.head == "point"
        if (columns and not self.is_probabilistic) or (num_paths and is_point):
            raise ConfigError(
                "the model forecasts points alone. Fit it with model.head=quantile (or normal, "
                "student_t), or with conformal=true for intervals."
            )
        if adaptive and self.conformal is None:
            raise ConfigError("adaptive=True needs a model that was fitted with conformal=true.")
        return columns

    @property
    def _text_columns(self) -> list[str]:
        columns = self.config.columns
        return [*filter(None, [columns.id]), *columns.categorical]

    def _read_history(self, frame: Any) -> tuple[Source, Columns, SeriesStore, IntArray]:
        config = self.config
        with errors_naming(frame):
            rows = open_source(frame, self._text_columns)
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
            _refuse_unusable(history, groups, config)
        return rows, columns, history, groups

    def _windows(
        self, store: SeriesStore, index: WindowIndex, columns: Columns, horizon: int
    ) -> WindowDataset:
        config = self.config
        return WindowDataset(
            store,
            index,
            config.scaler.scaler().adapt(store),
            config.covariates.encoder(config.columns.covariates),
            config.static.encoder(config.columns.static_covariates),
            grid_features(
                store, calendar=config.calendar, holidays=config.holidays, zone=config.time_zone
            ),
            context_length=config.context_length,
            horizon=horizon,
            num_future_covariates=len(columns.future_covariates),
        )

    def _latest_windows(
        self, store: SeriesStore, groups: IntArray, columns: Columns
    ) -> WindowDataset:
        """Return the latest windows of each group whose truth is known, in the order of time."""
        ends = group_spans(store, groups)[1]
        first = ends - self.horizon - ADAPTIVE_WINDOWS + 1
        offsets = np.arange(len(groups) + 1) * ADAPTIVE_WINDOWS
        return self._windows(store, WindowIndex(groups, first, offsets), columns, self.horizon)

    def _forecast(
        self,
        windows: WindowDataset,
        numbers: IntArray,
        columns: Mapping[str, float],
        num_paths: int,
        offset_rows: IntArray,
        past: WindowDataset | None,
    ) -> FloatArray:
        """Return point, quantiles of the columns and paths, in scaled units, (B, H, C, 1+Q+M)."""
        batch = windows[numbers]
        wanted = tuple(columns.values())
        if self.conformal is None or not wanted:
            rising = sorted(set(wanted))
            point, quantiles = forecast_windows(self.network, batch, rising)
            quantiles = quantiles[..., np.searchsorted(rising, wanted)]
        else:
            levels = self.conformal.levels
            offsets = self.conformal.offsets[offset_rows].astype(np.float64)
            if past is not None:
                offsets = self._tracked(past, numbers, offsets, levels)
            point, base = forecast_windows(self.network, batch, levels)
            calibrated = torch.from_numpy(shifted(base, offsets))
            quantiles = at_levels(calibrated, levels, wanted).numpy()
        parts = [point[..., None], quantiles]
        if num_paths:
            paths = sample_windows(self.network, batch, num_paths)  # (B, M, H, C)
            parts.append(np.moveaxis(paths, 1, -1))
        return np.concatenate(parts, axis=-1)

    def _tracked(
        self, past: WindowDataset, numbers: IntArray, offsets: FloatArray, levels: Sequence[float]
    ) -> FloatArray:
        """Return conformal offsets that followed groups through their latest windows.

        Windows before a group's first value, which have nothing to forecast from, do not count.
        """
        base, truth = [], []
        for window in range(ADAPTIVE_WINDOWS):
            batch = past[numbers * ADAPTIVE_WINDOWS + window]
            base.append(forecast_windows(self.network, batch, levels).quantiles)
            seen = batch.target_observed & batch.observed.any(dim=1, keepdim=True)
            truth.append(batch.target.double().where(seen, torch.nan).numpy())
        forecast, target = np.stack(base), np.stack(truth)
        return track(forecast, target, offsets, levels, step_size(forecast, target))

    def _offset_rows(self, store: SeriesStore, groups: IntArray) -> IntArray:
        """Return each group's row of the conformal offsets, -1 if it was not in training."""
        if self.conformal is None:
            return np.full(len(groups), -1)
        first = pd.Index(store.ids)[groups[:, 0]]
        rows = pd.Index(self.config.scaler.ids).get_indexer(first)  # -1 stays -1
        return rows.astype(np.int64) // self.config.num_channels

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


def _placed(
    network: ForecastNetwork, device: str | torch.device, dtype: str | torch.dtype
) -> ForecastNetwork:
    """Return a network on a device, in a floating type."""
    # In less than float32, indices of categories above 256 and neighbouring quantiles coincide.
    kinds = {"float32": torch.float32, "float64": torch.float64}
    kind = kinds.get(str(dtype).removeprefix("torch."))
    if kind is None:
        raise ConfigError(f"dtype={str(dtype)!r}: give one of {', '.join(kinds)}.")
    try:
        return network.to(device, kind)
    except (RuntimeError, AssertionError) as error:  # as torch was built without it
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={str(device)!r} cannot be used here: {reason}") from error


def _count(name: str, value: Any, least: int = 1) -> int:
    try:
        count = index(value)  # an int, also one of NumPy's
    except TypeError as error:
        raise ConfigError(f"{name}={value!r}: give a whole number from {least} up.") from error
    if not least <= count < 2**63:
        raise ConfigError(f"{name}={count}: give a whole number from {least} up.")
    return count


def _numbers(name: str, values: float | Sequence[float]) -> list[float]:
    try:
        numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if numbers.ndim > 1:
            raise ValueError("a list in a list")
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}={values!r}: give a number or a list of numbers.") from error
    return numbers.tolist()


def _text(number: float) -> str:
    """Return all digits of a number that are not 0 at its end."""
    return np.format_float_positional(number, trim="-")


def _encode_future(
    covariates: CovariateEncoder,
    ahead: FloatArray,
    categories: Mapping[str, Sequence[str]],
    steps: int,
) -> Float32Array:
    """Return future covariates as the network takes them, (N, steps, Ff), missing at the end."""
    num_past = len(covariates.names) - ahead.shape[2]
    missing = ((0, 0), (0, steps - ahead.shape[1]), (0, num_past))
    padded = np.pad(ahead, missing, constant_values=np.nan)
    encoded = covariates.encode(padded, covariates.lookups(categories))
    return encoded[:, :, : ahead.shape[2]]


def _refuse_unusable(store: SeriesStore, groups: IntArray, config: ForecasterConfig) -> None:
    findings = Findings()
    check_transform(store, config.scaler.transform, findings)
    check_counts(store, config.model.head, findings)
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
