"""Which column plays which part."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tsformer.errors import DataError

_TIME_NAMES = ("ds", "date", "datetime", "timestamp", "time")


@dataclass(frozen=True)
class Columns:
    """Which column plays which part.

    A *long* table has an `id` column and one target; a *wide* one has no `id` and one target
    column for each series, which is named by it.
    """

    id: str | None
    time: str
    target: tuple[str, ...]
    past_covariates: tuple[str, ...] = ()
    future_covariates: tuple[str, ...] = ()

    @property
    def covariates(self) -> tuple[str, ...]:
        """All covariates, those known over the horizon first."""
        return self.future_covariates + self.past_covariates

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that are read."""
        return (*([self.id] if self.id else []), self.time, *self.target, *self.covariates)


def find_columns(
    names: Iterable[str],
    *,
    id: str | None = None,
    time: str | None = None,
    target: Sequence[str] | None = None,
    past_covariates: Sequence[str] = (),
    future_covariates: Sequence[str] = (),
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
    taken = {id, time, *past_covariates, *future_covariates}
    if not target:
        rest = [name for name in names if name not in taken]
        target = ["y"] if "y" in rest else rest
    columns = Columns(id, time, tuple(target), tuple(past_covariates), tuple(future_covariates))
    parts = columns.names
    missing = [name for name in parts if name not in names]
    if missing:
        raise DataError(f"no column {missing[0]!r} in the table; it has {names}.")
    if not target:
        raise DataError(f"no target column is left among {names}. Name it with dataset.target.")
    double = [name for name in parts if parts.count(name) > 1]
    if double:
        raise DataError(f"column {double[0]!r} cannot be used twice.")
    if id is not None and len(target) > 1:
        raise DataError(
            f"a table with the id column {id!r} has one target column, but {list(target)} were "
            "named or left over. Name one with dataset.target."
        )
    return columns
