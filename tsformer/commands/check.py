"""Tell what a fit would make of a table: `python scripts/check.py dataset=custom ...`."""

from typing import Any

from tsformer.cli import loading, run_script
from tsformer.config import parse_fit


def main(settings: dict[str, Any]) -> None:
    """Print all findings; exit code 2 if the table cannot be used as it is."""
    parse_fit(settings)  # tells mistakes before torch is loaded, which takes seconds
    with loading():
        from tsformer.checking import check

    if not check(settings):
        raise SystemExit(2)


def run() -> None:
    """Run the command with the arguments of this process."""
    run_script("check", main)
