"""ForecastData: a table, split and scaled, as train, validation and test windows."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tsformer.config import FitConfig
from tsformer.data.calendar import grid_features, has_years, span_years
from tsformer.data.checks import check_counts, check_transform, find_short
from tsformer.data.covariates import CovariateEncoder
from tsformer.data.findings import Finding, Findings
from tsformer.data.groups import group_series
from tsformer.data.scaling import Scaler
from tsformer.data.splits import split_ends
from tsformer.data.store import SeriesStore
from tsformer.data.table import SeriesTable
from tsformer.data.types import IntArray
from tsformer.data.windows import WindowDataset, WindowIndex
from tsformer.errors import ConfigError, DataError


class Fitted(NamedTuple):
    """What a model knows already of tables such as one that its training goes on with.

    Attributes:
        scaler: of the series that it was trained on.
        covariates: how covariates reach the network.
        static: how static covariates do.
        channels: series that it forecasts together, by name, or None.
        yearly: whether the place in the year is a feature.
    """

    scaler: Scaler
    covariates: CovariateEncoder
    static: CovariateEncoder
    channels: Sequence[str] | None
    yearly: bool


class ForecastData:
    """Train, validation and test windows of one table.

    Attributes:
        store: the series.
        columns: parts of the table's columns.
        groups: series that are forecast together, (N, C).
        scaler: statistics of the target in the train rows.
        covariates: how covariates reach the network.
        static: how static covariates do.
        train_end: position of the grid after the last train row.
        train: train windows, as a dataset of batches.
        validation: validation windows.
        test: test windows; none need be there where a training goes on.
        findings: what is worth knowing about the table and its parts.
    """

    def __init__(self, table: SeriesTable, config: FitConfig, fitted: Fitted | None = None) -> None:
        """Split the table, fit scalers and vocabularies on its train rows and list the windows.

        Args:
            table: series and covariates.
            config: the settings of the fit.
            fitted: of a model whose training goes on: its network's inputs keep their meaning, so
                that statistics are fitted of series alone that are new to it.

        Raises:
            ConfigError: a part of the split holds no window of L + H steps.
            DataError: series cannot be forecast together, or not with the transform or the head
                asked for.
        """
        self.config = config
        self.columns = table.columns
        self.findings = Findings(dict(table.findings.items))
        self.is_fitted = fitted is not None
        channels = fitted.channels if fitted else None
        self.store, self.groups = group_series(
            table.store, table.columns, config.model.channels, channels
        )
        store, columns = self.store, self.columns
        self.train_end, validation_end, test_end = split_ends(config.dataset.split, store)
        self.left_out = find_short(
            store,
            self.groups,
            self.findings,
            train_end=self.train_end,
            context_length=config.context_length,
            horizon=config.horizon,
            short_series=config.dataset.short_series,
        )
        if fitted is None:
            self._check_lengths()
        check_transform(store, config.scaling.transform, self.findings)
        check_counts(store, config.model.head, self.findings)
        self.findings.refuse()
        if fitted is None:
            self.scaler = Scaler.fit(store, self.train_end, **config.scaling.model_dump())
            self.covariates = CovariateEncoder.fit(store, columns, self.train_end)
            self.static = CovariateEncoder.fit_static(store, columns, self.train_end)
        else:
            self.scaler = fitted.scaler.adapt(store.until(self.train_end))
            self.covariates, self.static = fitted.covariates, fitted.static
        may_show_years = has_years(store.freq)
        spanned = may_show_years and span_years(store.grid[: self.train_end])
        self.yearly = fitted.yearly if fitted else spanned
        if config.dataset.calendar and may_show_years and not self.yearly:
            self._note_no_years()
        self.calendar = grid_features(
            store,
            calendar=config.dataset.calendar,
            holidays=config.dataset.holidays,
            zone=config.dataset.time_zone,
            yearly=self.yearly,
        )
        self.train = self._windows("train", 0, self.train_end, stride=config.sampling.stride)
        thin = config.sampling.eval_stride
        self.validation = self._windows("validation", self.train_end, validation_end, stride=thin)
        self.test = self._windows("test", validation_end, test_end, stride=thin)
        self._check_weights()

    def _note_no_years(self) -> None:
        begin, end = self.store.grid[0], self.store.grid[self.train_end - 1]
        text = f"the train rows, {begin:%Y-%m-%d} to {end:%Y-%m-%d}, span less than two years"
        remedy = "The day of the year is not used as a covariate."
        self.findings.add(Finding("note", "no years", text, remedy))

    @property
    def description(self) -> str:
        """How the table was taken, in one line."""
        store, columns, config = self.store, self.columns, self.config
        parts = {
            "future covariates": columns.future_covariates,
            "past covariates": columns.past_covariates,
            "static covariates": columns.static_covariates,
        }
        given = [f"{part} {', '.join(names)}" for part, names in parts.items() if names]
        target = ", ".join(columns.target[:8]) + (", ..." if len(columns.target) > 8 else "")
        return (
            f"{config.dataset.name}: {'long' if columns.id else 'wide'} table, "
            f"{len(store.ids):,} series, {store.offsets[-1]:,} rows of {store.freq}; "
            f"target {target}; {'; '.join(given) or 'no covariates'}; "
            f"{config.context_length} -> {config.horizon} steps"
        )

    def _check_lengths(self) -> None:
        needed = self.config.context_length + self.config.horizon
        store, kept = self.store, self.groups[~self.left_out]
        train_rows = np.minimum(self.train_end, store.ends) - store.starts
        longest = max(train_rows[kept].max(initial=0), 0)
        if longest < needed:
            raise ConfigError(
                f"context_length={self.config.context_length} and horizon={self.config.horizon} "
                f"need {needed} steps, but the longest series has {longest} train steps "
                f"(dataset.split={self.config.dataset.split} of {len(store.grid)}). Shorten "
                "context_length or horizon, or give training a larger part."
            )

    def _check_weights(self) -> None:
        weights, counts = self.store.weights, np.diff(self.train.index.offsets)
        if weights is not None and not weights[self.groups[counts > 0, 0]].any():
            raise DataError(
                f"column {self.columns.weight!r}: the weights of all series with train windows are "
                "0. Give some of them a weight above 0, or leave out dataset.weight_column."
            )

    def _check_part(self, part: str, index: WindowIndex, begin: int, end: int) -> None:
        steps = f"the {part} part, {max(end - begin, 0)} steps"
        if not len(index):
            remedy = (
                "Give more rows, or another validation."
                if self.is_fitted
                else "Shorten horizon, or change dataset.split."
            )
            raise ConfigError(
                f"{steps}, holds no window of horizon={self.config.horizon} steps. {remedy}"
            )
        if not _any_value(self.store, self.groups[~self.left_out], begin, end):
            remedy = (
                "Give rows with values, or another validation."
                if self.is_fitted
                else "Change dataset.split, or name another dataset.target."
            )
            raise ConfigError(
                f"the {part} part holds no value of the target, all are missing. {remedy}"
            )

    def _windows(self, part: str, begin: int, end: int, stride: int = 1) -> WindowDataset:
        index = WindowIndex.between(
            self.store,
            self.groups,
            begin=begin,
            end=end,
            context_length=self.config.context_length,
            horizon=self.config.horizon,
            stride=stride,
            leave_out=self.left_out,
        )
        if not (self.is_fitted and part == "test"):
            self._check_part(part, index, begin, end)
        return WindowDataset(
            self.store,
            index,
            self.scaler,
            self.covariates,
            self.static,
            self.calendar,
            num_future_covariates=len(self.columns.future_covariates),
            context_length=self.config.context_length,
            horizon=self.config.horizon,
        )


def _any_value(store: SeriesStore, groups: IntArray, begin: int, end: int) -> bool:
    """Tell whether a series of some groups has a value at grid positions begin <= t < end."""
    return any(
        not np.isnan(store.values(series, begin, end)).all() for series in groups.ravel().tolist()
    )
