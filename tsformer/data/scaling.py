"""Standard scores of targets, per series, and of covariates, from the train rows alone."""

from dataclasses import dataclass

import numpy as np

from tsformer.data.table import SeriesTable
from tsformer.data.types import FloatArray, IntArray


@dataclass(frozen=True)
class Scaler:
    """Statistics in double precision: (value - mean) / std.

    Attributes:
        ids: series that `mean` and `std` belong to, in order.
        mean: of each series' observed target, (S, C), or (1, C) where channels are the series.
        std: its standard deviation (ddof=0), 1 where it is 0, in the shape of `mean`.
        covariate_mean: (F,).
        covariate_std: (F,).
    """

    ids: tuple[str, ...]
    mean: FloatArray
    std: FloatArray
    covariate_mean: FloatArray
    covariate_std: FloatArray

    @classmethod
    def fit(cls, table: SeriesTable, end: int) -> "Scaler":
        """Fit on the rows before position `end` of the grid.

        A series without a value there keeps mean 0 and standard deviation 1.
        """
        train = table.row_positions < end
        series = np.where(train, table.row_series, -1)
        mean, std = _moments(table.target, series, len(table.lengths))
        covariate_mean, covariate_std = _moments(table.covariates, np.where(train, 0, -1), 1)
        return cls(table.ids, mean, std, covariate_mean[0], covariate_std[0])

    def adapt(self, table: SeriesTable) -> "Scaler":
        """Return the statistics for a table's series, fitting those of series not seen before."""
        own = Scaler.fit(table, len(table.grid))
        if len(table.lengths) == len(self.mean) and table.ids == self.ids:
            mean, std = self.mean, self.std
        else:
            row = {id: row for row, id in enumerate(self.ids)}
            known = np.array([row.get(id, -1) for id in table.ids])
            mean = np.where(known[:, None] >= 0, self.mean[known], own.mean)
            std = np.where(known[:, None] >= 0, self.std[known], own.std)
        return Scaler(table.ids, mean, std, self.covariate_mean, self.covariate_std)

    def transform(self, table: SeriesTable) -> tuple[FloatArray, FloatArray]:
        """Return the scaled target (R, C) and covariates (R, F); missing values stay NaN."""
        series = table.row_series
        target = (table.target - self.mean[series]) / self.std[series]
        return target, (table.covariates - self.covariate_mean) / self.covariate_std


def _moments(values: FloatArray, group: IntArray, num_groups: int) -> tuple[FloatArray, FloatArray]:
    """Return mean and standard deviation (G, F) by group of rows, ignoring NaN and group -1."""
    mean = np.zeros((num_groups, values.shape[1]))
    std = np.ones_like(mean)
    for column, x in enumerate(values.T):
        keep = ~np.isnan(x) & (group >= 0)
        x, g = x[keep], group[keep]
        count = np.maximum(np.bincount(g, minlength=num_groups), 1)
        mean[:, column] = np.bincount(g, x, num_groups) / count
        with np.errstate(over="ignore"):  # what overflows is refused where it is forecast from
            variance = np.bincount(g, (x - mean[g, column]) ** 2, num_groups) / count
        # A constant column leaves rounding dust behind, which must not be blown up.
        constant = np.sqrt(variance) <= 1e-12 * np.abs(mean[:, column])
        std[:, column] = np.where(constant, 1.0, np.sqrt(variance))
    return mean, std
