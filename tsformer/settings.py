"""Checked settings: their base class, types that many of them share, and how mistakes are told."""

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from reprlib import Repr
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tsformer.errors import ConfigError

Rate = Field(ge=0, lt=1)
Level = Annotated[float, Field(ge=1e-4, le=1 - 1e-4)]  # of a quantile
# A bound far above any use, which a damaged or hostile file cannot pass.
Positive = Field(gt=0, le=2**20)
# One value may be given without the brackets of a list.
OneOrMore = BeforeValidator(lambda x: [x] if isinstance(x, (str, int, float)) else x)
Names = Annotated[list[str], OneOrMore]
Numbers = Annotated[list[float], OneOrMore]


def _check_time_zone(name: str) -> str:
    import pandas as pd  # here, as it takes half a second and most zones are not set

    if not re.fullmatch(r"[\w+\-/:]+", name):  # pandas also takes calls such as tzlocal()
        raise ValueError(f"{name!r} is not a time zone such as UTC or Europe/Berlin")
    try:
        pd.DatetimeIndex([]).tz_localize(name)
    except (KeyError, ValueError, IndexError, OSError) as error:
        raise ValueError(f"{name!r} is not a time zone such as UTC or Europe/Berlin") from error
    return name


TimeZone = Annotated[str, Field(max_length=100), AfterValidator(_check_time_zone)]


def _check_sha256(digits: str) -> str:
    if not re.fullmatch("[0-9a-fA-F]{64}", digits):
        raise ValueError(f"{digits!r} is not a sha256, 64 hexadecimal digits")
    return digits.lower()


Sha256 = Annotated[str, AfterValidator(_check_sha256)]


class Config(BaseModel):
    """Base: frozen, no unknown keys, no silent conversion of 1.5 to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


C = TypeVar("C", bound=Config)


def parse(kind: type[C], values: Mapping[str, Any]) -> C:
    """Check plain values and return them as settings.

    Raises:
        ConfigError: lists every key that is unknown, missing, or has a wrong value.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        known = list(_keys(kind))
        told = [_describe(problem, known) for problem in error.errors()]
        raise ConfigError("\n".join(told)) from error


_abridged = Repr()  # of a file's values, which may be millions
_abridged.maxstring = _abridged.maxother = 200


def _describe(problem: Any, known: Iterable[str]) -> str:
    key = ".".join(map(str, problem["loc"]))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if problem["type"] == "extra_forbidden":
        return tell_unknown(key, known)
    if problem["type"] == "missing":
        return f"{key}: a value is needed"
    return f"{key}={_abridged.repr(problem['input'])}: {message}"


def tell_unknown(key: str, known: Iterable[str]) -> str:
    """Return that a key is none of the settings, and which ones may be meant.

    Args:
        key: dotted, as on the command line.
        known: the keys of all settings.
    """
    parts = {name: name.rpartition(".") for name in known}  # group and name
    group, _, own = key.rpartition(".")
    near = [name for name, part in parts.items() if part[2] == own]
    if not near:
        beside = [part[2] for part in parts.values() if part[0] == group]
        found = get_close_matches(own, beside, n=1, cutoff=0.7)
        near = [f"{group}.{name}" if group else name for name in found]
    return f"{key}: there is no such setting" + (f". Is it {' or '.join(near)}?" if near else "")


def _keys(kind: type[Config]) -> Iterator[str]:
    """Yield the dotted keys of settings and of those within."""
    for name, field in kind.model_fields.items():
        parts = field.annotation, *get_args(field.annotation)  # of a union such as X | None
        inner = [part for part in parts if isinstance(part, type) and issubclass(part, Config)]
        yield from (f"{name}.{key}" for each in inner for key in _keys(each)) if inner else [name]


def flatten(values: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Return nested values by their dotted keys, as the command line calls them."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = flatten(value, separator)
            flat |= {f"{key}{separator}{name}": item for name, item in inner.items()}
        else:
            flat[key] = value
    return flat
