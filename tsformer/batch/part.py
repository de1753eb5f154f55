"""One part: its rows are read, forecast and written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from pyarrow import parquet

from tsformer.batch.plan import Place
from tsformer.data.gathering import open_gathered
from tsformer.data.parsing import parse_texts
from tsformer.data.sources import Source, errors_naming, open_source, open_spans, read_frame
from tsformer.data.writing import write_parquet
from tsformer.errors import DataError
from tsformer.forecaster import Forecaster
from tsformer.history import text_columns

FORECASTS = "forecasts"  # folder in the output, of the parts
GATHERED = ".gathered"  # folder in the output, of rows brought together
_ERRORS = b"tsformer.errors"  # in the footer of a part, so that file and errors are one


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
            forecast = forecaster.predict(source, future, **arguments)
    except DataError:
        if job.on_error == "raise" or job.id is None:
            raise
        forecast, errors = _forecast_some(forecaster, job, number, source, arguments)
    text = json.dumps(errors, ensure_ascii=False).encode()
    write_parquet(forecast, job.path(number), {_ERRORS: text} if errors else {})
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
        raise DataError(f"{path}: damaged ({error}). Remove it, and run the same again.") from error
    errors = json.loads((metadata.metadata or {}).get(_ERRORS, b"[]"))
    rows = metadata.num_rows
    return Done(number, rows, rows // job.arguments["horizon"], [(id, why) for id, why in errors])


def _name(job: Job, number: int) -> str:
    """Name the input in messages; rows that were gathered have other numbers than in the input."""
    return f"{job.input}{'' if job.places[number] else f', gathered part {number}'}"


def _forecast_some(
    forecaster: Forecaster, job: Job, number: int, source: Source, arguments: Mapping[str, Any]
) -> tuple[pd.DataFrame, list[tuple[Any, str]]]:
    """Forecast the series that can be, and return the ids and faults of the others.

    Halves of the series are tried, and halves of those that fail, until each fault is alone.
    """
    assert job.id is not None
    frame = read_frame(source)
    future = job.future_rows(number, text_columns(forecaster.config))
    if isinstance(future, Source):
        future = read_frame(future)
    codes = parse_texts(frame[job.id], job.id)[1]  # by appearance; -1: no id
    order = np.argsort(codes, kind="stable")
    by_series = frame.iloc[order]
    series, starts = np.unique(codes[order], return_index=True)
    bounds = np.append(starts, len(frame))
    faults: dict[int, str] = {}

    def predict(rows: pd.DataFrame) -> pd.DataFrame:
        return forecaster.predict(rows, future, **arguments)

    def find(begin: int, end: int) -> None:
        try:
            predict(by_series.iloc[bounds[begin] : bounds[end]])
        except DataError as error:
            middle = (begin + end) // 2
            if begin == middle:
                faults[begin] = str(error)
            else:
                find(begin, middle)
                find(middle, end)

    find(0, len(series))
    if len(faults) < len(series):
        usable = ~np.isin(codes, series[list(faults)])
        with errors_naming(_name(job, number)):
            forecast = predict(frame[usable])
    else:
        forecast = _nothing(forecaster, job, frame[job.id], arguments)
    ids = by_series[job.id].iloc[starts]
    return forecast, [(_plain(ids.iloc[place]), why) for place, why in sorted(faults.items())]


def _nothing(
    forecaster: Forecaster, job: Job, ids: pd.Series, arguments: Mapping[str, Any]
) -> pd.DataFrame:
    """Return a forecast of no series."""
    names = ("level", "quantiles", "num_samples", "adaptive", "seed")
    level, quantiles, num_samples, adaptive, seed = (arguments[name] for name in names)
    asked = forecaster.asked(level, quantiles, num_samples or 0, adaptive, seed)
    has_targets = len(forecaster.config.columns.target) > 1
    return pd.DataFrame(
        {"unique_id": ids.iloc[:0]}
        | ({"target": pd.Series(dtype=str)} if has_targets else {})
        | {"ds": pd.Series(dtype="datetime64[us]")}
        | {name: pd.Series(dtype=float) for name in asked.names}
    )


def _plain(id: Any) -> Any:
    """Return an id as JSON holds it."""
    if pd.isna(id):
        return None
    return id.item() if isinstance(id, (np.integer, np.floating)) else str(id)
