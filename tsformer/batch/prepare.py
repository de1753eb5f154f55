"""What is looked at before a batch forecast begins: mistakes that concern the whole table."""

import os
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pandas as pd

from tsformer.batch.config import BatchConfig
from tsformer.batch.part import GATHERED, gathered_file
from tsformer.batch.plan import Place, plan_parts
from tsformer.data.calendar import step_of
from tsformer.data.columns import Columns
from tsformer.data.findings import Findings
from tsformer.data.gathering import gather
from tsformer.data.parsing import parse_stamps
from tsformer.data.sources import Source, Span, errors_naming, open_source
from tsformer.data.writing import naming_full_disk
from tsformer.errors import ConfigError, DataError
from tsformer.forecaster import Forecaster
from tsformer.prediction.history import columns_of, text_columns


@dataclass
class Input:
    """The tables of a batch forecast.

    Attributes:
        history: the series.
        future: the future covariates; None if the model has none.
        columns: parts of the columns.
        id: column that the series are parted by; None if the model takes them all together.
        zone: of the forecasts' times; None: naive.
    """

    history: Source
    future: Source | None
    columns: Columns
    id: str | None
    zone: str | None


class Layout(NamedTuple):
    """How a table is parted.

    Attributes:
        places: where the rows of each part are.
        id_type: Arrow's name of the ids' type; None if the series cannot be parted.
    """

    places: list[Place]
    id_type: str | None


def check_input(config: BatchConfig, forecaster: Forecaster, output: Path) -> Input:
    """Open the tables, and refuse at once what no series could be forecast with.

    Raises:
        ConfigError: an argument is not for this model, or a setting is missing.
        DataError: a table cannot be read, a column is missing, or its times are none.
    """
    num_paths = config.num_samples or 0
    forecaster.asked(config.level, config.quantiles, num_paths, config.adaptive, config.seed)
    if output.resolve().is_relative_to(config.model.resolve()):
        raise ConfigError(f"output={output} is inside the model folder: choose another output.")
    history = _open(config.input, forecaster, output)
    with errors_naming(config.input):
        columns = columns_of(history.names, forecaster.config)
        chunk = next(history.chunks([columns.time]))
        _, zone = parse_stamps(chunk.frame[columns.time], columns.time, Findings())
    own = forecaster.config
    if zone and own.time_zone and step_of(own.freq) >= pd.Timedelta(days=1):  # see `lay_out`
        zone = own.time_zone
    future = None
    if names := columns.future_covariates:
        if config.future is None:
            raise ConfigError(
                f"the model uses the future covariates {list(names)}: name the table of their "
                "values over the horizon with future=..."
            )
        future = _open(config.future, forecaster, output)
        needed = [name for name in (columns.id, columns.time, *names) if name]
        if missing := [name for name in needed if name not in future.names]:
            raise DataError(f"{config.future}: no column {missing[0]!r}; it needs {needed}.")
    joint = forecaster.config.model.channels == "joint" and len(columns.target) == 1
    return Input(history, future, columns, None if joint else columns.id, zone)


def lay_out_parts(found: Input, config: BatchConfig, output: Path, at_least: int) -> Layout:
    """Return where the rows of each part are, and gather those that are not in one place.

    Raises:
        DataError: a table cannot be read.
        OSError: the rows cannot be written to the output folder.
    """
    history, columns, id = found.history, found.columns, found.id
    if id is None:
        return Layout([tuple(map(Span, history.files))], None)
    with errors_naming(config.input):
        plan = plan_parts(
            history,
            id,
            max_rows=config.rows_per_part,
            max_series=config.series_per_part,
            at_least=at_least,
        )
    gathered: list[tuple[str, Path | None, Source, tuple[str, ...]]] = []
    if None in plan.places:
        gathered.append(("history", config.input, history, columns.names))
    if found.future:
        names = (id, columns.time, *columns.future_covariates)
        gathered.append(("future", config.future, found.future, names))
    layout = Layout(plan.places, str(plan.id_type))
    if not gathered:
        return layout
    scratch = output / f"{GATHERED}-{uuid4().hex[:8]}"  # until it is whole
    scratch.mkdir()
    try:
        with naming_full_disk(output / GATHERED):
            for what, path, source, names in gathered:
                with errors_naming(path):
                    gather(source, names, id, plan.part_of, partial(gathered_file, scratch, what))
            for file in scratch.iterdir():
                with file.open("rb+") as stream:
                    os.fsync(stream.fileno())
        scratch.rename(output / GATHERED)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return layout


def _open(path: Path, forecaster: Forecaster, output: Path) -> Source:
    source = open_source(path, text_columns(forecaster.config))
    folder = output.resolve()
    files = [file.resolve() for file in source.files]
    if folder.is_relative_to(path.resolve()) or any(file.is_relative_to(folder) for file in files):
        raise ConfigError(
            f"output={output} must not be inside the input {path}, or contain it: choose another "
            "output."
        )
    return source
