"""docs/settings.md tells every key of every command, as conf/ and the config classes have it."""

import runpy
from typing import Any

import pytest

from tests.conftest import REPO


@pytest.fixture(scope="module")
def make() -> dict[str, Any]:
    return runpy.run_path(str(REPO / "docs" / "make_settings.py"))


def test_the_page_is_what_conf_and_the_classes_say(make: dict[str, Any]) -> None:
    page = (REPO / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == make["render"](), "run `python docs/make_settings.py`"


def test_comments_go_on_in_the_next_line_and_stand_behind_mappings(
    make: dict[str, Any], tmp_path: Any
) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(
        "a: [1, 2] # one\n  # and two\nb: # three\n  c: '#4' # five\n# six\nhydra: {}\n"
    )
    found = make["read_entries"](file)
    assert {key: tuple(entry) for key, entry in found.items()} == {
        "a": ("[1, 2]", "one and two"),
        "b": ("", "three"),
        "b.c": ("'#4'", "five"),
    }


@pytest.mark.parametrize(
    ("types", "entries", "message"),
    [
        ({"a": "text"}, {}, "x.a: in conf/ or in the config class alone"),
        ({}, {"a": ("1", "one")}, "x.a: in conf/ or in the config class alone"),
        ({"a": "text"}, {"a": ("1", "")}, "x.a: conf/ has no comment"),
    ],
)
def test_a_key_that_is_not_told_of_stops_it(
    make: dict[str, Any], types: Any, entries: Any, message: str
) -> None:
    with pytest.raises(SystemExit, match=message):
        make["table"](types, entries, "x.")
