"""How the commands tell what went wrong."""

import errno
import os
import subprocess
import sys

import pytest

from tsformer.cli import CONF_FITTED, loading, run_script
from tsformer.errors import ConfigError

ERRORS = {
    "a mistake": (ConfigError("lr: too high"), "error: lr: too high\n"),
    "a full disk": (
        OSError(errno.ENOSPC, "No space left on device", "run/best.ckpt"),
        "error: run/best.ckpt: No space left on device. Make room, or name a folder on another "
        "disk.\n",
    ),
    "a file that is not ours": (
        PermissionError(errno.EACCES, "Permission denied", "run/best.ckpt"),
        "error: run/best.ckpt: Permission denied. Name a place that you have access to, or have "
        "its permissions changed.\n",
    ),
    "a file in the way": (
        FileExistsError(errno.EEXIST, "File exists", "run"),
        "error: run: File exists. A folder is needed there: name another.\n",
    ),
    "any other": (OSError(errno.EIO, "I/O error", "x"), "error: [Errno 5] I/O error: 'x'\n"),
}


@pytest.fixture(autouse=True)
def own_environment(monkeypatch):
    """Give back the variable that run_script sets: other tests' scripts would show tracebacks."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")


@pytest.mark.parametrize(("error", "told"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_one_line_and_code_2(error, told, tmp_path, monkeypatch, capsys):
    def task(settings):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["export.py", "model=model", "output=model.onnx"])
    with pytest.raises(SystemExit) as stopped:
        run_script("export", task, CONF_FITTED)
    assert stopped.value.code == 2
    assert capsys.readouterr().err == told


def test_a_log_that_cannot_be_written_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fit.py", f"hydra.run.dir={tmp_path}"])
    (tmp_path / "fit.log").mkdir()
    with pytest.raises(SystemExit) as stopped:
        run_script("fit", lambda settings: None)
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: [Errno 21] Is a directory: '{tmp_path}/fit")


def test_names_that_are_no_text_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fit.py", "dataset.path=Z\udcfcrich.csv"])
    with pytest.raises(SystemExit) as stopped:
        run_script("fit", lambda settings: None)
    assert stopped.value.code == 2
    assert "error: 'dataset.path=Z\\udcfcrich.csv': not written in" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="which removes no folder that is in use")
def test_a_working_folder_that_was_removed_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "argv", ["fit.py"])
    with pytest.raises(SystemExit):
        run_script("fit", lambda settings: None)
    assert capsys.readouterr().err == "error: the working folder was removed. Change to another.\n"


def test_what_is_loaded_first_is_no_garbage_to_look_for_and_the_rest_is():
    code = """
import gc, sys
from tsformer.cli import loading
with loading():
    assert not gc.isenabled()
    import torch
frozen = gc.get_freeze_count()
assert gc.isenabled() and frozen > 100_000, frozen
with loading():
    made = [[number] for number in range(1000)]
assert gc.get_freeze_count() <= frozen
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("own", "spins"),
    [
        ({}, "10000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, None),  # which the number of spins would overrule
    ],
)
def test_threads_are_told_not_to_wait_busily_unless_the_user_says_how(own, spins, monkeypatch):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that what is set below does not stay
        monkeypatch.delenv(name)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with loading():
        assert os.environ.get("GOMP_SPINCOUNT") == spins


@pytest.mark.parametrize(
    ("argument", "meant"),
    {
        "model.d_modl=3": "model.d_model",
        "modle.d_model=3": "model.d_model",
        "max_epochs=3": "trainer.max_epochs",
        "horizn=3": "horizon",
    }.items(),
)
def test_a_misspelt_setting_is_told_with_the_right_one(argument, meant, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fit.py", argument])
    with pytest.raises(SystemExit) as stopped:
        run_script("fit", lambda settings: None)
    assert stopped.value.code == 2
    key = argument.partition("=")[0]
    told = capsys.readouterr().err
    assert told == f"error: {key}: there is no such setting. Is it {meant}?\n"
