"""What importing the package costs, and offers."""

import subprocess
import sys

import pytest

import tsformer


def test_import_loads_no_torch() -> None:
    code = "import sys, tsformer; print('torch' in sys.modules, 'pandas' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert output.split() == ["False", "False"]


def test_prediction_needs_no_lightning() -> None:
    code = "import sys; from tsformer import Forecaster; print('lightning' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert output.split() == ["False"]


def test_public_names_resolve() -> None:
    for name in tsformer.__all__:
        assert getattr(tsformer, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tsformer.nothing
