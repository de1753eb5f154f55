"""Named datasets: where their files are looked for, and how they become tables."""

from pathlib import Path

from tsformer.config import DatasetConfig
from tsformer.data.columns import Columns
from tsformer.data.files import match_files
from tsformer.data.reading import read_table
from tsformer.data.table import SeriesTable
from tsformer.errors import ConfigError, DataError

# Data that come with the source tree, beside the package.
EMBEDDED = Path(__file__).resolve().parents[2] / "datasets"


def find_file(dataset: DatasetConfig, data_folder: str) -> Path:
    """Return the dataset's file: `dataset.path` as it is, or under a data folder.

    It may be a folder of files or a pattern that matches some, too.

    Raises:
        DataError: it is nowhere; says where it was looked for and where to get it.
    """
    if dataset.path == "":
        raise ConfigError("dataset.path: name your CSV or Parquet file, dataset.path=my.csv")
    path = Path(dataset.path).expanduser()
    places = [path] if path.is_absolute() else [path, Path(data_folder) / path, EMBEDDED / path]
    for place in places:
        if place.exists() or match_files(place):
            return place
    looked = "".join(f"\n  {place.absolute()}" for place in dict.fromkeys(places))
    source = f"\nWhere to get it: {dataset.source}" if dataset.source else ""
    raise DataError(
        f"dataset {dataset.name!r}: its file was not found. Looked for:{looked}{source}\n"
        "Name the folder that holds it with paths.data=... or the environment variable "
        "TSFORMER_DATA, or the file itself with dataset.path=..."
    )


def load_table(dataset: DatasetConfig, data_folder: str) -> tuple[SeriesTable, Columns]:
    """Read and validate a dataset.

    Raises:
        DataError: the file is missing or its content cannot be used; names the file.
    """
    return read_table(
        find_file(dataset, data_folder),
        id=dataset.id_column,
        time=dataset.time_column,
        target=dataset.target,
        past_covariates=dataset.past_covariates,
        future_covariates=dataset.future_covariates,
        freq=dataset.freq,
        regular=dataset.regular,
    )
