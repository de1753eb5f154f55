"""Exported files: they forecast as the network does, and tell how to feed them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.forecasters import make_forecaster
from tests.golden import make
from tests.processes import limited_files
from tsformer import Forecaster
from tsformer import export as exporting
from tsformer.errors import ConfigError, TsformerError
from tsformer.export import describe, example_inputs, export

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = Path(make.__file__).parent
KINDS = ["autoregressive-covariates", "joint", "quantile-conformal"]


def load(kind: str) -> Forecaster:
    return Forecaster.load(GOLDEN / f"2-{kind}" / "model")


def run(path: Path, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, Any]]:
    """Return what a file forecasts, and what it tells of itself."""
    if path.suffix == ".onnx":
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        told = json.loads(session.get_modelmeta().custom_metadata_map["tsformer"])
        for node in [*session.get_inputs(), *session.get_outputs()]:
            assert node.shape == (told["inputs"] | told["outputs"])[node.name]["shape"]
        return session.run(["forecast"], inputs)[0], told
    texts = {"tsformer.json": ""}
    program = torch.export.load(path, extra_files=texts)
    forecast = program.module()(*map(torch.from_numpy, inputs.values()))
    return forecast.numpy(), json.loads(texts["tsformer.json"])


@pytest.mark.parametrize(
    ("kind", "suffix"), [*((kind, "onnx") for kind in KINDS), ("joint", "pt2")]
)
def test_a_file_forecasts_batches_of_any_size_as_the_network_does(
    kind: str, suffix: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    forecaster = load(kind)
    path = tmp_path / "new" / f"model.{suffix}"
    export(forecaster, path, "onnx" if suffix == "onnx" else "torch_export")
    assert list(path.parent.iterdir()) == [path]
    for size in (1, 2, 7):
        inputs = example_inputs(forecaster.config, size)
        with torch.no_grad():
            expected = forecaster.network(*inputs.values()).numpy()
        found, told = run(path, {name: x.numpy() for name, x in inputs.items()})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert told == json.loads(json.dumps(describe(forecaster)))


def features(told: list[dict[str, Any]], rows: pd.DataFrame) -> np.ndarray:
    """Return features as the description says, of rows of a daily table."""
    day = rows["day"]
    over = {"Monday": day.dt.day_of_week / 7, "January": (day.dt.day_of_year - 1) / 365.25}
    columns = []
    for feature in told:
        name = feature["name"]
        if "categories" in feature:
            places = {text: place for place, text in enumerate(feature["categories"], 1)}
            values = rows[name].map(places).fillna(0)
        elif "mean" in feature:
            values = ((rows[name] - feature["mean"]) / feature["std"]).fillna(0)
        else:
            wave = {"sin": np.sin, "cos": np.cos}[name[:3]]
            values = wave(2 * np.pi * over[next(cycle for cycle in over if cycle in name)])
        columns.append(values.to_numpy(dtype=np.float32))
    return np.stack(columns, axis=1)[None]


def test_the_description_is_enough_to_forecast(tmp_path: Path) -> None:
    folder = GOLDEN / "2-autoregressive-covariates"
    export(load("autoregressive-covariates"), tmp_path / "model.pt2", "torch_export")
    told = describe(load("autoregressive-covariates"))
    length = told["inputs"]["context"]["shape"][1]
    history = pd.read_csv(folder / "history.csv", parse_dates=["day"])
    future = pd.read_csv(folder / "future.csv", parse_dates=["day"])
    past, ahead = history[history["shop"] == "a"].tail(length), future[future["shop"] == "a"]
    scaler = load("autoregressive-covariates").config.scaler
    context = (past["sales"].to_numpy(dtype=np.float32) - scaler.mean[0]) / scaler.std[0]
    of = {name: told["inputs"][name].get("features") for name in told["inputs"]}
    inputs = {
        "context": np.nan_to_num(context).astype(np.float32)[None, :, None],
        "observed": ~np.isnan(context)[None, :, None],
        "past_features": features(of["past_features"], past),
        "future_features": features(of["future_features"], ahead),
        "static_features": features(of["static_features"], past.tail(1))[:, 0],
    }
    scaled, _ = run(tmp_path / "model.pt2", inputs)
    expected = pd.read_csv(folder / "forecast.csv").query("unique_id == 'a'")["tsformer"]
    found = scaled[0, :, 0, 0] * scaler.std[0] + scaler.mean[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("head", ["point", "quantile", "normal", "student_t", "negative_binomial"])
def test_the_last_axis_is_named(head: str) -> None:
    forecaster = make_forecaster(head=head, quantiles=(0.1, 0.9))
    output = describe(forecaster)["outputs"]["forecast"]
    assert (
        output["shape"][-1] == len(output["parameters"]) == forecaster.network.head.num_parameters
    )
    if head == "quantile":
        assert output["parameters"] == ["quantile 0.1", "quantile 0.5", "quantile 0.9"]


def test_every_calendar_feature_is_named() -> None:
    for freq, cycles in (("h", 3), ("D", 2), ("MS", 1)):
        told = describe(make_forecaster(freq=freq))["inputs"]["future_features"]
        assert len(told["features"]) == told["shape"][-1] == 2 * cycles


# What cannot be exported


def test_paths_cannot_be_exported(tmp_path: Path) -> None:
    forecaster = make_forecaster(head="quantile", quantiles=(0.1, 0.9), decoding="autoregressive")
    with pytest.raises(ConfigError, match=r"from sample paths.*model\.decoding=parallel"):
        export(forecaster, tmp_path / "model.onnx", "onnx")
    assert not any(tmp_path.iterdir())


def test_a_graph_that_forecasts_otherwise_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.pt2").write_text("older")
    right = exporting._run_torch_export
    monkeypatch.setattr(exporting, "_run_torch_export", lambda *given: right(*given) + 0.01)
    with pytest.raises(TsformerError, match="was not written"):
        export(load("joint"), tmp_path / "model.pt2", "torch_export")
    assert (tmp_path / "model.pt2").read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r"onnxruntime: pip install 'tsformer\[export\]'"):
        export(load("joint"), tmp_path / "model.onnx", "onnx")


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        export(load("joint"), tmp_path, "torch_export")


# As users run it


def run_script(*overrides: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "export.py"), *overrides]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_the_script_writes_its_output_alone_and_the_example_of_the_docs_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    model = GOLDEN / "2-quantile-conformal" / "model"
    result = run_script(f"model={model}", "output=electricity.onnx", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert len(result.stdout.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["electricity.onnx"]
    blocks = (ROOT / "docs" / "model_folder.md").read_text().split("```python\n")[1:]
    example = next(block for block in blocks if "onnxruntime" in block).split("```")[0]
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["forecast"].shape == (1, make.H, 1, len(make.LEVELS))
    assert np.isfinite(names["forecast"]).all()


def test_mistakes_end_in_a_line(tmp_path: Path) -> None:
    model = f"model={GOLDEN / '2-joint' / 'model'}"
    for overrides, message in (
        ([model, "output=model.bin"], "a file of format=onnx must end in .onnx"),
        ([model, "output=model.onnx", "format=tflite"], "'onnx' or 'torch_export'"),
        (["model=nowhere", "output=model.onnx"], "nowhere: not a model folder"),
        (["output=model.onnx"], "model: a value is needed"),
    ):
        result = run_script(*overrides, cwd=tmp_path)
        assert result.returncode == 2
        assert message in result.stderr
        assert "Traceback" not in result.stderr
    assert not any(tmp_path.iterdir())


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    with limited_files(9000), pytest.raises(OSError, match=r"File too large.*/model\.pt2"):
        export(load("joint"), tmp_path / "model.pt2", "torch_export")
    assert not list(tmp_path.iterdir())
