"""Loggers, and what they are told of a run's end."""

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from lightning.pytorch.loggers import CSVLogger

from tests.conftest import make_settings
from tests.forecasters import make_long
from tsformer.config import FitConfig, LoggerConfig
from tsformer.errors import ConfigError
from tsformer.settings import parse
from tsformer.trainer import loggers
from tsformer.trainer.loggers import build_loggers, check_installed, open_loggers


def settings_of(folder: Path, **logger: Any) -> dict[str, Any]:
    make_long({"a": 300}).to_csv(folder / "series.csv", index=False)
    return make_settings(
        {
            "dataset.path": str(folder / "series.csv"),
            "paths.run": str(folder / "run"),
            "paths.cache": None,
            "trainer.log_every_n_steps": 2,
            **{f"logger.{name}": value for name, value in logger.items()},
        }
    )


def mlflow_of(folder: Path) -> dict[str, str]:
    return {"tracking_uri": f"sqlite:///{folder}/mlflow.db", "experiment": "waves"}


def mlflow_runs(folder: Path) -> list[Any]:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(mlflow_of(folder)["tracking_uri"])
    experiment = client.get_experiment_by_name("waves")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny fit that logs to all that are there."""
    from tsformer.training import fit

    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("fit")
    wandb = {"project": "waves", "group": "tests", "tags": ["tiny"]}
    fit(settings_of(folder, tensorboard=True, mlflow=mlflow_of(folder), wandb=wandb))
    return folder


def test_mlflow_has_settings_curves_and_test_figures(fitted: Path) -> None:
    metrics = json.loads((fitted / "run" / "metrics.json").read_text())
    (run,) = mlflow_runs(fitted)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == f"{fitted.name}/run"
    assert run.data.params["optimizer.lr"] == "0.001"
    assert run.data.params["dataset.path"].endswith("series.csv")
    assert not [name for name in run.data.params if "/" in name]  # nothing twice
    assert "MLFLOW_TRACKING_URI" not in os.environ  # where a sweep's next job would look
    assert run.data.metrics["test/mae"] == metrics["test"]["tsformer"]["mae"]
    assert run.data.metrics["objective"] == metrics["objective"]
    assert run.data.metrics["val/mae"] > 0
    assert run.data.metrics["train/windows_per_second"] > 0


def test_wandb_has_them_in_a_file_to_be_sent_later(fitted: Path) -> None:
    metrics = json.loads((fitted / "run" / "metrics.json").read_text())
    (file,) = (fitted / "run" / "wandb").glob("offline-run-*/run-*.wandb")
    logged = file.read_bytes()
    assert (fitted / "run" / "wandb.id").read_text() in file.name
    for text in ("optimizer.lr", "train/loss", "test/mae", "waves", "tiny"):
        assert text.encode() in logged
    assert json.dumps(metrics["test"]["tsformer"]["mae"]).encode() in logged


def test_tensorboard_has_a_table_of_settings_and_test_figures(fitted: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    metrics = json.loads((fitted / "run" / "metrics.json").read_text())
    events = EventAccumulator(str(fitted / "run" / "tensorboard")).Reload()
    (found,) = events.Scalars("test/mae")
    assert found.value == pytest.approx(metrics["test"]["tsformer"]["mae"])
    assert "_hparams_/session_start_info" in events.summary_metadata
    assert "hp_metric" not in events.Tags()["scalars"]


def test_the_csv_has_the_speed_and_no_test_figures(fitted: Path) -> None:
    curves = pd.read_csv(fitted / "run" / "csv" / "metrics.csv")
    assert (curves["train/windows_per_second"].dropna() > 0).all()
    assert curves["train/loss"].notna().sum() == curves["train/windows_per_second"].notna().sum()
    assert not [name for name in curves if name.startswith("test/")]
    assert (fitted / "run" / "training.png").exists()


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED"), (SystemExit, "KILLED")],
)
def test_a_run_that_does_not_finish_is_marked(
    error: type[BaseException], status: str, fitted: Path, tmp_path: Path
) -> None:
    config = parse(FitConfig, settings_of(tmp_path, csv=False, mlflow=mlflow_of(fitted)))
    statuses = []

    def fail() -> None:
        with open_loggers(config, tmp_path / "run"):
            statuses.append(mlflow_runs(fitted)[0].info.status)  # the latest comes first
            raise error

    with pytest.raises(error):
        fail()
    assert statuses == ["RUNNING"]
    assert mlflow_runs(fitted)[0].info.status == status


def test_each_folder_is_a_run_of_its_own_and_one_that_goes_on_stays_the_same(
    fitted: Path, tmp_path: Path
) -> None:
    wandb = {"project": "waves"}
    settings = settings_of(tmp_path, csv=False, mlflow=mlflow_of(fitted), wandb=wandb)
    versions = []
    for name, place in (("0", "runs/0"), ("1", "runs/1"), ("0", "/moved/0")):
        settings["paths"]["run"] = place
        with open_loggers(parse(FitConfig, settings), tmp_path / name) as opened:
            versions.append([logger.version for logger in opened])
            (run,) = (x for x in mlflow_runs(fitted) if x.info.run_id == versions[-1][0])
            assert run.info.status == "RUNNING"
            assert run.data.params["paths.run"] == f"runs/{name}"  # MLflow lets none be changed
    assert versions[0] == versions[2]
    assert not set(versions[0]) & set(versions[1])


@pytest.mark.parametrize("uri", ["file:mlruns", "http://127.0.0.1:9"])
def test_a_place_that_mlflow_cannot_use_is_named(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    config = parse(LoggerConfig, {"tensorboard": False, "csv": False, "mlflow": mlflow_at(uri)})
    with pytest.raises(ConfigError, match=f"logger.mlflow.tracking_uri={uri}: "):
        build_loggers(config, tmp_path / "run")


def mlflow_at(uri: str) -> dict[str, str]:
    return {"tracking_uri": uri, "experiment": "waves"}


def test_wandb_without_a_key_tells_what_to_do_and_leaves_no_other_run_open(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    services = {"mlflow": mlflow_of(fitted), "wandb": {"project": "waves", "mode": "online"}}
    config = parse(LoggerConfig, {"tensorboard": False, "csv": False, **services})
    with pytest.raises(ConfigError, match=r"logger\.wandb: .*wandb login.*mode=offline"):
        build_loggers(config, tmp_path / "run")
    assert mlflow_runs(fitted)[0].info.status == "FAILED"


@pytest.mark.parametrize(
    ("package", "logger"),
    [("mlflow", "mlflow"), ("sqlalchemy", "mlflow"), ("wandb", "wandb")],
)
def test_a_package_that_is_missing_is_named(
    package: str, logger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"mlflow", "sqlalchemy", "alembic", "wandb"} - {package}
    monkeypatch.setattr(loggers, "find_spec", lambda name: name if name in there else None)
    own = {"mlflow": mlflow_at("sqlite:///runs/mlflow.db"), "wandb": {"project": "waves"}}
    config = {"tensorboard": False, "csv": True, logger: own[logger]}
    with pytest.raises(ConfigError, match=rf"needs the package {package}: .*tsformer\[{logger}\]"):
        check_installed(parse(LoggerConfig, config))
    check_installed(parse(LoggerConfig, {"tensorboard": True, "csv": True}))


def test_the_choices_of_the_command_line(compose, tmp_path: Path) -> None:
    kinds = {
        name: {kind for kind, value in compose(f"logger={name}")["logger"].items() if value}
        for name in ("default", "tensorboard", "csv", "none", "mlflow", "wandb")
    }
    assert kinds == {
        "default": {"csv", "tensorboard"},
        "tensorboard": {"csv", "tensorboard"},
        "csv": {"csv"},
        "none": set(),
        "mlflow": {"csv", "mlflow"},
        "wandb": {"csv", "wandb"},
    }
    mlflow = compose("logger=mlflow", "paths.runs=/somewhere")["logger"]["mlflow"]
    assert mlflow["tracking_uri"] == "sqlite:////somewhere/mlflow.db"
    assert compose("logger=wandb")["logger"]["wandb"]["mode"] == "offline"
    config = parse(LoggerConfig, compose("logger=none")["logger"])
    assert build_loggers(config, tmp_path) == []
    (logger,) = build_loggers(parse(LoggerConfig, compose("logger=csv")["logger"]), tmp_path)
    assert isinstance(logger, CSVLogger)
