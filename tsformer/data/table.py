"""SeriesTable: any frame or file, validated and laid on a regular grid of time."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tsformer.data.building import build_store
from tsformer.data.cache import CacheError, cached_store
from tsformer.data.columns import Columns, find_columns
from tsformer.data.findings import Findings
from tsformer.data.scanning import find_unnamed_ids
from tsformer.data.sources import Source, errors_naming, open_source
from tsformer.data.store import SeriesStore
from tsformer.data.storing import create_rows, save_store
from tsformer.errors import DataError

log = logging.getLogger(__name__)

# Files of more bytes than this are read once, and mapped into memory from then on.
_LARGE = 64 << 20


@dataclass(frozen=True)
class SeriesTable:
    """A table of series that has been found usable.

    Attributes:
        store: its values.
        columns: which column plays which part.
        findings: what is worth knowing about it; none of them is an error.
    """

    store: SeriesStore
    columns: Columns
    findings: Findings = field(default_factory=Findings)

    @classmethod
    def from_(
        cls,
        source: Any,
        *,
        id: str | None = None,
        time: str | None = None,
        target: Sequence[str] | None = None,
        past_covariates: Sequence[str] = (),
        future_covariates: Sequence[str] = (),
        static_covariates: Sequence[str] = (),
        categorical: Sequence[str] = (),
        weight: str | None = None,
        freq: str | None = None,
        regular: bool = True,
        duplicates: str = "error",
        time_zone: str | None = None,
        cache: Path | None = None,
        findings: Findings | None = None,
    ) -> "SeriesTable":
        """Read and validate a table of series.

        Args:
            source: a pandas, Polars or pyarrow table, or the path of a file, a folder, or a
                pattern; see `tsformer.data.sources`.
            id: column of the series' ids; see `find_columns` for what is found when it and the
                following are not given.
            time: column of the time stamps.
            target: columns to forecast.
            past_covariates: columns known up to now.
            future_covariates: columns known over the horizon too.
            static_covariates: columns of one value an id.
            categorical: covariates that hold names of categories.
            weight: column of the weights of ids in training.
            freq: step between rows, a pandas offset alias; inferred when None.
            regular: see `build_store`.
            duplicates: see `build_store`.
            time_zone: see `build_store`.
            cache: folder where the stores of large files are kept, to be mapped into memory; None
                builds all in memory.
            findings: receives what is found out, also when the table is refused.

        Raises:
            DataError: there is no such file, or its content cannot be used; lists all faults.
        """
        parts: dict[str, Any] = {
            "time": time,
            "target": target,
            "past_covariates": past_covariates,
            "future_covariates": future_covariates,
            "static_covariates": static_covariates,
            "categorical": categorical,
            "weight": weight,
        }
        options: dict[str, Any] = {
            "freq": freq,
            "regular": regular,
            "duplicates": duplicates,
            "time_zone": time_zone,
        }
        found = Findings() if findings is None else findings
        with errors_naming(source):
            rows = open_source(source, [*([id] if id else []), *categorical])
            columns = find_columns(rows.names, id=id, **parts)
            try:
                if cache and rows.root and sum(file.stat().st_size for file in rows.files) > _LARGE:
                    try:
                        return _from_cache(cache, rows.root, rows, columns, options, found)
                    except CacheError as error:
                        log.warning("%s The table is held in memory.", error)
                        found.items.clear()
                return cls(build_store(rows, columns, found, **options), columns, found)
            except DataError:
                ids = None if columns.id else find_unnamed_ids(rows, columns)
                if ids is not None:  # that says what all the faults come from
                    found.items.clear()
                    found.add(ids)
                    found.refuse()
                raise


def _from_cache(
    cache: Path,
    root: Path,
    rows: Source,
    columns: Columns,
    options: Mapping[str, Any],
    found: Findings,
) -> SeriesTable:
    """Return the table whose store is in the cache, or build it there."""

    def build(folder: Path) -> None:
        log.info("Reading %s files into %s, once", len(rows.files), cache)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:

            def allocate(name: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
                if name in ("target", "covariates"):
                    return create_rows(folder, name, shape, dtype)  # type: ignore[arg-type]  # one of the two
                path = Path(scratch) / name
                return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)

            store = build_store(rows, columns, found, allocate=allocate, **options)
        save_store(store, found, folder)

    settings = {"columns": asdict(columns), **options}
    store, known = cached_store(cache, root, rows.files, settings, build)
    found.items.update(known.items)
    return SeriesTable(store, columns, found)
