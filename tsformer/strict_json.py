"""JSON that is strict: of strangers, read with suspicion; our own, without NaN."""

import json
import math
import re
from typing import Any

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)  # or what is left of one that is cut off


def read_json(data: bytes, *, max_parts: int) -> Any:
    """Return what JSON in UTF-8 says.

    What it costs is in proportion to its length: some ten times that in memory.

    Args:
        data: the text, whose length the caller has bounded.
        max_parts: lists, objects and keys in it together, at most.

    Raises:
        ValueError: it is not JSON, names a key twice, has too many parts or is nested too deeply,
            or holds NaN or an infinity.
    """
    structure = _STRING.sub(b"", data)
    if sum(map(structure.count, (b"[", b"{", b":"))) > max_parts:
        raise ValueError(f"more than {max_parts:,} lists, objects and keys")
    try:
        text = data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_without_doubles, parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key[:80]!r} is listed twice in an object")
        values[key] = value
    return values


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def without_nan(value: Any) -> Any:
    """Return nested dicts with None where a number is not finite, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
