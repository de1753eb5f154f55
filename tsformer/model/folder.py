"""The model folder: a forecaster as data, `model.safetensors` and `config.json`, and its card.

Whoever wrote a folder, reading it runs no code of theirs, and takes memory and time in proportion
to the sizes of its files. Any change to what `config.json` or the names of the weights say raises
`SCHEMA_VERSION`, and brings a function in `MIGRATIONS` that makes the old of the new form.
"""

import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save

from tsformer import __version__
from tsformer.data.writing import naming_full_disk
from tsformer.errors import ConfigError, DataError, ModelFolderError
from tsformer.model.card import model_card
from tsformer.model.config import ForecasterConfig
from tsformer.model.conformal import ConformalOffsets
from tsformer.model.fitted import FittedModel
from tsformer.model.weights import OFFSETS, build_network, read_weights
from tsformer.settings import parse
from tsformer.strict_json import read_json

SCHEMA_VERSION = 2
# From each schema that is still read, what makes the values of `config.json` those of the next.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
CARD = "README.md"
FILES = (WEIGHTS, CONFIG, CARD)

MAX_CONFIG_BYTES = 2**26  # about a million series
_MAX_PARTS = 20_000
_MAX_CARD_BYTES = 2**20
_MAX_MESSAGE = 1000


def write_folder(folder: Path, model: FittedModel) -> None:
    """Write a model folder, all of it or nothing.

    Raises:
        ModelFolderError: something is there that is not a model folder, or an empty one.
        ConfigError: see `config_text`.
    """
    folder = folder.resolve()  # what a link leads to, not the link, is replaced
    _refuse_others(folder)
    text = config_text(model.config)
    weights = {
        name: x.to("cpu", torch.float32).contiguous()
        for name, x in model.network.state_dict().items()
    }
    if model.conformal is not None:
        weights[OFFSETS] = torch.from_numpy(model.conformal.offsets)
    card = model.card or model_card(model.config)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        naming_full_disk(folder),
        tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch,
    ):
        fresh, old = Path(scratch) / "new", Path(scratch) / "old"
        fresh.mkdir()
        (fresh / WEIGHTS).write_bytes(save(weights))
        (fresh / CONFIG).write_text(text, encoding="utf-8")
        (fresh / CARD).write_text(card, encoding="utf-8")
        if folder.exists():
            folder.replace(old)
        try:
            fresh.replace(folder)
        except BaseException:  # an interrupt too
            if old.exists():
                old.replace(folder)
            raise


def config_text(config: ForecasterConfig) -> str:
    """Return what `config.json` holds.

    Raises:
        ConfigError: it would be longer than what is read again.
    """
    text = config.model_dump_json(indent=1)
    if len(text.encode()) > MAX_CONFIG_BYTES:
        raise ConfigError(
            f"{len(config.scaler.ids):,} series are too many for one model: their names and scales "
            f"take more than {MAX_CONFIG_BYTES / 2**20:.0f} MB. Fit it to some of them: it "
            "forecasts the others too."
        )
    return text


def read_folder(folder: Path, *, links_within: Path | None = None) -> FittedModel:
    """Read a model folder.

    Args:
        folder: whose model card may be missing, or unreadable.
        links_within: where symbolic links in the folder may lead, the folder itself when None.

    Raises:
        ModelFolderError: the folder is missing, incomplete, damaged, of a newer release, or its
            files are links to elsewhere.
    """
    try:
        root = (links_within or folder).resolve()
        (folder / CONFIG).is_file()
    except (OSError, ValueError) as error:  # such as a name that is too long
        raise ModelFolderError(f"{str(folder)[:200]}: not a model folder ({error}).") from error
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ModelFolderError(f"{folder}: not a model folder, it has no {name}.")
        if not (folder / name).resolve().is_relative_to(root):
            raise ModelFolderError(
                f"{folder / name}: a link that leads out of the folder. Put the file itself there."
            )
    config = _read_config(folder / CONFIG)
    path = folder / WEIGHTS
    try:
        weights = read_weights(path, config)
    except (SafetensorError, ValueError, RuntimeError, OSError) as error:
        raise ModelFolderError(
            f"{path}: damaged, or not for this {CONFIG} ({_short(error)})."
        ) from error
    offsets = weights.pop(OFFSETS, None)
    conformal = None
    if offsets is not None:
        conformal = ConformalOffsets(tuple(config.model.quantiles), offsets.numpy())
    network, card = build_network(config, weights), _read_card(folder / CARD, root)
    return FittedModel(network, config, conformal, card)


def parse_config(data: bytes, where: str) -> ForecasterConfig:
    """Return the configuration that JSON of any schema holds.

    Args:
        data: what `config_text` gave, in this release or another.
        where: it is from, for messages.

    Raises:
        ModelFolderError: it is damaged, or of a schema that is not read.
    """
    try:
        values = read_json(data, max_parts=_MAX_PARTS)
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
        return parse(ForecasterConfig, _migrated(values, where))
    except (ValueError, OverflowError, ConfigError, DataError) as error:  # of JSON or a setting
        raise ModelFolderError(f"{where}: damaged ({_short(error)}).") from error


def _migrated(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the values of a configuration in today's schema."""
    version = values.get("schema_version")
    if type(version) is not int:
        raise ValueError("schema_version: not a whole number")
    while version in MIGRATIONS:
        values = MIGRATIONS[version](values)
        version = values["schema_version"]
    if version > SCHEMA_VERSION:
        raise ModelFolderError(
            f"{where}: of schema_version {_short(version)}, and tsformer {__version__} reads those "
            f"up to {SCHEMA_VERSION}. Install {_writer(values)}."
        )
    if version < SCHEMA_VERSION:
        raise ModelFolderError(
            f"{where}: of schema_version {_short(version)}, which tsformer {__version__} no "
            "longer reads. Fit the model again."
        )
    return values


def _writer(values: Mapping[str, Any]) -> str:
    """Return how to install the release that wrote a configuration."""
    versions = values.get("versions")
    release = versions.get("tsformer") if isinstance(versions, dict) else None
    if isinstance(release, str) and re.fullmatch(r"\d+(\.\d+){0,3}\w{0,8}", release, re.ASCII):
        return f"the release that wrote it: pip install 'tsformer>={release}'"
    return "a newer release: pip install --upgrade tsformer"


def _read_config(path: Path) -> ForecasterConfig:
    try:
        size = path.stat().st_size
        if size > MAX_CONFIG_BYTES:
            raise ModelFolderError(
                f"{path}: {size:,} bytes, where a configuration has {MAX_CONFIG_BYTES:,} at most."
            )
        data = path.read_bytes()
    except OSError as error:
        raise ModelFolderError(f"{path}: cannot be read ({error}).") from error
    return parse_config(data, str(path))


def _read_card(path: Path, root: Path) -> str | None:
    """Return a model card if it can be had; a model does not need one."""
    try:
        if not path.is_file() or not path.resolve().is_relative_to(root):
            return None
        text = path.read_text(encoding="utf-8") if path.stat().st_size <= _MAX_CARD_BYTES else None
    except (OSError, ValueError):
        return None
    return text


def _refuse_others(folder: Path) -> None:
    """Refuse to write over what is not a model folder."""
    if not folder.exists():
        return
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else {folder.name}
    if names and not {CONFIG, WEIGHTS} <= names <= set(FILES):
        strange = sorted(names - set(FILES)) or sorted(names)
        listed = ", ".join(strange[:3]) + (", ..." if len(strange) > 3 else "")
        raise ModelFolderError(
            f"{folder}: exists and is not a model folder; not overwritten. In the way: {listed}."
        )


def _short(problem: object) -> str:
    text = str(problem)
    return text if len(text) <= _MAX_MESSAGE else f"{text[:_MAX_MESSAGE]}..."
