"""Checkpoints of a fit as forecasters."""

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.conftest import make_settings
from tests.forecasters import make_forecaster, make_long
from tests.model.test_folder import payload
from tsformer import Forecaster
from tsformer.errors import ConfigError, ModelFolderError
from tsformer.model import folder as model_folder
from tsformer.model.checkpoint import CONFIG_KEY
from tsformer.model.folder import config_text


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run folder of a tiny fit with averaged weights."""
    from tsformer.training import fit

    folder = tmp_path_factory.mktemp("fit")
    make_long({"a": 300}).to_csv(folder / "series.csv", index=False)
    fit(make_settings(settings_of(folder) | {"model.head": "quantile", "conformal": True}))
    return folder / "run"


def settings_of(folder: Path) -> dict[str, Any]:
    return {
        "dataset.path": str(folder / "series.csv"),
        "dataset.name": "waves",
        "paths.run": str(folder / "run"),
        "paths.cache": None,
        "logger.csv": False,
        "ema_decay": 0.5,
    }


def make_checkpoint(**changes: Any) -> dict[str, Any]:
    """Return what Lightning would save of a forecaster with random weights."""
    forecaster = make_forecaster()
    state = {f"network.{name}": x for name, x in forecaster.network.state_dict().items()}
    return {"state_dict": state, CONFIG_KEY: config_text(forecaster.config)} | changes


def test_the_best_checkpoint_alone_forecasts_as_the_model_folder_does(run: Path) -> None:
    frame = make_long({"a": 30, "new": 20})
    with pytest.warns(UserWarning, match=r"no conformal offsets.*not calibrated"):
        found = Forecaster.from_checkpoint(run / "checkpoints" / "best.ckpt")
    saved = Forecaster.load(run / "model")
    pd.testing.assert_frame_equal(found.predict(frame), saved.predict(frame))
    assert saved.conformal is not None
    saved.conformal = None
    pd.testing.assert_frame_equal(found.predict(frame, level=80), saved.predict(frame, level=80))


def test_a_forecaster_from_a_checkpoint_can_be_saved(run: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="not calibrated"):
        found = Forecaster.from_checkpoint(run / "checkpoints" / "last.ckpt")
    found.save(tmp_path / "model")
    frame = make_long({"a": 30})
    loaded = Forecaster.load(tmp_path / "model")
    pd.testing.assert_frame_equal(found.predict(frame), loaded.predict(frame))


def test_the_card_of_a_fit_names_data_and_test_figures(run: Path) -> None:
    lines = (run / "model" / "README.md").read_text().splitlines()
    metrics = json.loads((run / "metrics.json").read_text())
    assert "| fitted to | `waves` |" in lines
    figures = metrics["test"]["tsformer"]
    assert any(line.startswith(f"| tsformer | {figures['mae']:,.4g} |") for line in lines)
    coverage = metrics["test_quantiles"]["tsformer"]["coverage"]["0.9"]
    assert f"| 90 % | {100 * coverage:.1f} % |" in lines


def test_more_series_than_a_model_holds_are_refused_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tsformer.training import fit

    make_long({"a": 300}).to_csv(tmp_path / "series.csv", index=False)
    monkeypatch.setattr(model_folder, "MAX_CONFIG_BYTES", 1000)
    with pytest.raises(ConfigError, match="series are too many for one model"):
        fit(make_settings(settings_of(tmp_path)))
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_weights_that_are_not_averaged_are_taken_as_they_are(tmp_path: Path) -> None:
    torch.save(make_checkpoint(), tmp_path / "one.ckpt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Forecaster.from_checkpoint(tmp_path / "one.ckpt", dtype="float64")
    frame = make_long({"a": 30})
    expected = make_forecaster().predict(frame)
    np.testing.assert_allclose(found.predict(frame)["tsformer"], expected["tsformer"], rtol=1e-4)


def test_a_hostile_checkpoint_is_refused_and_never_run(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "executed",)

    path = tmp_path / "one.ckpt"
    torch.save(make_checkpoint(extra=Payload()), path)  # as Lightning's are
    with pytest.raises(ModelFolderError, match=r"one\.ckpt: damaged, or not a checkpoint of plain"):
        Forecaster.from_checkpoint(path)
    path.write_bytes(payload(tmp_path / "executed"))
    with pytest.raises(ModelFolderError, match=r"one\.ckpt: damaged"):
        Forecaster.from_checkpoint(path)
    assert not (tmp_path / "executed").exists()
    pickle.loads(path.read_bytes())
    assert (tmp_path / "executed").exists()  # the payload works


def weights(checkpoint: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return checkpoint | {"state_dict": checkpoint["state_dict"] | changes}


SKIP = "network.skip.weight"


def wide(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return a small file of the weights of a huge network, all of which are one number."""
    values = json.loads(checkpoint[CONFIG_KEY])
    values["horizon"] = values["context_length"] = 60_000
    size = {SKIP: (60_000, 60_000), "network.skip.bias": (60_000,), "network.queries": (10_000, 6)}
    large = {name: torch.zeros(()).expand(shape) for name, shape in size.items()}
    return weights(checkpoint, **large) | {CONFIG_KEY: json.dumps(values)}


DAMAGED = {
    "of another program": lambda c: {"state_dict": c["state_dict"]},
    "no weights": lambda c: {CONFIG_KEY: c[CONFIG_KEY]},
    "a list": lambda c: [c],
    "config of bytes": lambda c: c | {CONFIG_KEY: c[CONFIG_KEY].encode()},
    "config cut off": lambda c: c | {CONFIG_KEY: c[CONFIG_KEY][:-10]},
    "config of code": lambda c: c | {CONFIG_KEY: '{"_target_": "os.system"}'},
    "config of half a character": lambda c: c | {CONFIG_KEY: "\ud800"},
    "no tensor": lambda c: weights(c, **{SKIP: [1.0]}),
    "a parameter": lambda c: weights(c, **{SKIP: torch.nn.Parameter(c["state_dict"][SKIP])}),
    "sparse": lambda c: weights(c, **{SKIP: c["state_dict"][SKIP].to_sparse()}),
    "whole numbers": lambda c: weights(c, **{SKIP: c["state_dict"][SKIP].long()}),
    "another shape": lambda c: weights(c, **{SKIP: torch.zeros(1)}),
    "one more": lambda c: weights(c, **{"network.spy": torch.zeros(1)}),
    "one averaged": lambda c: weights(c, **{"averaged.skip.bias": torch.zeros(6)}),
    "NaN": lambda c: weights(c, **{SKIP: c["state_dict"][SKIP] * torch.nan}),
    "huge": wide,
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_checkpoint_is_refused(how: str, tmp_path: Path) -> None:
    torch.save(DAMAGED[how](make_checkpoint()), tmp_path / "one.ckpt")
    with pytest.raises(ModelFolderError, match=r"one\.ckpt: "):
        Forecaster.from_checkpoint(tmp_path / "one.ckpt")


def test_a_checkpoint_that_is_cut_off_or_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "one.ckpt"
    with pytest.raises(ModelFolderError, match=r"one\.ckpt: there is no such checkpoint"):
        Forecaster.from_checkpoint(path)
    torch.save(make_checkpoint(), path)
    data = path.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ModelFolderError, match=r"one\.ckpt: damaged"):
            Forecaster.from_checkpoint(path)
