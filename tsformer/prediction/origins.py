"""Forecasts of a table's series from any of its times, in units of the table."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from tsformer.arguments import Asked
from tsformer.data.calendar import grid_features
from tsformer.data.sampling import BatchSampler
from tsformer.data.scaling import Scaler
from tsformer.data.types import Float32Array, FloatArray, IntArray
from tsformer.data.windows import WindowDataset, WindowIndex
from tsformer.errors import DataError
from tsformer.model.conformal import shifted, step_size, track
from tsformer.model.fitted import FittedModel
from tsformer.nn.heads import at_levels
from tsformer.prediction.forecasting import forecast_windows, sample_windows
from tsformer.prediction.history import History

ADAPTIVE_WINDOWS = 100  # latest ones, by which intervals follow a series that drifts


class OriginForecaster:
    """Forecasts windows of one table with one model."""

    def __init__(
        self,
        model: FittedModel,
        history: History,
        asked: Asked,
        *,
        steps: int,
        batch_size: int,
    ) -> None:
        """Bind a model to a table.

        Args:
            model: what forecasts.
            history: the table; its grid goes on for `whole_steps` after all origins.
            asked: quantiles and paths.
            steps: of each forecast, H.
            batch_size: windows forecast at once.
        """
        self.network, self.config, self.conformal = model.network, model.config, model.conformal
        self.history, self.asked = history, asked
        self.steps, self.batch_size = steps, batch_size
        self.calendar = grid_features(
            history.store,
            calendar=self.config.calendar,
            holidays=self.config.holidays,
            zone=self.config.time_zone,
            yearly=self.config.yearly,
        )

    def forecast(
        self,
        groups: IntArray,
        origins: IntArray,
        scaler: Scaler,
        future: Float32Array | None = None,
    ) -> FloatArray:
        """Return points, quantiles and paths, (N, H, C, 1+Q+M), in units of the table.

        They follow from rows before the origins alone, and from future covariates of the steps
        that are forecast.

        Args:
            groups: series of each window, (N, C).
            origins: grid position of each window's first step, (N,).
            scaler: of the store's series.
            future: encoded future covariates, (N, `whole_steps`, Ff), in place of the store's.

        Raises:
            DataError: a forecast is not finite.
        """
        windows = self.windows(groups, origins, scaler, future)
        past = self._latest_windows(groups, origins, scaler) if self.asked.adaptive else None
        offset_rows = self._offset_rows(groups)
        # Infinity, and what comes of it, is refused below.
        with torch.random.fork_rng(), np.errstate(over="ignore", invalid="ignore"):
            torch.manual_seed(self.asked.seed)
            values = np.concatenate(
                [
                    self._forecast(windows, numbers, offset_rows[numbers], past)
                    for numbers in BatchSampler(windows.index, self.batch_size, shuffle=False)
                ]
            )[:, : self.steps]
        for column in range(values.shape[-1]):
            values[..., column] = scaler.unscale(values[..., column], groups)
        finite = np.isfinite(values).all(axis=(1, 3))  # (N, C)
        if not finite.all():
            wrong = groups[~finite].min()
            raise DataError(
                f"series {self.history.store.ids[wrong]!r}: its values, or its covariates', are "
                "too large to forecast from."
            )
        return values

    def windows(
        self,
        groups: IntArray,
        origins: IntArray,
        scaler: Scaler,
        future: Float32Array | None = None,
    ) -> WindowDataset:
        """Return the windows that are forecast, of whole horizons; see `forecast`."""
        index = WindowIndex(groups, origins, np.arange(len(groups) + 1))
        windows = self._windows(index, scaler, whole_steps(self.steps, self.config.horizon))
        windows.future = future
        return windows

    def _windows(self, index: WindowIndex, scaler: Scaler, steps: int) -> WindowDataset:
        config, columns = self.config, self.history.columns
        return WindowDataset(
            self.history.store,
            index,
            scaler,
            config.covariates.encoder(config.columns.covariates),
            config.static.encoder(config.columns.static_covariates),
            self.calendar,
            context_length=config.context_length,
            horizon=steps,
            num_future_covariates=len(columns.future_covariates),
        )

    def _latest_windows(self, groups: IntArray, origins: IntArray, scaler: Scaler) -> WindowDataset:
        """Return the latest windows whose truth is known at each origin, in the order of time."""
        first = origins - self.config.horizon - ADAPTIVE_WINDOWS + 1
        index = WindowIndex(groups, first, np.arange(len(groups) + 1) * ADAPTIVE_WINDOWS)
        return self._windows(index, scaler, self.config.horizon)

    def _offset_rows(self, groups: IntArray) -> IntArray:
        """Return each window's row of the conformal offsets, -1 if it was not in training."""
        if self.conformal is None:
            return np.full(len(groups), -1)
        first = pd.Index(self.history.store.ids)[groups[:, 0]]
        rows = pd.Index(self.config.scaler.ids).get_indexer(first)  # -1 stays -1
        return rows.astype(np.int64) // self.config.num_channels

    def _forecast(
        self,
        windows: WindowDataset,
        numbers: IntArray,
        offset_rows: IntArray,
        past: WindowDataset | None,
    ) -> FloatArray:
        """Return point, quantiles and paths of some windows, in scaled units, (B, H, C, 1+Q+M)."""
        batch = windows[numbers]
        # The network forecasts whole horizons; covariates beyond the steps asked for are unknown.
        batch.future_features[:, self.steps :, self.calendar.shape[1] :] = 0
        wanted = tuple(self.asked.quantiles.values())
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
            calibrated = torch.from_numpy(shifted(base, offsets, levels))
            quantiles = at_levels(calibrated, levels, wanted).numpy()
        parts = [point[..., None], quantiles]
        if self.asked.num_paths:
            paths = sample_windows(self.network, batch, self.asked.num_paths)  # (B, M, H, C)
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


def whole_steps(steps: int, horizon: int) -> int:
    """Return the steps of whole horizons that hold those asked for: tokens span steps beyond."""
    return -(-steps // horizon) * horizon
