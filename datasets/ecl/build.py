"""Build the ECL benchmark from UCI's quarter-hours; README.md says how sure the way is.

Usage::

    python datasets/ecl/build.py                         # downloads the archive from UCI, 261 MB
    python datasets/ecl/build.py electricityload...zip   # uses one that you have, or its .txt
    python datasets/ecl/build.py --compare papers.csv    # and tells how many values agree
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from tsformer.data.download import download
from tsformer.data.ecl import name_as_benchmark, read_hours
from tsformer.errors import DataError

URL = "https://archive.ics.uci.edu/static/public/321/electricityloaddiagrams20112014.zip"
SHA256 = "f6c4d0e0df12ecdb9ea008dd6eef3518adb52c559d04a9bac2e1b81dcfc8d4e1"
OUTPUT = Path(__file__).resolve().parents[1] / "electricity" / "electricity.csv"
CLIENTS = 321


def write_csv(table: pd.DataFrame, output: Path) -> None:
    """Write the table through a temporary file in the same folder."""
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}.tmp")
    try:
        table.to_csv(temporary, index=False, float_format="%.0f")
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)


def compare(table: pd.DataFrame, path: Path) -> str:
    """Tell how many values of another copy agree; rows by place, columns by name.

    Args:
        table: the built table.
        path: the CSV of the papers, or an extract with some of its columns.
    """
    other = pd.read_csv(path)
    names = [name for name in other.columns if name != "date" and name in table.columns]
    if len(other) != len(table) or not names:
        return f"{path} has {len(other)} rows and {len(names)} common columns: not comparable"
    equal = (table[names] == other[names]).to_numpy()
    text = f"{equal.sum():,} of {equal.size:,} values of {path} agree"
    if equal.all():
        return text
    row, column = divmod(int((~equal).argmax()), len(names))
    name = names[column]
    ours, theirs = table[name].iloc[row], other[name].iloc[row]
    return f"{text}; the first that differs: row {row}, column {name}, {ours} here, {theirs} there"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, or 1 on failure."""
    parser = argparse.ArgumentParser(description="Build electricity.csv (ECL) from UCI's file.")
    parser.add_argument("source", nargs="?", type=Path, help="UCI's zip or txt (default: download)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="default: %(default)s")
    parser.add_argument("--compare", type=Path, help="CSV of the papers, or columns of it")
    args = parser.parse_args(argv)
    try:
        if args.output.exists():
            raise DataError(f"{args.output} is there already: move it or choose another --output")
        source = args.source
        if source is None:
            source = args.output.with_name(URL.rpartition("/")[2])
            download(URL, source, sha256=SHA256)
        hours = read_hours(source)
        if hours.shape[1] != CLIENTS:
            raise DataError(f"{source}: {hours.shape[1]} clients have values from 2012 on, not 321")
        table = name_as_benchmark(hours)
        write_csv(table, args.output)
        print(f"{args.output}: {len(table)} rows x {CLIENTS} clients")
        if args.compare is not None:
            print(compare(table, args.compare))
    except (DataError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
