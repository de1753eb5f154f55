"""Which series are forecast together, as the channels of one sample."""

from collections.abc import Sequence

import numpy as np

from tsformer.data.columns import Columns
from tsformer.data.covariates import shared_covariates
from tsformer.data.store import SeriesStore
from tsformer.data.types import IntArray
from tsformer.errors import ConfigError, DataError


def group_series(
    store: SeriesStore,
    columns: Columns,
    channels: str,
    names: Sequence[str] | None = None,
) -> tuple[SeriesStore, IntArray]:
    """Return the store and the groups of series that are forecast together, (N, C).

    Args:
        store: the series.
        columns: parts of the table's columns.
        channels: `independent`: each series by itself; `joint`: the target columns of each id, or
            all series of a table with one target column.
        names: ids or target columns in the order of the channels that a model was trained on;
            None: as they come.

    Raises:
        ConfigError: joint series have static covariates.
        DataError: the series are not those of the model, or do not share their covariates.
    """
    every = np.arange(len(store.starts))
    if channels == "independent":
        return store, every[:, None]
    if columns.static_covariates and store.num_targets == 1:
        raise ConfigError(
            "model.channels=joint puts all series into one sample, which cannot have the static "
            f"covariates {list(columns.static_covariates)} of each. Drop them, or set "
            "model.channels=independent."
        )
    own = channel_names(store)
    if names is not None and set(names) != set(own):
        raise DataError(
            f"the model forecasts the series {list(names)} together, so it needs exactly these, "
            f"but the table has {list(own)}."
        )
    place = {name: number for number, name in enumerate(own)}
    order = np.array([place[name] for name in names or own])
    # The series of an id with several target columns share their covariates already.
    shared = shared_covariates(store) if store.num_targets == 1 else store
    return shared, every.reshape(-1, len(own))[:, order]


def channel_names(store: SeriesStore) -> tuple[str, ...]:
    """Return the names of joint channels: the target columns, or the ids if there is but one."""
    return store.ids if store.num_targets == 1 else store.targets
