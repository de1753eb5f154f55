"""docs/errors.md quotes messages that are still in the code, each with what to do."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.conftest import REPO, make_settings
from tsformer.config import parse_fit
from tsformer.errors import ConfigError

PAGE = (REPO / "docs" / "errors.md").read_text(encoding="utf-8")
ENTRY = re.compile(r"^### `([^`\n]+)`\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
ENTRIES = ENTRY.findall(PAGE)
OF_PYDANTIC = "Input should be"
VALUE = "\0"  # stands for what a message fills in


def texts_of(source: str) -> Iterator[str]:
    """Yield each text of some code, its values left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def is_quoted(message: str, texts: list[str]) -> bool:
    """Tell whether one of the texts has a message's words, with a value where it has `...`."""
    words = message.replace("...", VALUE)
    return any(words in text for text in texts)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    files = sorted((REPO / "tsformer").rglob("*.py"))
    return [text for file in files for text in texts_of(file.read_text(encoding="utf-8"))]


def test_every_heading_is_a_message_with_what_to_do() -> None:
    assert len(ENTRIES) == PAGE.count("\n### ") > 20
    messages = [message for message, _ in ENTRIES]
    assert len(set(messages)) == len(messages)
    for message, text in ENTRIES:
        assert len(text.split()) > 5, message


@pytest.mark.parametrize("message", [message for message, _ in ENTRIES])
def test_each_message_is_one_of_the_code(message: str, texts: list[str]) -> None:
    assert message == OF_PYDANTIC or is_quoted(message, texts)


def test_a_message_that_was_changed_is_found_out(texts: list[str]) -> None:
    assert is_quoted("has the time ... twice, in", texts)
    assert not is_quoted("has the hour ... twice, in", texts)
    assert not is_quoted("has the time twice, in", texts)


def test_a_wrong_type_is_told_in_these_words() -> None:
    with pytest.raises(ConfigError, match=f"batch_size=1.5: {OF_PYDANTIC}"):
        parse_fit(make_settings({"batch_size": 1.5}))
