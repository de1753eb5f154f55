"""The output folder: what it holds of ours, and whether a forecast may go on there."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from tsformer import __version__
from tsformer.batch.part import FORECASTS, GATHERED, part_name
from tsformer.batch.plan import Place
from tsformer.data.locking import folder_alone
from tsformer.data.sources import Span
from tsformer.data.writing import write_atomically
from tsformer.errors import BatchError, ConfigError
from tsformer.settings import Config, parse

MANIFEST, ERRORS = "manifest.json", "errors.parquet"


class FileState(Config):
    """A file of the input, as it was."""

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, file: Path) -> "FileState":
        """Return the state of a file as it is now."""
        stat = file.stat()
        return cls(path=str(file.absolute()), size=stat.st_size, mtime_ns=stat.st_mtime_ns)


class PartState(Config):
    """A part: where its rows are, and what became of it.

    Its state is that of when the manifest was written last; a part is finished when its file is
    there, which a process that is killed cannot add here.
    """

    file: str
    spans: list[tuple[str, tuple[int, int] | None]] | None
    state: Literal["pending", "finished"] = "pending"
    rows: int = 0
    series: int = 0
    errors: int = 0

    @classmethod
    def of(cls, number: int, place: Place) -> "PartState":
        """Return the state of a part that is to be forecast."""
        spans = None if place is None else [(str(span.file), span.rows) for span in place]
        return cls(file=part_name(number), spans=spans)

    @property
    def place(self) -> Place:
        """Where its rows are."""
        if self.spans is None:
            return None
        return tuple(Span(Path(file), rows) for file, rows in self.spans)


class Manifest(Config):
    """What `manifest.json` holds.

    Attributes:
        schema_version: of this form.
        tsformer: version that began the forecast.
        model: path of the model folder.
        fingerprint: of what the model folder holds.
        input: files of the history.
        future: files of the future covariates.
        arguments: all else that the forecasts depend on.
        id: column of the ids; None if the series cannot be parted.
        id_type: Arrow's name of the ids' type in all forecasts; None: as they are.
        zone: time zone of all forecasts; None: naive.
        at_least: parts that were asked for, as there were so many ranks.
        parts: of the input, in its order.
    """

    schema_version: Literal[1] = 1
    tsformer: str = __version__
    model: str
    fingerprint: str
    input: list[FileState]
    future: list[FileState]
    arguments: dict[str, Any]
    id: str | None
    id_type: str | None
    zone: str | None
    at_least: int
    parts: list[PartState]

    @property
    def key(self) -> str:
        """A hash of all that the forecasts depend on, which tells parts from those of others."""
        told = self.model_dump(include={"fingerprint", "input", "future", "arguments"})
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]

    def differences(self, other: "Manifest") -> list[str]:
        """Tell what of another forecast's settings is not as here, in words."""
        told = []
        if self.fingerprint != other.fingerprint:
            told.append(f"the model changed: it was {self.model}, now {other.model}")
        for name in ("input", "future"):
            before, now = getattr(self, name), getattr(other, name)
            if before != now:
                told.append(_changed(name, before, now))
        for name, now in other.arguments.items():
            before = self.arguments.get(name)
            if before != now:
                told.append(f"{name}={json.dumps(now)}, which was {json.dumps(before)}")
        return told


def fingerprint(folder: Path) -> str:
    """Return a hash of what the files in a folder hold."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.is_file():
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


@contextmanager
def output_alone(output: Path) -> Iterator[None]:
    """Make the output folder and keep other forecasts out of it.

    Raises:
        BatchError: it cannot be made, or another forecast is at work there.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(folder_alone(output))
        except BlockingIOError as error:
            raise BatchError(
                f"{output}: another forecast is writing there. Wait until it ends, or choose "
                "another output."
            ) from error
        except (FileExistsError, NotADirectoryError) as error:
            raise BatchError(f"{output}: is a file. Name a folder with output=...") from error
        except OSError as error:
            raise BatchError(f"{output}: the folder cannot be written ({error}).") from error
        yield


def read_manifest(output: Path) -> Manifest | None:
    """Return the manifest of a forecast that was begun here, or None.

    Raises:
        BatchError: the folder holds what is not ours.
    """
    path = output / MANIFEST
    manifest = None
    try:
        manifest = parse(Manifest, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        pass
    except (ValueError, TypeError, RecursionError, ConfigError) as error:
        raise BatchError(
            f"{path}: not the manifest of a forecast of this version. Name another output, or "
            "empty this folder."
        ) from error
    ours = {MANIFEST, ERRORS, FORECASTS} if manifest else set()
    parts = {f"{FORECASTS}/{part.file}" for part in manifest.parts} if manifest else set()
    strange = [*(_names(output) - ours)]
    if not strange and (output / FORECASTS).is_dir():
        strange = [*({f"{FORECASTS}/{name}" for name in _names(output / FORECASTS)} - parts)]
    if strange:
        raise BatchError(
            f"{output}: holds {min(strange)!r}, which no forecast with this output wrote. "
            "Nothing is overwritten: choose another output, or empty this folder."
        )
    return manifest


def write_manifest(output: Path, manifest: Manifest) -> None:
    """Write the manifest, all of it or nothing."""
    write_atomically(output / MANIFEST, manifest.model_dump_json(indent=1))


def remove_forecasts(output: Path, manifest: Manifest) -> None:
    """Remove a forecast from its folder; its manifest last, which says what is ours."""
    remove_scratch(output)
    for part in manifest.parts:
        (output / FORECASTS / part.file).unlink(missing_ok=True)
    if (output / FORECASTS).exists():
        (output / FORECASTS).rmdir()
    (output / ERRORS).unlink(missing_ok=True)
    (output / MANIFEST).unlink(missing_ok=True)


def remove_scratch(output: Path, *, gathered: bool = True) -> None:
    """Remove what is left of processes that were killed, and the gathered rows."""
    for pattern in (f"{FORECASTS}/.{part_name(0)[:5]}*", f".{MANIFEST}-*", f".{ERRORS}-*"):
        for file in output.glob(pattern):
            file.unlink(missing_ok=True)
    for folder in output.glob(f"{GATHERED}*"):
        if gathered or folder.name != GATHERED:
            shutil.rmtree(folder, ignore_errors=True)


def _names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if not file.name.startswith(".")}


def _changed(name: str, before: Sequence[FileState], now: Sequence[FileState]) -> str:
    then: Mapping[str, FileState] = {state.path: state for state in before}
    for state in now:
        if state.path not in then:
            return f"{name}: the file {state.path} is new"
        if state != then[state.path]:
            return f"{name}: the file {state.path} has changed"
    missing = sorted(set(then) - {state.path for state in now})
    return f"{name}: the file {missing[0]} is missing" if missing else f"{name}: another order"
