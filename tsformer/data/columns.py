"""Which column plays which part."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tsformer.errors import DataError

_TIME_NAMES = ("ds", "date", "datetime", "timestamp", "time")


@dataclass(frozen=True)
class Columns:
    """Which column plays which part.

    A *long* table has an `id` column; each target column of each id is a series. A *wide* one has
    no `id` and one target column for each series, which is named by it.

    Attributes:
        id: of the series, None in a wide table.
        time: of the time stamps.
        target: to forecast.
        past_covariates: known up to now.
        future_covariates: known over the horizon too.
        static_covariates: one value an id.
        categorical: those of the covariates that hold names of categories, not numbers.
        weight: how often windows of an id are drawn in training, one value an id.
    """

    id: str | None
    time: str
    target: tuple[str, ...]
    past_covariates: tuple[str, ...] = ()
    future_covariates: tuple[str, ...] = ()
    static_covariates: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    weight: str | None = None

    @property
    def covariates(self) -> tuple[str, ...]:
        """Covariates that change with time, those known over the horizon first."""
        return self.future_covariates + self.past_covariates

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (
            *([self.id] if self.id else []),
            self.time,
            *self.target,
            *self.covariates,
            *self.static_covariates,
            *([self.weight] if self.weight else []),
        )


def find_columns(
    names: Iterable[str],
    *,
    id: str | None = None,
    time: str | None = None,
    target: Sequence[str] | None = None,
    past_covariates: Sequence[str] = (),
    future_covariates: Sequence[str] = (),
    static_covariates: Sequence[str] = (),
    categorical: Sequence[str] = (),
    weight: str | None = None,
) -> Columns:
    """Settle the columns' parts, filling in what is not given.

    The time column is the first called ds, date, datetime, timestamp or time, in any case; the
    id column is `unique_id` if there is one; the target is `y` of a table that has it, else every
    column left.

    Args:
        names: of all columns, in their order; a frame gives its own.
        id: column of the series' ids.
        time: column of the time stamps.
        target: columns to forecast.
        past_covariates: columns known up to now.
        future_covariates: columns known over the horizon too.
        static_covariates: columns of one value an id.
        categorical: covariates that hold names of categories.
        weight: column of the weights of ids in training.

    Raises:
        DataError: a column is missing or plays two parts.
    """
    names = list(names)
    if not time:
        lowered = {name.lower(): name for name in reversed(names)}
        time = next((lowered[name] for name in _TIME_NAMES if name in lowered), None)
        if time is None:
            raise DataError(
                f"no time column among {names}: looked for {', '.join(_TIME_NAMES)}. "
                "Name it with dataset.time_column."
            )
    id = id or None  # an empty setting is none
    if id is None and "unique_id" in names:
        id = "unique_id"
    weight = weight or None
    taken = {id, time, weight, *past_covariates, *future_covariates, *static_covariates}
    named = bool(target)
    if not target:
        # A column without a name, which pandas calls so, is one that a row's last comma makes.
        rest = [
            name for name in names if name not in taken and not re.fullmatch(r"Unnamed: \d+", name)
        ]
        target = ["y"] if "y" in rest else rest
    columns = Columns(
        id,
        time,
        tuple(target),
        tuple(past_covariates),
        tuple(future_covariates),
        tuple(static_covariates),
        tuple(categorical),
        weight,
    )
    parts = columns.names
    known = set(names)
    missing = [name for name in parts if name not in known]
    if missing:
        raise DataError(f"no column {missing[0]!r} in the table; it has {names}.")
    if not target:
        raise DataError(f"no target column is left among {names}. Name it with dataset.target.")
    double = [name for name, count in Counter(parts).items() if count > 1]
    if double:
        raise DataError(f"column {double[0]!r} cannot be used twice.")
    if id is None and (static_covariates or weight):
        raise DataError(
            f"column {(*static_covariates, weight)[0]!r} describes a series, so the table must be "
            "long, with an id column (dataset.id_column) and one row for each series and time."
        )
    covariates = {*columns.covariates, *columns.static_covariates}
    strange = [name for name in categorical if name not in covariates]
    if strange:
        raise DataError(
            f"dataset.categorical: {strange[0]!r} is not a covariate. Name it in "
            "dataset.past_covariates, future_covariates or static_covariates too."
        )
    if id is not None and not named and len(target) > 1:
        raise DataError(
            f"a table with the id column {id!r} has several columns that could be the target: "
            f"{list(target)}. Name the target with dataset.target, one or several columns."
        )
    return columns
