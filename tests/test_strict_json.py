"""JSON as the standard library reads it, but for what no honest file holds."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsformer.strict_json import read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, width=32),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def count(value: Any) -> int:
    """Count lists, objects and keys."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 0


@given(VALUES.filter(lambda value: value not in (float("inf"), float("-inf"))), st.booleans())
def test_honest_json_is_read_and_its_parts_are_counted(value: Any, ascii: bool) -> None:
    try:
        text = json.dumps(value, ensure_ascii=ascii, allow_nan=False)
        data = text.encode()
    except ValueError:  # infinity, or half a character
        return
    assert read_json(data, max_parts=count(value)) == value
    if count(value):
        with pytest.raises(ValueError, match="lists, objects and keys"):
            read_json(data, max_parts=count(value) - 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"a": 1, "a": 1}', "'a' is listed twice"),
        (b'[{"b": {"a": 1, "\\u0061": 2}}]', "'a' is listed twice"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'"' + b'\\"' * 100_000, "Unterminated string"),
        (b"\xff", "utf-8"),
        (b"", "Expecting value"),
    ],
)
def test_dishonest_json_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_json(text, max_parts=10**6)
