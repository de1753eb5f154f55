"""Where tables are printed."""

import os

from rich.console import Console


def open_console() -> Console:
    """Return the terminal, or standard output 100 columns wide unless COLUMNS says otherwise."""
    console = Console(markup=False)  # names of series may hold [brackets]
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(markup=False, width=100)
