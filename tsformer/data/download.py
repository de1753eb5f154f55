"""One file from the web: resumed where it broke off, checked, and never half there."""

import hashlib
import http.client
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tsformer.data.locking import alone
from tsformer.errors import DataError

SCHEMES = ("https", "http", "file")
BLOCK = 1 << 16  # bytes read at a time, at most
BUSY = (408, 429, 500, 502, 503, 504)  # replies that may be another one a moment later


class _BrokenOffError(Exception):
    """A try failed in a way that the next may not."""


def download(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    progress: bool = True,
    tries: int = 4,
    wait: float = 1.0,
    timeout: float = 30.0,
) -> None:
    """Put the file that a URL names at `path`; a file that is there already is left alone.

    The bytes go to `path` + `.part` in the same folder, which is renamed when it is whole. A
    `.part` that a broken download left is continued, if there is a sha256 to tell whether its
    bytes and the new ones belong together. Several processes may call this for the same path:
    one downloads, the others wait for it (without file locks, as on Windows, they disturb each
    other, which the sha256 tells).

    Args:
        url: https, http or file.
        path: where the file shall be; missing folders are made.
        sha256: what the file's SHA-256 must be, 64 hex digits; None: it is not checked.
        progress: draw a bar, if standard error is a terminal.
        tries: how often a connection is made before giving up.
        wait: seconds before the second try; doubled before each that follows.
        timeout: seconds without a byte after which a connection counts as broken.

    Raises:
        DataError: the file cannot be had, has another sha256, or cannot be written; says what
            happened and where to place the file by hand.
    """
    scheme = _scheme_of(url)
    if path.exists():
        return
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with alone(path.with_name(path.name + ".lock")):
            if path.exists():  # another process was faster
                return
            if sha256 is None:
                part.unlink(missing_ok=True)
            _fetch(url, part, progress, 1 if scheme == "file" else tries, wait, timeout)
            if sha256 is not None:
                _check(url, part, sha256.lower())
            part.replace(path)
    except DataError as error:
        raise DataError(
            f"{error}\nOr get the file in another way and place it at {path.absolute()}"
        ) from error
    except OSError as error:  # those of the network have become DataErrors by now
        raise DataError(f"{path}: the download of {url} cannot be written ({error}).") from error


def _scheme_of(url: str) -> str:
    try:
        scheme = urlsplit(url).scheme
    except ValueError:  # such as http://[
        scheme = ""
    if scheme not in SCHEMES:
        raise DataError(f"{url!r} is not the URL of a file: it must begin with https, http or file")
    return scheme


def _fetch(url: str, part: Path, progress: bool, tries: int, wait: float, timeout: float) -> None:
    """Make `part` whole; raises DataError when the tries are used up."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not (progress and console.is_terminal),
    )
    with bar:
        task = bar.add_task(part.name.removesuffix(".part"), total=None)
        for number in range(tries):
            try:
                for done, size in _one_try(url, part, timeout):
                    bar.update(task, completed=done, total=size)
                return
            except _BrokenOffError as error:
                what = str(error)
            if number < tries - 1:
                time.sleep(wait * 2**number)
    have = part.stat().st_size if part.exists() else 0
    kept = f" The {have:,} bytes received so far are kept in {part}." if have else ""
    raise DataError(
        f"{url} could not be downloaded in {tries} tries: {what}.{kept}\n"
        "Run the same command again when the connection is better."
    )


def _one_try(url: str, part: Path, timeout: float) -> Iterator[tuple[int, int | None]]:
    """Connect once and append to `part`; yields bytes there and bytes of the whole, if known."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"User-Agent": "tsformer"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with _open(request, timeout, part) as reply:
        # A server may ignore the range and send all of it: status 200, not 206.
        if reply.status != 206:
            have = 0
        elif _start_of(reply.headers) != have:
            part.unlink()
            raise _BrokenOffError("the server sends another part of the file than asked for")
        length = reply.headers.get("Content-Length", "")
        size = have + int(length) if length.isdecimal() else None
        with part.open("ab" if have else "wb") as file:
            yield have, size
            for block in _blocks(reply):
                file.write(block)
                have += len(block)
                yield have, size
    if size is not None and have < size:
        raise _BrokenOffError(f"the connection broke off after {have:,} of {size:,} bytes")


def _open(request: Request, timeout: float, part: Path) -> Any:
    try:
        return urlopen(request, timeout=timeout)
    except HTTPError as error:
        error.close()
        what = f"the server answers {error.code} {error.reason}"
        if error.code == 416:  # what is there is as long as the file, or longer: not part of it
            part.unlink(missing_ok=True)
            raise _BrokenOffError(what) from error
        if error.code in BUSY:
            raise _BrokenOffError(what) from error
        raise DataError(f"{request.full_url} could not be downloaded: {what}.") from error
    except http.client.InvalidURL as error:
        raise DataError(f"{request.full_url!r} is not a URL ({error}).") from error
    except URLError as error:
        raise _BrokenOffError(f"it cannot be reached ({error.reason})") from error
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOffError(f"no answer ({_describe(error)})") from error


def _start_of(headers: http.client.HTTPMessage) -> int:
    """Return the first byte of a partial reply: 5 for `Content-Range: bytes 5-9/10`."""
    first = headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdecimal() else -1


def _blocks(reply: Any) -> Iterator[bytes]:
    try:
        while block := reply.read1(BLOCK):  # what is there, so that little is lost if it breaks off
            yield block
    except (OSError, http.client.HTTPException) as error:
        raise _BrokenOffError(f"the connection broke off ({_describe(error)})") from error


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _check(url: str, part: Path, sha256: str) -> None:
    with part.open("rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != sha256:
        part.unlink()
        raise DataError(
            f"{url} is not the expected file, and was removed.\n"
            f"  sha256 expected {sha256}\n  sha256 got      {got}\n"
            "Run the same command again in case bytes were damaged on the way. If this repeats, "
            "the file at this address has changed: if you trust it, accept it with "
            f"dataset.sha256={got}."
        )
