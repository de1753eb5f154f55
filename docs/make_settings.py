"""Write docs/settings.md: `python docs/make_settings.py`, after a change of conf/ or of a config.

Keys, defaults and effects (the comments) are those of conf/, types and limits those of the classes
that check them. A key that lacks one of these, or stands on one side alone, is an error.
"""

import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args

import yaml
from pydantic import TypeAdapter

from tsformer import Forecaster
from tsformer.batch.config import BatchConfig
from tsformer.commands.export import ExportConfig
from tsformer.config import FitConfig
from tsformer.data.writing import write_atomically
from tsformer.evaluation.config import EvaluateConfig
from tsformer.places import CONF
from tsformer.settings import Config
from tsformer.sweep.config import SweepConfig

PAGE = Path(__file__).with_name("settings.md")

# What is chosen as a whole: its key, and the files whose values and comments tell of it.
GROUPS = {
    "dataset": ["base"],
    "scaling": ["default"],
    "sampling": ["default"],
    "model": ["base"],
    "optimizer": ["adamw"],
    "scheduler": ["cosine"],
    "trainer": ["cpu"],
    "callbacks": ["default"],
    "logger": ["default", "csv", "mlflow", "wandb"],
    "paths": ["default"],
}
HEAD = """# Settings

Every key of every command, made by `python docs/make_settings.py` from `conf/` and the classes that
check the values; a test compares it with them. `key=value` on the command line sets one,
`group=option` a file of `conf/`. A default such as `${dataset.suggested.horizon}` takes another
key's value, and one in bold has to be given.
"""


class Entry(NamedTuple):
    """What a config file says of a key: its default, and the comment behind it."""

    default: str
    effect: str


def read_entries(path: Path) -> dict[str, Entry]:
    """Return the keys of a config file, dotted, but for those that Hydra takes itself."""
    text = path.read_text(encoding="utf-8")
    return dict(_entries(yaml.compose(text), text.splitlines(), ""))


def _entries(node: yaml.MappingNode, lines: list[str], prefix: str) -> Iterator[tuple[str, Entry]]:
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        if name in ("hydra", "defaults"):
            continue
        if isinstance(value, yaml.MappingNode) and value.value:
            yield name, Entry("", _comment(lines, key.end_mark.line, key.end_mark.column + 1))
            yield from _entries(value, lines, f"{name}.")
        else:
            end = value.end_mark
            row = lines[value.start_mark.line]
            last = end.column if end.line == value.start_mark.line else len(row)
            default = row[value.start_mark.column : last]
            yield name, Entry(default, _comment(lines, value.start_mark.line, last))


def _comment(lines: list[str], row: int, column: int) -> str:
    """Return the comment behind a place, with the lines of comment alone that follow it."""
    rest = lines[row][column:].strip()
    found = [rest.lstrip("# ")] if rest.startswith("#") else []
    for line in lines[row + 1 :] if found else []:
        if not line.strip().startswith("#") or not line.startswith(" "):
            break
        found.append(line.strip().lstrip("# "))
    return " ".join(found)


def types_of(kind: type[Config]) -> dict[str, str]:
    """Return the type of each key of a config, dotted, in words."""
    schema = kind.model_json_schema()
    return dict(_types(schema, schema.get("$defs", {}), ""))


def _types(schema: Mapping[str, Any], known: Mapping[str, Any], prefix: str) -> Iterator[Any]:
    for name, field in schema["properties"].items():
        yield f"{prefix}{name}", _words(field, known)
        for part in [field, *field.get("anyOf", [])]:
            if "$ref" in part:
                inner = known[part["$ref"].rsplit("/", 1)[1]]
                yield from _types(inner, known, f"{prefix}{name}.")


def _words(field: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return a JSON schema in words."""
    if "$ref" in field:
        return "settings"
    if "anyOf" in field:
        return " or ".join(dict.fromkeys(_words(part, known) for part in field["anyOf"]))
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    kind = field.get("type")
    if kind == "array":
        items = field.get("items") or field["prefixItems"][0]
        return f"list of {_words(items, known)}"
    if kind == "object":
        return "mapping"
    limits = _limits(field, whole=kind == "integer")
    word = {"boolean": "true or false", "string": "text", "null": "null"}.get(kind or "", kind)
    return (
        ", ".join([f"{word or 'any'} {limits[0]}", *limits[1:]]) if limits else str(word or "any")
    )


def _limits(field: Mapping[str, Any], *, whole: bool) -> list[str]:
    """Return the limits of a number; bounds far above any use, 2**20 and more, are left out."""
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    if whole and "exclusiveMinimum" in field:
        field = {**field, "minimum": field["exclusiveMinimum"] + 1, "exclusiveMinimum": 2**20}
    return [
        f"{sign} {field[key]:g}" for key, sign in signs.items() if field.get(key, 2**20) < 2**20
    ]


def fine_tune_types() -> dict[str, str]:
    """Return the types of the settings of fine_tune, which are the method's arguments."""
    parameters = inspect.signature(Forecaster.fine_tune).parameters
    types = {"model": "text", "input": "text", "device": "text"}
    for name, parameter in parameters.items():
        if name not in ("self", "frame"):
            given = get_args(parameter.annotation) or [parameter.annotation]
            kinds = [kind for kind in given if kind is not Path]
            types[name] = _words(TypeAdapter(Union[tuple(kinds)]).json_schema(), {})  # noqa: UP007
    return types


def table(types: Mapping[str, str], entries: Mapping[str, Entry], prefix: str = "") -> str:
    """Return a table of keys.

    Raises:
        SystemExit: a key has no effect, or stands on one side alone.
    """
    if odd := sorted(types.keys() ^ entries.keys()):
        raise SystemExit(f"{prefix}{odd[0]}: in conf/ or in the config class alone")
    rows = ["| key | type | default | effect |", "| --- | --- | --- | --- |"]
    for key, (default, effect) in entries.items():
        if not effect:
            raise SystemExit(f"{prefix}{key}: conf/ has no comment that tells its effect")
        shown = "**needed**" if default == "???" else f"`{default}`" if default else ""
        cells = [f"`{prefix}{key}`", types[key], shown, effect]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def render() -> str:
    """Return the page."""
    types = types_of(FitConfig)
    own = {key: kind for key, kind in types.items() if "." not in key and key not in GROUPS}
    entries = read_entries(CONF / "fit.yaml")
    parts = [HEAD, "## fit and check\n", "Both take the same settings; check writes nothing.\n"]
    parts.append(table(own, entries))
    for group, files in GROUPS.items():
        found: dict[str, Entry] = {}
        for file in files:
            for key, entry in read_entries(CONF / group / f"{file}.yaml").items():
                old = found.get(key, Entry("", ""))
                found[key] = Entry(old.default or entry.default, old.effect or entry.effect)
        within = {
            key.removeprefix(f"{group}."): kind
            for key, kind in types.items()
            if key.startswith(f"{group}.")
        }
        if "suggested" in within:  # any key of these three
            within |= {key: "integer or null" for key in found if key.startswith("suggested.")}
        options = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        options = [name for name in options if name != "base" or group == "model"]
        chosen = ", ".join(f"`{group}={name}`" for name in options)
        parts += [f"### {group}\n", f"{chosen}\n", table(within, found, f"{group}.")]
    spaces = sorted(path.stem for path in (CONF / "sweep" / "space").glob("*.yaml"))
    sweep = {key: kind for key, kind in types_of(SweepConfig).items() if key != "space"}
    parts += [
        "## fit -m\n",
        "A search adds `sweep=tpe` or `sweep=random`, and what is searched: "
        + " or ".join(f"`sweep/space={name}`" for name in spaces)
        + ".\n",
        table(sweep, read_entries(CONF / "sweep" / "base.yaml"), "sweep."),
        "## evaluate\n",
        "It takes `dataset` and `paths` as fit does, and:\n",
    ]
    evaluated = types_of(EvaluateConfig)
    evaluated = {k: v for k, v in evaluated.items() if k.split(".")[0] not in ("dataset", "paths")}
    parts.append(table(evaluated, read_entries(CONF / "fitted" / "evaluate.yaml")))
    for name, kinds in {
        "forecast": types_of(BatchConfig),
        "fine_tune": fine_tune_types(),
        "export": types_of(ExportConfig),
    }.items():
        parts += [f"## {name}\n", table(kinds, read_entries(CONF / "fitted" / f"{name}.yaml"))]
    return "\n".join(parts)


if __name__ == "__main__":
    write_atomically(PAGE, render())
    print(PAGE, file=sys.stderr)
