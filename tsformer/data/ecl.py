"""The hourly ECL benchmark from UCI's quarter-hours; `datasets/ecl/README.md` gives the reasons."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile

import numpy as np
import pandas as pd

from tsformer.errors import DataError

MEMBER = "LD2011_2014.txt"
START = pd.Timestamp("2012-01-01")
END = pd.Timestamp("2015-01-01")  # the first hour that is not part of the table
# A client belongs to the table if it has a value before this: 321 of the 370 do.
STARTED_BY = pd.Timestamp("2012-01-08")
HOUR = pd.Timedelta(hours=1)
CHUNK = 4 * 24 * 30  # rows read at a time; with 370 clients they take 9 MB


def read_hours(
    path: Path,
    *,
    start: pd.Timestamp = START,
    end: pd.Timestamp = END,
    started_by: pd.Timestamp = STARTED_BY,
) -> pd.DataFrame:
    """Sum the quarter-hours of the UCI file to hours.

    An hour is the sum of the four values stamped :00, :15, :30 and :45 in it, each rounded up to
    a whole number. Clients without a value above zero before `started_by` are left out. The two
    odd hours a year, at the changes of the clock, are kept as they are in the file.

    Args:
        path: `LD2011_2014.txt`, or the zip archive that holds it.
        start: the first hour.
        end: the first hour after the table.
        started_by: what tells the clients that start late.

    Returns:
        The hours (local time without zone) by the clients, named as in the file.

    Raises:
        DataError: the file is missing, of another form, or lacks a quarter-hour.
    """
    hours = pd.date_range(start, end, freq=HOUR, inclusive="left")
    sums, count, started = None, np.zeros(len(hours), int), None
    try:
        with _open(path) as file:
            for chunk in pd.read_csv(file, sep=";", decimal=",", index_col=0, chunksize=CHUNK):
                stamps = pd.to_datetime(chunk.index, format="%Y-%m-%d %H:%M:%S")
                values = chunk.to_numpy(np.float64)  # rows x clients
                if sums is None:
                    clients = chunk.columns
                    sums = np.zeros((len(hours), len(clients)))
                    started = np.zeros(len(clients), bool)
                started |= (values[stamps < started_by] > 0).any(axis=0)
                inside = (stamps >= start) & (stamps < end)
                row = (stamps[inside] - start) // HOUR
                np.add.at(sums, row, np.ceil(values[inside]))
                np.add.at(count, row, 1)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file.") from error
    except (ValueError, BadZipFile, OSError) as error:  # pandas' errors are ValueErrors
        raise DataError(f"{path}: it is not UCI's {MEMBER} ({error}).") from error
    if sums is None or (count != 4).any():
        wrong = "" if sums is None else f", hour {hours[count != 4][0]}: {count[count != 4][0]}"
        raise DataError(f"{path}: every hour must have four rows{wrong}.")
    return pd.DataFrame(sums[:, started], index=hours, columns=clients[started])


def name_as_benchmark(hours: pd.DataFrame) -> pd.DataFrame:
    """Return the table under the benchmark's names: `date`, `0`, `1` and so on, the last `OT`."""
    names = [*map(str, range(hours.shape[1] - 1)), "OT"]
    return hours.set_axis(names, axis=1).rename_axis("date").reset_index()


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix.lower() != ".zip":
        with path.open("rb") as file:
            yield file
        return
    with ZipFile(path) as archive:
        # The archive also holds __MACOSX/._LD2011_2014.txt, which is not the data.
        names = [name for name in archive.namelist() if Path(name).name == MEMBER]
        if not names:
            raise DataError(f"{path}: the archive holds no {MEMBER}.")
        with archive.open(names[0]) as member:
            yield member
