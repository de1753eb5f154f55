"""Forecaster: a fitted network with all it needs to turn a table into forecasts."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsformer.arguments import Asked, count, names, num_steps, paths
from tsformer.data.covariates import CovariateEncoder
from tsformer.data.future import read_future
from tsformer.data.scaling import Scaler
from tsformer.data.sources import errors_naming, read_frame
from tsformer.data.types import Float32Array, FloatArray, IntArray
from tsformer.data.windows import group_spans
from tsformer.data.writing import write_parquet
from tsformer.errors import ConfigError
from tsformer.evaluation.backtest import backtest, last_windows, position_of
from tsformer.evaluation.importance import covariate_importance
from tsformer.model.checkpoint import read_checkpoint
from tsformer.model.fitted import FittedModel
from tsformer.model.folder import read_folder, write_folder
from tsformer.model.hub import download_folder, upload_folder
from tsformer.nn import ForecastNetwork
from tsformer.prediction.attention_maps import AttentionMaps, attention_maps, chosen_groups
from tsformer.prediction.history import (
    History,
    by_series,
    read_history,
    series_names,
    text_columns,
    window_frame,
)
from tsformer.prediction.origins import OriginForecaster, whole_steps


class Forecaster(FittedModel):
    """Forecasts the horizon after any table of series, seen in training or not.

    `load` makes one. See `FittedModel` for its attributes.
    """

    def __repr__(self) -> str:
        """Say what it forecasts."""
        config = self.config
        target = ", ".join(config.columns.target[:3]) + (", ..." * (len(config.columns.target) > 3))
        return (
            f"Forecaster({target}, freq={config.freq!r}, context_length={config.context_length}, "
            f"horizon={config.horizon}, head={config.model.head!r})"
        )

    def save(self, folder: str | Path) -> None:
        """Write the model folder, all of it or nothing.

        It holds `model.safetensors`, `config.json` and a model card, `README.md`, which is there to
        be read and not needed to load.

        Raises:
            ModelFolderError: the folder exists and holds other files.
        """
        write_folder(Path(folder), self)

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
        return cls._placed(read_folder(Path(folder)), device, dtype)

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
        model = read_checkpoint(Path(path))
        if model.config.conformal:
            warnings.warn(
                f"{path}: a checkpoint has no conformal offsets, which a fit finds at its end; "
                "intervals are not calibrated.",
                stacklevel=2,
            )
            model.config = model.config.model_copy(update={"conformal": False})
        return cls._placed(model, device, dtype)

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
        return cls._placed(read_folder(folder, links_within=cache), device, dtype)

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
            adaptive: let conformal intervals follow each series, by how well its latest 100 windows
                were forecast; see `tsformer.model.conformal.track`. Those windows are forecast too,
                so each batch costs 100 further forward passes of the network.
            seed: of the sample paths. The same seed gives the same paths only for the same series
                order and `batch_size`. With `decoding=autoregressive`, quantiles are taken from
                100 sample paths; levels below 0.01 or above 0.99 are those of the outermost path.
            batch_size: series forecast at once.

        Returns:
            `unique_id, ds, tsformer`, a pandas frame: H rows a series, series in order of
            appearance. Where a long table has several target columns, `target` names them. Then
            `tsformer-lo-90, tsformer-hi-90` for each level, `tsformer-q-0.1` for each quantile and
            `tsformer-sample-1` for each path.

        Raises:
            DataError: the table cannot be used, or future covariates do not cover the horizon.
            ConfigError: an argument is out of range, or asks for a distribution of a model that
                gives only point forecasts.
        """
        batch_size = count("batch_size", batch_size)
        steps = self._steps(horizon)
        asked = self.asked(level, quantiles, paths(num_samples), adaptive, seed)
        history = read_history(frame, self.config)
        history, known = self._ahead(history, future, steps)
        groups, origins, scaler = self._origins(history)
        forecaster = OriginForecaster(self, history, asked, steps=steps, batch_size=batch_size)
        values = forecaster.forecast(groups, origins, scaler, known)
        forecasts = by_series(groups, origins, values, asked.names)
        return window_frame(history.store, forecasts, series_names(history), with_truth=False)

    def predict_to(
        self, path: str | Path, frame: Any, future: Any | None = None, **arguments: Any
    ) -> None:
        """Write what `predict` returns to a Parquet file, all of it or nothing.

        Args:
            path: of the file; an existing one is replaced.
            frame: see `predict`.
            future: see `predict`.
            arguments: of `predict`.
        """
        write_parquet(self.predict(frame, future, **arguments), Path(path))

    def attention(
        self,
        frame: Any,
        future: Any | None = None,
        *,
        ids: Any | Sequence[Any] | None = None,
    ) -> list[AttentionMaps]:
        """Return the attention weights of the forecasts that `predict` makes.

        They take memory quadratic in the tokens, so name the series to look at. They are computed
        beside the forecast, which stays as fast as it is. With `decoding=autoregressive` they are
        those of the last pass of the decoder, over the model's own forecasts.

        Args:
            frame: see `predict`.
            future: see `predict`.
            ids: of the series to look at, one or several; all when None.

        Returns:
            One item for each series in order of appearance; or for the series, or target columns,
            that are forecast together (`channels=joint`). See `AttentionMaps`.

        Raises:
            DataError: see `predict`; or no series has such an id.
        """
        history = read_history(frame, self.config)
        history, known = self._ahead(history, future, self.horizon)
        groups, origins, scaler = self._origins(history)
        chosen = chosen_groups(history.store, groups, ids)
        forecaster = OriginForecaster(self, history, Asked({}), steps=self.horizon, batch_size=64)
        return attention_maps(forecaster, groups[chosen], origins[chosen], scaler, known[chosen])

    def covariate_importance(
        self,
        frame: Any,
        n_windows: int = 10,
        step: int | None = None,
        *,
        repeats: int = 5,
        seed: int = 0,
        batch_size: int = 1024,
    ) -> pd.DataFrame:
        """Tell by how much the error rises when a covariate belongs to another time and series.

        The last windows of each series are forecast as by `cross_validate`, and again with one
        covariate swapped, over context and horizon together, for that of another window of the
        table, drawn anew in each repeat; static covariates for those of another series (permutation
        importance: Breiman 2001; Fisher, Rudin & Dominici 2019). Within a window its course stays
        real. Errors are in scaled units, those of `scaling`, in which series count alike.

        It says what this model uses, not what causes what. Of covariates that tell the same, each
        may seem unimportant. On rows that the model was trained on, what it knows by heart counts
        too: give it later ones.

        Args:
            frame: series with their truth; see `cross_validate`.
            n_windows: of each series, at most.
            step: steps from one cutoff to the next; H when None.
            repeats: how often each covariate is swapped, R.
            seed: of the windows that lend their covariates.
            batch_size: windows forecast at once.

        Returns:
            A row for each covariate, the most important first: `covariate`; `kind`: past, future,
            static or calendar (the places in day, week and year together, and `holidays`); `mae`:
            mean absolute error with it swapped; `importance`: how much that is above the error as
            it is, a mean over repeats; `std` over them; and `ratio`: of both errors. NaN where no
            swap changed anything, such as a static covariate of a single series.

        Raises:
            DataError: see `cross_validate`; no value is known in the windows, or the table has no
                other window.
            ConfigError: the model has neither covariates nor calendar, or an argument is out of
                range.
        """
        return covariate_importance(
            self,
            frame,
            n_windows=count("n_windows", n_windows),
            step=self.horizon if step is None else num_steps("step", step),
            repeats=count("repeats", repeats),
            seed=count("seed", seed, least=0),
            batch_size=count("batch_size", batch_size),
        )

    def cross_validate(
        self,
        frame: Any,
        n_windows: int | None = 1,
        step: int | None = None,
        *,
        since: str | pd.Timestamp | None = None,
        baselines: str | Sequence[str] = (),
        refit: bool | Mapping[str, Any] = False,
        horizon: int | None = None,
        level: float | Sequence[float] = (),
        quantiles: float | Sequence[float] = (),
        adaptive: bool = False,
        seed: int = 0,
        batch_size: int = 1024,
    ) -> pd.DataFrame:
        """Forecast the last windows of each series as `predict` would have at their time.

        The first window of H steps ends with the series, the others `step` steps before the next
        one. Each is forecast from the rows up to its cutoff alone; future covariates are those of
        the table, and count as missing where it has none. That says nothing about rows that the
        model was trained on: give it later ones, or other series.

        Args:
            frame: series with their truth; see `predict`.
            n_windows: of each series, at most: windows without a value before them are left out,
                of which a warning tells. None: as many as there are.
            step: steps from one cutoff to the next; H when None.
            since: local time before which no window begins, such as `2024-01-31`.
            baselines: other methods, whose forecasts of the same windows are further columns:
                `seasonal_naive`, `auto_ets`, `auto_theta`, `mstl`, `auto_arima`, `lightgbm`; see
                `tsformer.baselines.registry.baseline_forecasts`.
            refit: continue training before each cutoff, from the model as it is, on the rows of
                all series up to it; True, or arguments of `fine_tune` by name. Series that end at
                the same time share their cutoffs, and so the trainings; others take their own.
            horizon: see `predict`.
            level: see `predict`.
            quantiles: see `predict`.
            adaptive: see `predict`; 100 further forward passes for each batch of windows.
            seed: of quantiles that are drawn, and of `refit`.
            batch_size: windows forecast at once.

        Returns:
            `unique_id, ds, cutoff, y, tsformer` and what `predict` would add, a pandas frame: H
            rows a window, by series and then by cutoff, the last time seen. `y` is the table's
            value in single precision, NaN where it has none.

        Raises:
            DataError: the table cannot be used, or no series is long enough for a window.
            ConfigError: see `predict`.
        """
        steps = self._steps(horizon)
        asked = self.asked(level, quantiles, 0, adaptive, seed)
        past = read_history(frame, self.config)
        step = steps if step is None else num_steps("step", step)
        most = None if n_windows is None else count("n_windows", n_windows)
        windows = last_windows(past, most, step, steps, position_of(past, since))
        found = backtest(
            self,
            past,
            windows,
            steps=steps,
            asked=asked,
            refit=refit_arguments(refit, seed),
            baselines=names("baselines", baselines),
            batch_size=count("batch_size", batch_size),
        )
        if windows.left_out is not None:
            warnings.warn(windows.left_out, stacklevel=2)
        return window_frame(found.store, found.forecasts, series_names(past))

    def fine_tune(
        self,
        frame: Any,
        *,
        max_epochs: int = 5,
        max_steps: int = -1,
        lr: float = 1e-4,
        batch_size: int = 128,
        validation: float | None = None,
        seed: int = 0,
        output: str | Path | None = None,
    ) -> "Forecaster":
        """Continue training on your own table, and return the result as another forecaster.

        This forecaster stays as it is. The new one has the same architecture, lengths, columns and
        calendar; covariates are scaled, and categories known, as before. Series that this one
        knows keep their statistics; those of others are fitted on the train rows in the same way.
        The new forecaster knows the series of the table. Conformal intervals are calibrated again,
        on the validation part.

        The loss is that of the fit, but other training settings of the fit are not kept. They are
        fixed: `spectral_loss=0`, `ema_decay=0.995`, AdamW with `weight_decay=0.01` and a cosine
        schedule, gradients clipped at 1, and `sampling` that draws each window alike.

        Args:
            frame: series to train on; see `predict`.
            max_epochs: passes over the train windows; -1: no limit.
            max_steps: batches; -1: no limit.
            lr: learning rate at its highest.
            batch_size: windows of a batch.
            validation: how much of the end of the table's time grid is not trained on; the errors
                of its forecasts choose the weights. A fraction of the steps below 1, such as 0.1
                (1.0 is refused), or a number of steps; when None, a tenth, but at least one
                horizon. The cut is at the same time for all series, so a series that ends before it
                has no validation rows.
            seed: of the order of windows and of dropout.
            output: folder that receives the settings, checkpoints, the csv log and `model/`; None
                leaves nothing on disk.

        Raises:
            DataError: the table cannot be used, or is too short.
            ConfigError: an argument is out of range, or a part of the table holds no window.
            TsformerError: the training diverged.
        """
        from tsformer.trainer.fine_tuning import fine_tune  # which loads lightning

        tuned = fine_tune(
            self,
            read_history(frame, self.config),
            max_epochs=max_epochs,
            max_steps=max_steps,
            lr=lr,
            batch_size=batch_size,
            validation=validation,
            seed=count("seed", seed, least=0),
            output=output,
        )
        return Forecaster(tuned.network, tuned.config, tuned.conformal)

    @classmethod
    def _placed(
        cls, model: FittedModel, device: str | torch.device, dtype: str | torch.dtype
    ) -> "Forecaster":
        network = _placed(model.network, device, dtype)
        return cls(network, model.config, model.conformal, model.card)

    def _ahead(
        self, history: History, future: Any | None, steps: int
    ) -> tuple[History, Float32Array]:
        """Return a table with a grid that goes on, and encoded future covariates, (N, steps, Ff).

        Both reach over the whole horizons that hold the steps.
        """
        if future is not None:
            with errors_naming("future"):
                future = read_frame(future, text_columns(self.config))
        whole = whole_steps(steps, self.horizon)
        history = replace(history, store=history.store.extended(whole))
        ahead, categories = read_future(
            future, history.columns, history.store, history.groups, steps
        )
        encoder = self.config.covariates.encoder(self.config.columns.covariates)
        return history, _encode_future(encoder, ahead, categories, whole)

    def _origins(self, history: History) -> tuple[IntArray, IntArray, Scaler]:
        """Return groups (N, C), the grid positions after their ends (N,), and their scaler."""
        store, groups = history.store, history.groups
        scaler = self.config.scaler.scaler().adapt(store)
        return groups, group_spans(store, groups)[1], scaler

    def _steps(self, horizon: int | None) -> int:
        steps = self.horizon if horizon is None else num_steps("horizon", horizon)
        if steps > self.horizon:
            warnings.warn(
                f"horizon={steps}: the model was trained for {self.horizon} steps; beyond them it "
                "goes on from its own forecasts, and intervals are too narrow.",
                stacklevel=3,
            )
        return steps


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
        if torch.device(device).type == "meta":
            raise RuntimeError("it holds no numbers")
        return network.to(device, kind)
    except (RuntimeError, AssertionError) as error:  # as torch was built without it
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={str(device)!r} cannot be used here: {reason}") from error


def refit_arguments(refit: bool | Mapping[str, Any], seed: int) -> dict[str, Any] | None:
    """Return the arguments of `fine_tune` before each cutoff; None to leave the model as it is."""
    if refit is False:
        return None
    if refit is not True and not isinstance(refit, Mapping):
        raise ConfigError(f"refit={refit!r}: give True, or the arguments of fine_tune by name.")
    given = {} if refit is True else dict(refit)
    parameters = signature(Forecaster.fine_tune).parameters
    usual = {name: x.default for name, x in parameters.items() if name not in ("self", "frame")}
    known = usual.keys() - {"output"}
    if unknown := sorted(given.keys() - known):
        raise ConfigError(
            f"refit: {unknown[0]!r} is not an argument of fine_tune that can be given here: "
            f"{', '.join(sorted(known))}."
        )
    return usual | {"seed": seed, **given}


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
