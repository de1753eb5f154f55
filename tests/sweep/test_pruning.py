"""A tiny fit as a trial of a search."""

import json
from pathlib import Path

import numpy as np
import optuna
import pandas as pd
import pytest

from tests.conftest import make_settings
from tsformer.commands.fit import fit
from tsformer.config import TrialConfig
from tsformer.errors import TsformerError
from tsformer.sweep.config import PrunerConfig, SweepConfig
from tsformer.sweep.result import Result, read_result, write_result
from tsformer.sweep.space import Choice
from tsformer.sweep.study import ask, load_trial, open_study, tell
from tsformer.sweep.trial import fit_trial

CONFIG = SweepConfig(
    sampler="random",
    n_startup_trials=1,
    seed=0,
    n_trials=3,
    timeout=None,
    storage=None,
    pruner=PrunerConfig(name="median", n_startup_trials=1, n_warmup_steps=1),
)
SPACE = {"model.d_model": Choice(("16",))}


@pytest.fixture
def settings(tmp_path: Path):
    """Give the settings of the second trial of a study whose first one was near perfect."""
    stamps = pd.date_range("2024-01-01", periods=300, freq="D")
    values = np.random.default_rng(0).normal(size=300)
    pd.DataFrame({"ds": stamps, "y": values}).to_csv(tmp_path / "test.csv", index=False)
    place = str(tmp_path / "study.journal")
    study = open_study(place, "sweep", CONFIG)
    number, _ = ask(study, SPACE, CONFIG)
    good = load_trial(TrialConfig(number=number, storage=place, study="sweep"))
    for step in range(1, 10):
        good.report(0.001, step)
    tell(study, number, Result("complete", 0.001))
    number, _ = ask(study, SPACE, CONFIG)
    return make_settings(
        {
            "trial": {"number": number, "storage": place, "study": "sweep"},
            "dataset.path": str(tmp_path / "test.csv"),
            "trainer.max_epochs": 6,
            "paths.run": str(tmp_path / "1"),
            "paths.cache": None,
        }
    )


def test_a_bad_trial_stops_early_and_tells_its_best(settings, tmp_path: Path) -> None:
    objective = fit_trial(settings, fit)
    result = read_result(tmp_path / "1")
    assert result is not None
    assert (result.state, result.objective) == ("pruned", objective)
    study = optuna.load_study(
        storage=optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
        ),
        study_name="sweep",
    )
    reported = study.trials[1].intermediate_values
    assert list(reported) == [1, 2]  # of 6: the first may not be pruned
    assert objective == pytest.approx(min(reported.values()))
    assert not (tmp_path / "1" / "model").exists()
    assert not (tmp_path / "1" / "metrics.json").exists()


def test_a_trial_of_a_grid_runs_to_its_end(settings, tmp_path: Path) -> None:
    settings["trial"] = {"number": 1, "storage": None, "study": None}
    settings["trainer"]["max_epochs"] = 2
    objective = fit_trial(settings, fit)
    result = read_result(tmp_path / "1")
    assert result is not None
    assert (result.state, result.objective, result.message) == ("complete", objective, "")
    assert json.loads((tmp_path / "1" / "metrics.json").read_text())["objective"] == objective
    assert (tmp_path / "1" / "model").is_dir()
    # What another process finished meanwhile is not run again.
    write_result(tmp_path / "1", Result("complete", 7.0))
    assert fit_trial(settings, fit) == 7.0


def test_a_mistake_and_a_bug_are_kept(settings, tmp_path: Path, monkeypatch) -> None:
    settings["dataset"]["path"] = "none.csv"
    with pytest.raises(TsformerError, match=r"none\.csv"):
        fit_trial(settings, fit)
    result = read_result(tmp_path / "1")
    assert result is not None
    assert result.state == "failed"
    assert "none.csv" in result.message

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("rank 1 died")

    monkeypatch.setattr("tsformer.training.fit", fail)
    settings["paths"]["run"] = str(tmp_path / "2")
    with pytest.raises(RuntimeError):
        fit_trial(settings, fit)
    assert read_result(tmp_path / "2").message == "RuntimeError: rank 1 died"
