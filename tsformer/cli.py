"""How every script starts: Hydra composes settings; a mistake ends in a line and exit code 2."""

import errno
import gc
import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from tsformer.data.writing import FULL
from tsformer.errors import ConfigError, TsformerError
from tsformer.places import CONF
from tsformer.settings import flatten, tell_unknown
from tsformer.sweep.sweeper import register

# Of scripts that take a fitted model: beside conf/model/, model=... would choose a file of it.
CONF_FITTED = CONF / "fitted"

_REMEDIES = {
    **dict.fromkeys(FULL, "Make room, or name a folder on another disk."),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "A folder is needed there: name another."),
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "Name a place that you have access to, or have its permissions changed.",
    ),
}


def run_script(
    config_name: str,
    task: Callable[[dict[str, Any]], Any],
    folder: Path = CONF,
    more: Callable[[list[str]], list[str]] | None = None,
    groups: Sequence[str] = (),
) -> None:
    """Compose `conf/<config_name>.yaml` with the command line, and call `task` for each job.

    A mistake of the user's ends with its message and exit code 2; with the environment variable
    HYDRA_FULL_ERROR=1 it ends with the traceback. One of a job of a sweep is its sweeper's to tell.

    Args:
        config_name: the main config.
        task: receives the resolved settings as plain values; what it returns is the objective of
            a sweep.
        folder: that the config is in.
        more: from the command line's arguments to those that Hydra takes.
        groups: of `conf/` that the config chooses from though it lies in another folder.
    """
    composed = False
    show_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    # Hydra would print and exit by itself; it has to raise, so that mistakes are told from bugs.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    logging.raiseExceptions = False  # what cannot be logged, as after `| head`, ends no fit
    register()
    _share(groups)

    @hydra.main(version_base="1.3", config_path=str(folder), config_name=config_name)
    def job(config: DictConfig) -> Any:
        nonlocal composed
        composed = True
        try:
            settings = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            return task(settings)  # type: ignore[arg-type]
        except (TsformerError, OmegaConfBaseException, OSError) as error:
            if show_traceback or HydraConfig.get().mode == RunMode.MULTIRUN:
                raise
            raise SystemExit(_report(error)) from None

    try:
        _check_names()
        if more is not None:
            sys.argv[1:] = more(sys.argv[1:])
        job()
    except (TsformerError, HydraException, OmegaConfBaseException, OSError, ValueError) as error:
        # Of `group=null` Hydra tells by a ValueError; one of the task would be a bug.
        if show_traceback or (composed and isinstance(error, ValueError)):
            raise
        sys.exit(_report(_unknown_setting(error, folder, config_name) or error))
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        sys.exit(130)


@contextmanager
def loading() -> Iterator[None]:
    """Import what stays to the end, and let no collector look for garbage in it, then or later.

    A fit spends a quarter of its start so, which is seconds of loading torch and Lightning, and
    seconds more when it ends. Threads are told not to wait busily for long: on two cores that two
    other processes use, a fit is twice as fast so; on idle ones it is as fast as before.
    """
    if "torch" in sys.modules:  # as of an earlier job, whose garbage is not to stay
        yield
        return
    if "OMP_WAIT_POLICY" not in os.environ:
        # Of GNU OpenMP, torch's on Linux, which reads it once. By default a thread that waits for
        # others spins for milliseconds, and where something else needs the cores all wait for it.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _check_names() -> None:
    """Refuse names that are no text here, which neither settings nor reports can hold.

    Raises:
        ConfigError: of an argument, or the working folder; or there is none.
    """
    try:
        here = str(Path.cwd())
    except FileNotFoundError as error:
        raise ConfigError("the working folder was removed. Change to another.") from error
    for text in (*sys.argv[1:], here):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{text!a}: not written in {sys.getfilesystemencoding()}, the encoding of "
                "names here. Rename it, or set a locale of its encoding, such as LC_ALL=C.UTF-8."
            ) from error


def _share(groups: Sequence[str]) -> None:
    """Let configs outside of `conf/` choose from some of its groups."""
    for group in groups:
        for file in sorted((CONF / group).glob("*.yaml")):
            ConfigStore.instance().store(group=group, name=file.stem, node=OmegaConf.load(file))


def _unknown_setting(error: Exception, folder: Path, config_name: str) -> ConfigError | None:
    """Return which setting there is not, of which Hydra says how to add it all the same."""
    if not (found := re.match(r"Could not override '([^']+)'", str(error))):
        return None
    with initialize_config_dir(str(folder), version_base="1.3"):
        settings: Any = OmegaConf.to_container(compose(config_name))
    return ConfigError(tell_unknown(found[1], flatten(settings)))


def _report(error: Exception) -> int:
    if isinstance(error, BrokenPipeError):  # of `--help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left goes nowhere
        return 1
    if isinstance(error, ValueError) and isinstance(error.__cause__, OSError):
        error = error.__cause__  # of a log that Hydra cannot write, which it does not name
    told = str(error)
    if isinstance(error, OSError) and error.errno in _REMEDIES:
        told = f"{error.filename or 'the output'}: {error.strerror}. {_REMEDIES[error.errno]}"
    if isinstance(error, MissingMandatoryValue):
        told = f"{error.full_key}: a value is needed"
    print(f"error: {told}", file=sys.stderr)
    return 2
