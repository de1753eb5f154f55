"""`benchmark ablation`: which fits it does, which not again, and what it shows."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsformer.benchmarks import ablation
from tsformer.benchmarks.ablation import PLAN, measure_ablation, read_plan
from tsformer.errors import ConfigError

TABLE = """
seeds: [1, 2]
bases:
  a: [dataset=custom]
  b: [dataset=custom, horizon=3]
changes: [loss=mse, model.d_model=8 model.num_heads=2]
only:
  b: [seed=5]
"""


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(TABLE)
    return path


def test_bases_take_all_seeds_and_changes_the_first(plan):
    trials = [(t.base, t.change, t.seed) for t in read_plan(plan)]
    changes = ["loss=mse", "model.d_model=8 model.num_heads=2"]
    assert trials == [
        *[("a", "", 1), ("a", "", 2), ("a", changes[0], 1), ("a", changes[1], 1)],
        *[("b", "", 1), ("b", "", 2), ("b", changes[0], 1), ("b", changes[1], 1)],
        ("b", "seed=5", 1),
    ]


@pytest.mark.parametrize("text", ["", "- a", "bases: {a: []}", "bases: [", "seeds: [1]\nbases: 3"])
def test_a_plan_that_is_none_is_refused(tmp_path, text):
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"plan\.yaml: not a plan of an ablation"):
        list(read_plan(tmp_path / "plan.yaml"))
    with pytest.raises(ConfigError, match="none"):
        list(read_plan(tmp_path / "none"))


def test_what_is_done_is_not_done_again_and_changes_stand_beside_the_mean(plan, monkeypatch):
    fits = []

    def fit(trial):
        fits.append(trial)
        mae = {"": 1.0 if trial.seed == 1 else 3.0}.get(trial.change, 1.5)
        return {"mse": 4.0, "mae": mae}

    monkeypatch.setattr(ablation, "_fit", fit)
    measure_ablation([str(plan)])
    assert len(fits) == 9
    lines = plan.with_suffix(".jsonl").read_text().splitlines()
    plan.with_suffix(".jsonl").write_text("\n".join([*lines[:7], lines[7][:20]]))
    fits.clear()
    measure_ablation([str(plan)])
    assert [trial.change for trial in fits] == ["model.d_model=8 model.num_heads=2", "seed=5"]
    text = plan.with_suffix(".md").read_text()
    assert text.count("| `loss=mse` | 4.0000 | 1.5000 | -25.0% |") == 2
    assert text.count("| none | 4.0000 | 2.0000 | +0.0% |") == 2
    assert "MAE is from 1.0000 to 3.0000" in text


def test_a_fit_gives_its_test_errors(tmp_path):
    rng = np.random.default_rng(0)
    stamps = pd.date_range("2024", periods=200, freq="h")
    table = pd.DataFrame({"unique_id": "a", "ds": stamps, "y": rng.normal(size=200)})
    table.to_csv(tmp_path / "t.csv", index=False)
    sizes = "model.d_model=8 model.num_heads=2 model.d_ff=8 model.num_layers=1 model.patch_len=4"
    trial = ablation.Trial(
        "a",
        ["dataset=custom", f"dataset.path={tmp_path}/t.csv", "trainer.max_steps=3"],
        f"context_length=8 horizon=2 {sizes}",
        1,
    )
    figures = ablation._fit(trial)
    assert figures.keys() == {"mse", "mae"}
    assert 0.3 < figures["mae"] < 3


def test_the_results_that_come_with_the_source_are_of_its_plan():
    trials = {(t.base, t.change, t.seed) for t in read_plan(PLAN)}
    records = map(json.loads, PLAN.with_suffix(".jsonl").read_text().splitlines())
    assert {(r["base"], r["change"], r["seed"]) for r in records} == trials
    assert Path(PLAN.with_suffix(".md")).read_text().count("\n| ") == len(
        {trial[:2] for trial in trials}
    ) + 2 * len({trial[0] for trial in trials})
