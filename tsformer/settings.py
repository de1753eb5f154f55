"""Checked settings: their base class, types that many of them share, and how mistakes are told."""

import re
from collections.abc import Mapping
from reprlib import Repr
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tsformer.errors import ConfigError

Rate = Field(ge=0, lt=1)
Level = Annotated[float, Field(ge=1e-4, le=1 - 1e-4)]  # of a quantile
# A bound far above any use, which a damaged or hostile file cannot pass.
Positive = Field(gt=0, le=2**20)
# One column may be named without the brackets of a list.
Names = Annotated[list[str], BeforeValidator(lambda x: [x] if isinstance(x, str) else x)]


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
        raise ConfigError("\n".join(map(_describe, error.errors()))) from error


_abridged = Repr()  # of a file's values, which may be millions
_abridged.maxstring = _abridged.maxother = 200


def _describe(problem: Any) -> str:
    key = ".".join(map(str, problem["loc"]))
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{key}: {message}" if key else message
    if problem["type"] == "extra_forbidden":
        return f"{key}: there is no such setting"
    if problem["type"] == "missing":
        return f"{key}: a value is needed"
    return f"{key}={_abridged.repr(problem['input'])}: {message}"


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
