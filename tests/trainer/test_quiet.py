"""What libraries may say during a fit."""

import logging
import sys
import warnings

import pytest

from tsformer.trainer.quiet import quiet

LIGHTNING, OURS = logging.getLogger("lightning.pytorch.trainer"), logging.getLogger("tsformer.fit")


def warn(module: str, category: type[Warning] = UserWarning) -> None:
    warnings.warn_explicit(f"from {module}", category, f"{module}.py", 1, module=module)


def speak() -> None:
    warn("lightning.pytorch.trainer")
    warn("torch.utils")
    warn("pandas.core.frame", FutureWarning)
    warn("tsformers")  # of another project
    LIGHTNING.info("GPU available")
    LIGHTNING.warning("from the log of lightning")
    OURS.info("told")
    OURS.debug("told on request")


def heard(caplog: pytest.LogCaptureFixture, verbose: bool) -> tuple[list[str], list[str]]:
    """Return the warnings shown and the lines logged."""
    with caplog.at_level(logging.INFO), warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        caplog.handler.setLevel(logging.NOTSET)
        with quiet(verbose):
            speak()
            warn("tsformer.forecaster")
    return [str(warning.message) for warning in shown], caplog.messages


def test_libraries_are_silent_and_we_are_not(caplog: pytest.LogCaptureFixture) -> None:
    assert heard(caplog, verbose=False) == (["from tsformer.forecaster"], ["told"])


def test_verbose_shows_all(caplog: pytest.LogCaptureFixture) -> None:
    shown, logged = heard(caplog, verbose=True)
    assert len(shown) == 5
    assert len(logged) == 4


@pytest.mark.parametrize("verbose", [False, True])
def test_afterwards_all_is_as_before(verbose: bool) -> None:
    names = ("lightning.pytorch", "torch", "tsformer")
    levels = [logging.getLogger(name).level for name in names]
    filters = list(warnings.filters)
    handlers = list(logging.getLogger("lightning").handlers)
    with pytest.raises(ValueError, match="fail"), quiet(verbose):
        raise ValueError("fail")
    assert [logging.getLogger(name).level for name in names] == levels
    assert list(warnings.filters) == filters
    assert logging.getLogger("lightning").handlers == handlers


def test_what_lightning_logs_is_shown_once(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = logging.StreamHandler(sys.stderr)  # as lightning adds one when it is imported
    logging.getLogger("lightning").addHandler(handler)
    try:
        with caplog.at_level(logging.INFO), quiet(verbose=True):
            LIGHTNING.info("GPU available")
    finally:
        logging.getLogger("lightning").removeHandler(handler)
    assert caplog.messages == ["GPU available"]
    assert capsys.readouterr().err == ""


def test_what_will_change_in_a_library_still_fails_the_tests() -> None:
    with quiet(), pytest.raises(FutureWarning):  # as pyproject.toml asks for
        warn("tsformer.data.frames", FutureWarning)
