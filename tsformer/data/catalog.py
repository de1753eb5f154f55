"""Named datasets: where their files are looked for, and how they become tables."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsformer.config import DatasetConfig, FitConfig, PathsConfig, parse_fit
from tsformer.data.download import download
from tsformer.data.files import match_files
from tsformer.data.findings import Findings
from tsformer.data.lengths import suggest_lengths
from tsformer.data.splits import split_ends
from tsformer.data.table import SeriesTable
from tsformer.errors import ConfigError, DataError
from tsformer.places import DATASETS, command, expand
from tsformer.settings import parse

log = logging.getLogger(__name__)


def find_file(dataset: DatasetConfig, data_folder: str, *, allow_download: bool = False) -> Path:
    """Return the dataset's file: `dataset.path` as it is, or under a data folder.

    It may be a folder of files or a pattern that matches some, too.

    Args:
        dataset: names the file, and where it can be downloaded.
        data_folder: where files lie, and where a download is put.
        allow_download: download a file that is nowhere from `dataset.url`.

    Raises:
        DataError: it is nowhere; says where it was looked for and where to get it. Or the
            download failed.
    """
    if dataset.path == "":
        raise ConfigError("dataset.path: name your CSV or Parquet file, dataset.path=my.csv")
    path = expand(dataset.path)
    places = [path] if path.is_absolute() else [path, Path(data_folder) / path, DATASETS / path]
    for place in places:
        if place.exists() or match_files(place):
            return place
    target = Path(data_folder) / path  # `path` itself if that is absolute
    if allow_download and dataset.url:
        download(dataset.url, target, sha256=dataset.sha256)
        return target
    looked = "".join(f"\n  {place.absolute()}" for place in dict.fromkeys(places))
    source = f"\nWhere to get it: {dataset.source}" if dataset.source else ""
    raise DataError(
        f"dataset {dataset.name!r}: its file was not found. Looked for:{looked}{source}"
        f"{_how_to_download(dataset, target, allow_download)}\n"
        "Name the folder that holds it with paths.data=... or the environment variable "
        "TSFORMER_DATA, or the file itself with dataset.path=..."
    )


def _how_to_download(dataset: DatasetConfig, target: Path, allow_download: bool) -> str:
    if dataset.url:
        return (
            f"\nTo download it from {dataset.url} (licence: {dataset.licence or 'not stated'}) to "
            f"{target.absolute()}, add paths.download=true to the command:\n"
            f"  {command('fit')} dataset={dataset.name} paths.download=true"
        )
    if allow_download:
        return "\nIt cannot be downloaded: there is no dataset.url."
    return ""


def load_table(
    dataset: DatasetConfig, paths: PathsConfig, findings: Findings | None = None
) -> SeriesTable:
    """Find, read and validate a dataset.

    Args:
        dataset: names the file and its columns.
        paths: where it is looked for, and where a large table is cached.
        findings: receives what is found out, also when the table is refused.

    Raises:
        DataError: the file is missing or its content cannot be used; names the file.
    """
    file = find_file(dataset, paths.data, allow_download=paths.download)
    return read_as(dataset, file, cache=_cache_folder(paths.cache), findings=findings)


def read_as(dataset: DatasetConfig, source: Any, **options: Any) -> SeriesTable:
    """Read any table by the parts of columns and the policies of a dataset.

    Args:
        dataset: names the columns.
        source: see `SeriesTable.from_`.
        options: its other arguments.

    Raises:
        DataError: the table cannot be used.
    """
    return SeriesTable.from_(
        source,
        id=dataset.id_column,
        time=dataset.time_column,
        target=dataset.target,
        past_covariates=dataset.past_covariates,
        future_covariates=dataset.future_covariates,
        static_covariates=dataset.static_covariates,
        categorical=dataset.categorical,
        weight=dataset.weight_column,
        freq=dataset.freq,
        regular=dataset.regular,
        duplicates=dataset.duplicates,
        time_zone=dataset.time_zone,
        **options,
    )


def _cache_folder(name: str | None) -> Path | None:
    try:
        return Path(name).expanduser() if name else None  # TSFORMER_CACHE= is none, too
    except RuntimeError:  # there is no home folder
        log.warning("paths.cache=%s: there is no such folder, so nothing is cached.", name)
        return None


def load_data(
    settings: Mapping[str, Any], findings: Findings | None = None
) -> tuple[SeriesTable, FitConfig]:
    """Read the table that settings name, and settle the lengths that they leave to it.

    Args:
        settings: of a fit.
        findings: receives what is found out, also when the table is refused.

    Raises:
        ConfigError: a setting is unknown or wrong.
        DataError: the data cannot be found or used.
    """
    dataset = parse(DatasetConfig, settings["dataset"])
    paths = parse(PathsConfig, settings["paths"])
    table = load_table(dataset, paths, findings)
    ends = split_ends(dataset.split, table.store)
    return table, parse_fit(settings, suggest_lengths(table.store.freq, ends))
