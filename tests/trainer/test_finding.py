"""Settings that are found by trying."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import yaml

from tests.conftest import make_settings
from tests.data.frames import long_frame
from tests.forecasters import make_long
from tsformer.config import FitConfig
from tsformer.data.forecast_data import ForecastData
from tsformer.data.table import SeriesTable
from tsformer.errors import ConfigError
from tsformer.model.config import network_settings
from tsformer.trainer import finding
from tsformer.trainer.finding import find_batch_size, find_lr, find_settings
from tsformer.trainer.module import ForecastModule
from tsformer.trainer.train import build_module
from tsformer.training import describe_forecaster, fit


def make_data(fit_config: Any, **overrides: Any) -> ForecastData:
    waves = np.sin(np.arange(300) / 3) + np.random.default_rng(0).normal(size=300) / 5
    table = SeriesTable.from_(long_frame({"a": waves}))
    return ForecastData(table, fit_config({f"trainer.{k}": v for k, v in overrides.items()}))


def builder(data: ForecastData, kind: type[ForecastModule] = ForecastModule) -> Any:
    def build(config: FitConfig) -> ForecastModule:
        network = network_settings(describe_forecaster(data, config))
        module = build_module(config, network)
        module.__class__ = kind
        return module

    return build


class Full(ForecastModule):
    """A module whose batches of more than 100 windows do not fit."""

    seen: ClassVar[list[int]] = []
    limit = 100
    message = "CUDA out of memory. Tried to allocate 20 GiB"

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append(len(batch.series))
        if len(batch.series) > self.limit:
            raise torch.OutOfMemoryError(self.message)
        return super().training_step(batch, batch_idx)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the CPU is a GPU."""
    monkeypatch.setattr(finding, "uses_cuda", lambda accelerator: True)


@pytest.mark.usefixtures("gpu")
def test_the_batch_doubles_until_memory_is_full(fit_config) -> None:
    data = make_data(fit_config, find_batch_size=True)
    assert data.config.batch_size == 16
    Full.seen.clear()
    assert find_settings(data, builder(data, Full)) is None
    assert data.config.batch_size == 64
    assert not data.config.trainer.find_batch_size
    assert list(dict.fromkeys(Full.seen)) == [16, 32, 64, 128]
    assert Full.seen.count(64) > 1  # what the optimiser holds comes after the first step


@pytest.mark.usefixtures("gpu")
def test_a_batch_needs_no_more_windows_than_there_are(fit_config) -> None:
    data = make_data(fit_config)
    size = find_batch_size(data, builder(data))
    assert size / 2 < len(data.train) <= size


@pytest.mark.usefixtures("gpu")
def test_a_first_batch_that_is_too_large_is_refused(fit_config, monkeypatch) -> None:
    monkeypatch.setattr(Full, "limit", 10)
    data = make_data(fit_config)
    with pytest.raises(ConfigError, match="batch_size=16 is too large for the GPU's memory"):
        find_batch_size(data, builder(data, Full))


@pytest.mark.usefixtures("gpu")
def test_other_errors_are_not_taken_for_a_full_memory(fit_config, monkeypatch) -> None:
    def fail(self: Any, batch: Any, batch_idx: int) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Full, "training_step", fail)
    data = make_data(fit_config)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        find_batch_size(data, builder(data, Full))


def test_on_a_cpu_there_is_no_limit_to_find(fit_config) -> None:
    data = make_data(fit_config, find_batch_size=True)
    with pytest.raises(ConfigError, match=r"accelerator=cpu.*no limit to find.*Set batch_size"):
        find_settings(data, builder(data))


@pytest.mark.parametrize("flag", ["find_lr", "find_batch_size"])
def test_several_ranks_find_nothing(flag: str, fit_config, monkeypatch) -> None:
    data = make_data(fit_config, **{flag: True})
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"in one process\. Set trainer\.devices=1"):
        find_settings(data, builder(data))


def test_the_chosen_rate_is_where_the_loss_falls_the_fastest(fit_config) -> None:
    data = make_data(fit_config)
    rates, losses, chosen = find_lr(data, builder(data))
    slopes = [
        (losses[i + 1] - losses[i - 1]) / (np.log(rates[i + 1]) - np.log(rates[i - 1]))
        for i in range(10, len(losses) - 1)
    ]
    assert chosen == pytest.approx(rates[10 + int(np.argmin(slopes))], rel=0.05)
    assert 1e-4 < chosen < 0.5
    assert losses[:10].mean() > 1.5 * losses.min()  # it trained


def test_a_linear_skip_keeps_its_own_rate(fit_config) -> None:
    rates: dict[str, set[float]] = {"rest": set(), "skip": set()}

    class Watched(ForecastModule):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            rest, skip, *_ = self.optimizers().param_groups
            rates["rest"].add(rest["lr"])
            rates["skip"].add(round(skip["lr"], 9))
            super().optimizer_step(*args, **kwargs)

    data = make_data(fit_config)
    optimizer = data.config.optimizer.model_copy(update={"skip_lr": 0.002})
    scheduler = data.config.scheduler.model_copy(
        update={"name": "constant", "warmup_fraction": 0.0}
    )
    data.config = data.config.model_copy(update={"optimizer": optimizer, "scheduler": scheduler})
    found = find_lr(data, builder(data, Watched)).rates
    assert rates["skip"] == {0.002}
    assert rates["rest"] >= set(found)


@pytest.mark.parametrize("step", [5, 1000])
def test_a_loss_that_never_falls_is_told(step: int, fit_config) -> None:
    class Stuck(ForecastModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.global_step > step:
                raise ArithmeticError("the loss is NaN")
            return 0 * super().training_step(batch, batch_idx) + 1

    data = make_data(fit_config)
    with pytest.raises(ConfigError, match="loss does not fall at any learning rate"):
        find_lr(data, builder(data, Stuck))


def test_a_found_rate_trains_as_one_that_is_set(tmp_path: Path) -> None:
    make_long({"a": 300}).to_csv(tmp_path / "series.csv", index=False)

    def run(name: str, **settings: Any) -> dict[str, Any]:
        own = {
            "dataset.path": str(tmp_path / "series.csv"),
            "paths.run": str(tmp_path / name),
            "paths.cache": None,
            "logger.csv": False,
            "model.dropout": 0.1,  # draws random numbers
        }
        fit(make_settings({**own, **settings}))
        return yaml.safe_load((tmp_path / name / "config.yaml").read_text())

    found = run("found", **{"trainer.find_lr": True})
    lr = found["optimizer"]["lr"]
    assert lr != make_settings()["optimizer"]["lr"]
    assert not found["trainer"]["find_lr"]  # a run that goes on uses what was found
    assert (tmp_path / "found" / "lr_finder.png").stat().st_size > 1000
    set_by_hand = run("set", **{"optimizer.lr": lr})
    del found["paths"], set_by_hand["paths"]
    assert found == set_by_hand
    weights = [
        (tmp_path / x / "model" / "model.safetensors").read_bytes() for x in ("found", "set")
    ]
    assert weights[0] == weights[1]
    assert not (tmp_path / "set" / "lr_finder.png").exists()
