"""Where a network is trained, and then tested."""

from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from tests.conftest import make_settings
from tests.forecasters import make_long
from tsformer import fit, training
from tsformer.data.forecast_data import ForecastData
from tsformer.data.table import SeriesTable
from tsformer.model.config import network_settings
from tsformer.nn import ForecastNetwork
from tsformer.trainer.train import build_module


@pytest.mark.parametrize(
    "accelerator",
    [
        "cpu",
        pytest.param(
            "gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
        ),
    ],
)
def test_a_network_is_calibrated_and_tested_where_it_was_trained(
    accelerator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed, tested = [], []
    put, evaluate = ForecastNetwork.to, training.evaluate

    def to(network: ForecastNetwork, device: torch.device) -> ForecastNetwork:
        placed.append(device.type)
        return put(network, device)

    def look(data, model):
        tested.append(next(model.network.parameters()).device.type)
        return evaluate(data, model)

    monkeypatch.setattr(ForecastNetwork, "to", to)
    monkeypatch.setattr(training, "evaluate", look)
    monkeypatch.setattr(training, "draw_forecasts", lambda *_: Figure())
    make_long({"a": 200}).to_csv(tmp_path / "table.csv", index=False)
    fit(
        make_settings(
            {
                "dataset.path": str(tmp_path / "table.csv"),
                "paths.run": str(tmp_path / "run"),
                "paths.cache": None,
                "trainer.accelerator": accelerator,
                "trainer.max_steps": 2,
                "conformal": True,
                "model.quantiles": [0.2, 0.8],
            }
        )
    )
    assert placed == tested == ["cpu" if accelerator == "cpu" else "cuda"]


@pytest.mark.parametrize("has_gpu", [False, True])
def test_a_gpu_that_is_not_used_is_told(
    has_gpu: bool, fit_config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = ForecastData(SeriesTable.from_(make_long({"a": 200})), fit_config())
    network = network_settings(training.describe_forecaster(data, data.config))
    module = build_module(data.config, network)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    with caplog.at_level("INFO"):
        training._log_start(data, module, None)
    assert ("trainer=gpu uses it" in caplog.text) == has_gpu
