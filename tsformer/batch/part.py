"""One part: its rows are read, forecast and written."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import is_string_dtype
from pyarrow import parquet

from tsformer.batch.plan import Place
from tsformer.data.gathering import open_gathered
from tsformer.data.parsing import id_text, parse_ids
from tsformer.data.sources import Source, errors_naming, open_source, open_spans, read_frame
from tsformer.data.writing import write_parquet
from tsformer.errors import DataError
from tsformer.forecaster import Forecaster
from tsformer.prediction.history import text_columns

FORECASTS = "forecasts"  # folder in the output, of the parts
GATHERED = ".gathered"  # folder in the output, of rows brought together
# In the footer of a part, so that they are one with its file.
_ERRORS, _FORECAST = b"tsformer.errors", b"tsformer.forecast"


@dataclass(frozen=True)
class Job:
    """What any process has to know to forecast any part.

    Attributes:
        model: the model folder.
        input: the history.
        future: the future covariates; None if there are none.
        output: folder of the forecasts.
        places: where the rows of each part are.
        id: column of the ids; None if the series of the table cannot be parted.
        id_type: Arrow's name of the ids' type in the forecasts; None: as they are.
        zone: time zone of the forecasts; None: naive.
        key: of the forecast that the parts are of.
        arguments: of `Forecaster.predict`.
        on_error: what to do with series that cannot be forecast.
        device: where the network computes.
    """

    model: Path
    input: Path
    future: Path | None
    output: Path
    places: Sequence[Place]
    id: str | None
    id_type: str | None
    zone: str | None
    key: str
    arguments: Mapping[str, Any]
    on_error: Literal["raise", "skip"]
    device: str

    def path(self, number: int) -> Path:
        """Return the file of a part's forecasts."""
        return self.output / FORECASTS / part_name(number)

    def history(self, number: int, text_columns: Sequence[str]) -> Source:
        """Return the rows of a part."""
        place = self.places[number]
        if place is None:
            file = gathered_file(self.output / GATHERED, "history", number)
            return open_gathered(file, text_columns)
        return open_spans(self.input, place, text_columns)

    def future_rows(self, number: int, text_columns: Sequence[str]) -> Source | pd.DataFrame | None:
        """Return the future covariates of a part's series; None if the model has none."""
        if self.future is None:
            return None
        if self.id is None:
            return open_source(self.future, text_columns)
        file = gathered_file(self.output / GATHERED, "future", number)
        return open_gathered(file, text_columns) if file.exists() else pd.DataFrame()


class Done(NamedTuple):
    """A part that is written.

    Attributes:
        number: of the part.
        rows: of forecasts.
        series: forecast.
        errors: series that were left out: the id, and the reason.
    """

    number: int
    rows: int
    series: int
    errors: list[tuple[Any, str]]


def part_name(number: int) -> str:
    """Return the name of a part's file."""
    return f"part-{number:05d}.parquet"


def gathered_file(folder: Path, what: str, number: int) -> Path:
    """Return the file in which the rows of a part, of its history or future, are gathered."""
    return folder / f"{what}-{number:05d}.arrows"


def forecast_part(forecaster: Forecaster, job: Job, number: int) -> Done:
    """Forecast a part and write its file; the bytes do not depend on who does it.

    Sample paths of each part have a seed of their own.

    Raises:
        DataError: the part cannot be forecast, or not read.
        OSError: it cannot be written.
    """
    arguments = {**job.arguments, "seed": job.arguments["seed"] + number}
    source = job.history(number, text_columns(forecaster.config))
    errors: list[tuple[Any, str]] = []
    try:
        with errors_naming(_name(job, number)):
            future = job.future_rows(number, text_columns(forecaster.config))
            forecast = _typed(forecaster.predict(source, future, **arguments), job)
    except DataError:
        if job.on_error == "raise" or job.id is None:
            raise
        forecast, errors = _forecast_some(forecaster, job, number, source, arguments)
    footer = {_FORECAST: f"{job.key} {number}".encode()}
    if errors:
        footer[_ERRORS] = json.dumps(errors, ensure_ascii=False).encode()
    write_parquet(forecast, job.path(number), footer)
    return Done(number, len(forecast), len(forecast) // arguments["horizon"], errors)


def read_part(job: Job, number: int) -> Done | None:
    """Return what the footer of a part's file says, or None if it is not written.

    Raises:
        DataError: the file is damaged.
    """
    path = job.path(number)
    try:
        metadata = parquet.read_metadata(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # Arrow's are these
        raise DataError(f"{path}: damaged ({error}). Remove it and run again.") from error
    footer = metadata.metadata or {}
    if footer.get(_FORECAST) != f"{job.key} {number}".encode():
        raise DataError(f"{path}: not written by this forecast. Remove it and run again.")
    errors = json.loads(footer.get(_ERRORS, b"[]"))
    rows = metadata.num_rows
    return Done(number, rows, rows // job.arguments["horizon"], [(id, why) for id, why in errors])


def _name(job: Job, number: int) -> str:
    """Name the input in messages; rows that were gathered have other numbers than in the input."""
    return f"{job.input}{'' if job.places[number] else f', gathered part {number}'}"


def _forecast_some(
    forecaster: Forecaster, job: Job, number: int, source: Source, arguments: Mapping[str, Any]
) -> tuple[pa.Table, list[tuple[Any, str]]]:
    """Forecast the series that can be, and return the ids and faults of the others.

    Halves of the series are tried, and halves of those that fail, until each fault is alone.
    """
    assert job.id is not None
    frame = read_frame(source)
    future = job.future_rows(number, text_columns(forecaster.config))
    if isinstance(future, Source):
        future = read_frame(future)
    codes = parse_ids(frame[job.id], job.id)[1]  # by appearance; -1: no id
    order = np.argsort(codes, kind="stable")
    by_series = frame.iloc[order]
    series, starts = np.unique(codes[order], return_index=True)
    bounds = np.append(starts, len(frame))
    ids = by_series[job.id].iloc[starts]
    errors: list[tuple[Any, str]] = []

    def forecast(begin: int, end: int) -> Iterator[pa.Table]:
        try:
            rows = by_series.iloc[bounds[begin] : bounds[end]]
            yield _typed(forecaster.predict(rows, future, **arguments), job)
        except DataError as error:
            middle = (begin + end) // 2
            if begin == middle:
                errors.append((_plain(ids.iloc[begin]), str(error)))
            else:
                yield from forecast(begin, middle)
                yield from forecast(middle, end)

    nothing = _nothing(forecaster, job, arguments)
    found = pa.concat_tables([nothing, *forecast(0, len(series))])
    return found, errors


def _nothing(forecaster: Forecaster, job: Job, arguments: Mapping[str, Any]) -> pa.Table:
    """Return a forecast of no series."""
    names = ("level", "quantiles", "num_samples", "adaptive", "seed")
    level, quantiles, num_samples, adaptive, seed = (arguments[name] for name in names)
    asked = forecaster.asked(level, quantiles, num_samples or 0, adaptive, seed)
    has_targets = len(forecaster.config.columns.target) > 1
    frame = pd.DataFrame(
        {"unique_id": pd.Series(dtype=str)}
        | ({"target": pd.Series(dtype=str)} if has_targets else {})
        | {"ds": pd.DatetimeIndex([], dtype="datetime64[us]").tz_localize(job.zone)}
        | {name: pd.Series(dtype=float) for name in asked.names}
    )
    return _typed(frame, job)


def _typed(forecast: pd.DataFrame, job: Job) -> pa.Table:
    """Return a forecast with the types that those of all parts have.

    Raises:
        DataError: its times have a zone where those of the other parts have none, or the reverse.
    """
    zone = forecast["ds"].dt.tz
    if (zone is None) != (job.zone is None):
        raise DataError(
            f"its times have {'no zone' if zone is None else f'the zone {zone}'}, but the "
            f"first times of the table have {'none' if job.zone is None else job.zone}. Give all "
            "of them a zone, or none."
        )
    ids = forecast["unique_id"]
    kind = None if job.id_type is None else pa.type_for_alias(job.id_type)
    if kind == pa.string() and not is_string_dtype(ids):
        ids = pd.Series([id_text(id) for id in ids], dtype=object)
    table = pa.Table.from_pandas(forecast.drop(columns="unique_id"), preserve_index=False)
    table = table.replace_schema_metadata()
    times = table["ds"].cast(pa.timestamp("us", job.zone))
    table = table.set_column(table.schema.get_field_index("ds"), "ds", times)
    return table.add_column(0, "unique_id", pa.array(ids, kind, from_pandas=True))


def _plain(id: Any) -> Any:
    """Return an id as JSON holds it."""
    if pd.isna(id):
        return None
    return id.item() if isinstance(id, (np.integer, np.floating)) else str(id)
