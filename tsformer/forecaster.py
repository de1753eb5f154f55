"""Forecaster: a fitted network with all it needs to turn a table into forecasts."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsformer.arguments import Asked, count, quantile_levels
from tsformer.conformal import ConformalOffsets
from tsformer.cross_validation import cross_validate
from tsformer.data.covariates import CovariateEncoder
from tsformer.data.future import read_future
from tsformer.data.sources import errors_naming, read_frame
from tsformer.data.types import Float32Array, FloatArray
from tsformer.data.windows import group_spans
from tsformer.errors import ConfigError
from tsformer.forecaster_config import ForecasterConfig
from tsformer.history import forecast_frame, read_history, text_columns
from tsformer.model_folder import read_folder, write_folder
from tsformer.nn import ForecastNetwork
from tsformer.prediction import OriginForecaster, whole_steps


class Forecaster:
    """Forecasts the horizon after any table of series, seen in training or not.

    Attributes:
        network: the fitted network, in evaluation mode.
        config: everything else but weights; see `ForecasterConfig`.
        conformal: what calibrates its quantiles, or None.
    """

    def __init__(
        self,
        network: ForecastNetwork,
        config: ForecasterConfig,
        conformal: ConformalOffsets | None = None,
    ) -> None:
        """Hold a network and its configuration; users call `load` instead."""
        self.network = network.eval()
        self.config = config
        self.conformal = conformal

    @property
    def horizon(self) -> int:
        """Steps forecast, H."""
        return self.config.horizon

    @property
    def is_probabilistic(self) -> bool:
        """Whether it forecasts distributions, not points alone."""
        return self.config.model.head != "point" or self.conformal is not None

    def save(self, folder: str | Path) -> None:
        """Write the model folder: `model.safetensors` and `config.json`, both or none.

        Raises:
            ModelFolderError: the folder exists and is not a model folder.
        """
        write_folder(Path(folder), self.network, self.config, self.conformal)

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> "Forecaster":
        """Read a model folder.

        Args:
            folder: what `save` or `scripts/fit.py` wrote, such as `runs/electricity/.../model`.
            device: where the network computes.

        Raises:
            ModelFolderError: the folder is missing, incomplete, damaged or of another version.
        """
        network, config, conformal = read_folder(Path(folder))
        return cls(network.to(device), config, conformal)

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
            adaptive: let conformal intervals follow each series through its latest 100 windows;
                see `tsformer.conformal.track`.
            seed: of the sample paths, which follow from it, the order of the series and
                `batch_size`. Step-wise decoding takes its quantiles from 100 of them; levels
                beyond 0.01 and 0.99 are those of the outermost.
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
        batch_size = count("batch_size", batch_size)
        steps = self._steps(horizon)
        num_paths = 0 if num_samples is None else count("num_samples", num_samples)
        asked = self.asked(level, quantiles, num_paths, adaptive, seed)
        history = read_history(frame, self.config)
        store, groups = history.store, history.groups
        if future is not None:
            with errors_naming("future"):
                future = read_frame(future, text_columns(self.config))
        whole = whole_steps(steps, self.horizon)
        history = replace(history, store=store.extended(whole))
        ahead, categories = read_future(future, history.columns, history.store, groups, steps)
        encoder = self.config.covariates.encoder(self.config.columns.covariates)
        encoded = _encode_future(encoder, ahead, categories, whole)
        origins = group_spans(store, groups)[1]
        scaler = self.config.scaler.scaler().adapt(store)
        forecaster = OriginForecaster(
            self.network,
            self.config,
            self.conformal,
            history,
            asked,
            steps=steps,
            batch_size=batch_size,
        )
        values = forecaster.forecast(groups, origins, scaler, encoded)
        return forecast_frame(history, groups, origins, values, asked)

    def cross_validate(
        self,
        frame: Any,
        n_windows: int = 1,
        step: int | None = None,
        *,
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
                of which a warning tells.
            step: steps from one cutoff to the next; H when None.
            refit: continue training before each cutoff, from the model as it is, on the rows up
                to it; True, or arguments of `fine_tune` by name.
            horizon: see `predict`.
            level: see `predict`.
            quantiles: see `predict`.
            adaptive: see `predict`.
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
        return cross_validate(
            self,
            frame,
            n_windows=count("n_windows", n_windows),
            step=steps if step is None else count("step", step),
            steps=steps,
            asked=asked,
            refit=_refit_arguments(refit, seed),
            batch_size=count("batch_size", batch_size),
        )

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
        """Return another forecaster, whose training went on with a table of one's own.

        It takes what this one takes, which stays as it is: the same architecture, lengths, columns
        and calendar; covariates are scaled, and categories known, as before. Series that this one
        knows keep their statistics; those of others are fitted on the train rows in the same way.
        The series of the table are the ones that the new forecaster knows. Conformal intervals
        are calibrated anew, on the validation part.

        Args:
            frame: series to train on; see `predict`.
            max_epochs: passes over the train windows; -1: no limit.
            max_steps: batches; -1: no limit.
            lr: learning rate at its highest.
            batch_size: windows of a batch.
            validation: the end of the table, which is not trained on: its free-running forecasts
                choose the weights. A part of the steps, such as 0.1, or their number; a tenth, and
                one horizon at least, when None.
            seed: of the order of windows and of dropout.
            output: folder that receives the settings, checkpoints, the csv log and `model/`; None
                leaves nothing on disk.

        Raises:
            DataError: the table cannot be used, or is too short.
            ConfigError: an argument is out of range, or a part of the table holds no window.
            TsformerError: the training diverged.
        """
        from tsformer.fine_tuning import fine_tune  # which loads lightning

        return fine_tune(
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

    def _steps(self, horizon: int | None) -> int:
        steps = self.horizon if horizon is None else count("horizon", horizon)
        if steps > self.horizon:
            warnings.warn(
                f"horizon={steps}: the model was trained for {self.horizon} steps; beyond them it "
                "goes on from its own forecasts, and intervals are too narrow.",
                stacklevel=3,
            )
        return steps

    def asked(
        self,
        level: float | Sequence[float],
        quantiles: float | Sequence[float],
        num_paths: int,
        adaptive: bool,
        seed: int,
    ) -> Asked:
        """Return what is asked of each window; see `predict` for the arguments.

        Raises:
            ConfigError: an argument is out of range, or is not for this model.
        """
        levels = quantile_levels(level, quantiles)
        is_point = self.config.model.head == "point"
        if (levels and not self.is_probabilistic) or (num_paths and is_point):
            raise ConfigError(
                "the model forecasts points alone. Fit it with model.head=quantile (or normal, "
                "student_t), or with conformal=true for intervals."
            )
        if adaptive and self.conformal is None:
            raise ConfigError("adaptive=True needs a model that was fitted with conformal=true.")
        return Asked(levels, num_paths, adaptive, count("seed", seed, least=0))


def _refit_arguments(refit: bool | Mapping[str, Any], seed: int) -> dict[str, Any] | None:
    """Return the arguments of `fine_tune` before each cutoff; None to leave the model as it is."""
    if refit is False:
        return None
    if refit is not True and not isinstance(refit, Mapping):
        raise ConfigError(f"refit={refit!r}: give True, or the arguments of fine_tune by name.")
    given = {} if refit is True else dict(refit)
    known = signature(Forecaster.fine_tune).parameters.keys() - {"self", "frame", "output"}
    if unknown := sorted(given.keys() - known):
        raise ConfigError(
            f"refit: {unknown[0]!r} is no argument of fine_tune that can be given here: "
            f"{', '.join(sorted(known))}."
        )
    return {"seed": seed, **given}


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
