"""Named datasets: where their files are looked for, and how they become tables."""

from pathlib import Path

from tsformer.config import DatasetConfig
from tsformer.data.columns import Columns
from tsformer.data.download import download
from tsformer.data.files import match_files
from tsformer.data.reading import read_table
from tsformer.data.table import SeriesTable
from tsformer.errors import ConfigError, DataError

# Data that come with the source tree, beside the package.
EMBEDDED = Path(__file__).resolve().parents[2] / "datasets"


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
    path = Path(dataset.path).expanduser()
    places = [path] if path.is_absolute() else [path, Path(data_folder) / path, EMBEDDED / path]
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
            f"  python scripts/fit.py dataset={dataset.name} paths.download=true"
        )
    if allow_download:
        return "\nIt cannot be downloaded: there is no dataset.url."
    return ""


def load_table(
    dataset: DatasetConfig, data_folder: str, *, allow_download: bool = False
) -> tuple[SeriesTable, Columns]:
    """Find, read and validate a dataset; the arguments are those of `find_file`.

    Raises:
        DataError: the file is missing or its content cannot be used; names the file.
    """
    return read_table(
        find_file(dataset, data_folder, allow_download=allow_download),
        id=dataset.id_column,
        time=dataset.time_column,
        target=dataset.target,
        past_covariates=dataset.past_covariates,
        future_covariates=dataset.future_covariates,
        freq=dataset.freq,
        regular=dataset.regular,
    )
