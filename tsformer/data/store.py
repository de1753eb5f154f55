"""SeriesStore: a scaled table as contiguous float32 tensors, ready to be gathered from."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tsformer.data.calendar import calendar_features
from tsformer.data.scaling import Scaler
from tsformer.data.table import SeriesTable


@dataclass(frozen=True)
class SeriesStore:
    """Rows of all series one behind the other.

    Attributes:
        target: scaled values, (R, C); NaN where missing.
        covariates: scaled, (R, F); 0, the train rows' mean, where missing.
        calendar: calendar features of each step of the grid, (G, K).
        offsets: bounds of each series' rows, (S+1,).
        starts: position on the grid of each series' first row, (S,).
    """

    target: Tensor
    covariates: Tensor
    calendar: Tensor
    offsets: Tensor
    starts: Tensor

    @classmethod
    def build(
        cls, table: SeriesTable, scaler: Scaler, *, calendar: bool, time_zone: str | None
    ) -> "SeriesStore":
        """Scale a table and compute its calendar.

        Args:
            table: the series.
            scaler: statistics for them.
            calendar: give calendar features, or none.
            time_zone: zone whose clock the calendar follows; stamps without a zone are taken as
                local time already.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            target, covariates = (x.astype(np.float32) for x in scaler.transform(table))
        local = table.grid if table.grid.tz is None else table.grid.tz_convert(time_zone or "UTC")
        features = (
            calendar_features(local, table.freq)
            if calendar
            else np.empty((len(table.grid), 0), dtype=np.float32)
        )
        return cls(
            target=torch.from_numpy(target),
            covariates=torch.from_numpy(np.nan_to_num(covariates)),
            calendar=torch.from_numpy(features),
            offsets=torch.from_numpy(table.offsets.astype(np.int64)),
            starts=torch.from_numpy(table.starts.astype(np.int64)),
        )
