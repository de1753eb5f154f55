"""Files of results: a line of JSON for each, whole or passed over."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]  # a line


def add_record(path: Path, record: Record) -> None:
    """Append a line; lines of several processes do not mix."""
    line = json.dumps(record) + "\n"
    # A line that an interruption left unfinished does not run into this one.
    unfinished = path.exists() and path.read_bytes()[-1:] not in (b"\n", b"")
    with path.open("ab", buffering=0) as file:
        file.write((f"\n{line}" if unfinished else line).encode())


def read_records(path: Path, keys: Iterable[str]) -> Iterator[Record]:
    """Yield the records of a file that have `keys`; a line that is not whole is passed over."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.keys() >= set(keys):
            yield record
