"""JSON of strangers, read with suspicion."""

import json
from typing import Any


def read_json(data: bytes, *, max_keys: int) -> Any:
    """Return what JSON in UTF-8 says.

    What it costs is in proportion to its length, some ten times that in memory.

    Args:
        data: the text, whose length the caller has bounded.
        max_keys: of one object.

    Raises:
        ValueError: it is not JSON, names a key twice, has too many keys or is nested too deeply, or
            holds NaN or an infinity.
    """

    def as_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > max_keys:
            raise ValueError(f"an object of more than {max_keys:,} keys")
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key in values:
                raise ValueError(f"the key {key[:80]!r} stands twice in an object")
            values[key] = value
        return values

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=as_dict, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
