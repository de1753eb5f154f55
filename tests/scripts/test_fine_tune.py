"""scripts/fine_tune.py as users run it."""

from pathlib import Path

import pandas as pd
import pytest

from tests.forecasters import make_forecaster, make_long
from tests.processes import run_script
from tsformer import Forecaster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a model and a table."""
    make_forecaster().save(tmp_path / "model")
    make_long({"new": 100, "a": 80}).to_csv(tmp_path / "my.csv", index=False)
    return tmp_path


def test_a_model_goes_on_from_a_file(folder: Path) -> None:
    result = run_script(
        "fine_tune",
        folder,
        "model=model",
        "input=my.csv",
        "max_steps=3",
        "lr=0.01",
        "hydra.run.dir=run",
    )
    assert result.returncode == 0, result.stderr
    assert "val/mae" in result.stdout + result.stderr
    assert "arning" not in result.stdout + result.stderr
    tuned = Forecaster.load(folder / "run" / "model")
    assert tuned.config.scaler.ids == ["new", "a"]
    again = make_forecaster().fine_tune(folder / "my.csv", max_steps=3, lr=0.01)
    frame = make_long({"b": 30})
    pd.testing.assert_frame_equal(tuned.predict(frame), again.predict(frame), rtol=1e-5)


MISTAKES = {
    "no model": (["input=my.csv"], "model"),
    "no such model": (["model=none", "input=my.csv"], "none: not a model folder"),
    "no such file": (["model=model", "input=none.csv"], "none.csv"),
    "unknown key": (["model=model", "input=my.csv", "horizon=3"], "horizon"),
    "forced in": (["model=model", "input=my.csv", "+horizon=3"], "horizon: there is no such"),
    "wrong type": (["model=model", "input=my.csv", "lr=fast"], "lr='fast'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_end_with_a_message_and_code_2(mistake: str, folder: Path) -> None:
    overrides, message = MISTAKES[mistake]
    result = run_script("fine_tune", folder, *overrides)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
