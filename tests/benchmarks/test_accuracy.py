"""`benchmark accuracy`: its baselines, what it does again, and what it writes."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hydra.errors import HydraException
from numpy.testing import assert_allclose

from tsformer.benchmarks import accuracy_plan, accuracy_scores, statistical
from tsformer.benchmarks.accuracy import measure_accuracy
from tsformer.benchmarks.accuracy_plan import levels_of, parse_plan, plan_tasks
from tsformer.benchmarks.accuracy_report import (
    PUBLISHED,
    as_csv,
    as_markdown,
    read_published,
    summarise,
)
from tsformer.benchmarks.accuracy_scores import RUNNERS, Score, score_windows, with_quantiles
from tsformer.benchmarks.linear import (
    RECIPES,
    TRAINING,
    DLinear,
    InstanceLinear,
    NLinear,
    train_linear,
)
from tsformer.commands import benchmark
from tsformer.data.catalog import load_data
from tsformer.data.forecast_data import ForecastData
from tsformer.data.windows import WindowBatch
from tsformer.errors import ConfigError
from tsformer.prediction.forecasting import Forecasts

ROOT = Path(__file__).resolve().parents[2]
L, H = 24, 6
TINY = (
    *("dataset=custom", f"horizon={H}", "seed=[1,2]", f"look_back={L}", "dataset.name=tiny"),
    *(f"context_length={L}", "model.patch_len=6", "model.d_model=8", "model.d_ff=8"),
    *("model.num_heads=2", "model.num_layers=1", "trainer.max_epochs=1", "paths.cache=null"),
)
LEVELS = [0.05, 0.25, 0.5, 0.95]
QUANTILES = ("model.head=quantile", f"model.quantiles={LEVELS}", "conformal=true")
METHODS = ["tsformer", "repeat last", "seasonal naive (daily)", *RECIPES]


def waves(steps: int = 400) -> pd.DataFrame:
    t, rng = np.arange(steps), np.random.default_rng(0)
    values = np.sin(2 * np.pi * t / 24)[:, None] * [1, 5] + rng.normal(scale=0.1, size=(steps, 2))
    frame = pd.DataFrame(values * 10 + 100, columns=["a", "b"])
    frame.insert(0, "date", pd.date_range("2024-01-01", periods=steps, freq="h"))
    return frame


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "waves.csv"
    waves().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module", autouse=True)
def _without_statsforecast():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy_plan, "is_installed", lambda: False)
        yield


@pytest.fixture(scope="module")
def finished(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a whole run."""
    output = tmp_path_factory.mktemp("results")
    measure_accuracy([*TINY, f"dataset.path={table}", f"output={output}"])
    return output


@pytest.fixture(scope="module")
def in_quantiles(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the results of a whole run with quantiles."""
    output = tmp_path_factory.mktemp("quantiles")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy_scores, "FEW", 20)
        patch.setattr(accuracy_plan, "is_installed", lambda: True)
        patch.setattr(statistical, "build", lambda *_: LastValue())
        arguments = [*TINY, *QUANTILES, "seed=1", f"dataset.path={table}", f"output={output}"]
        measure_accuracy(arguments)
    return output


@pytest.fixture
def data(table: Path) -> ForecastData:
    task = next(plan_tasks(parse_plan([*TINY, f"dataset.path={table}"])))
    return ForecastData(*load_data(task.settings))


def points(data: ForecastData, forecast, levels=()):
    """Return a forecast of points, from a batch, as `score_windows` takes it."""
    return with_quantiles(data, lambda part, windows: forecast(part[windows]), levels)


def last_value(batch: WindowBatch) -> np.ndarray:
    return batch.context[:, -1:].expand(-1, H, -1).double().numpy()


# The linear baselines


def along(weights: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
    """Map (L, C) to (H, C) in double precision."""
    weight, bias = (p.detach().double().numpy() for p in weights.parameters())
    return weight @ x + bias[:, None]


@pytest.fixture
def context() -> np.ndarray:
    return np.random.default_rng(1).normal(3, 2, size=(2, 30, 3))


def forecast_of(model: torch.nn.Module, context: np.ndarray, observed=None) -> np.ndarray:
    x = torch.from_numpy(context).float()
    seen = torch.ones_like(x, dtype=torch.bool) if observed is None else observed
    with torch.no_grad():
        return model(x, seen).numpy()


def test_dlinear_maps_a_moving_average_of_25_and_the_rest(context):
    model = DLinear(30, 7)
    for x, found in zip(context, forecast_of(model, context), strict=True):
        padded = np.concatenate([np.repeat(x[:1], 12, 0), x, np.repeat(x[-1:], 12, 0)])
        trend = np.stack([padded[t : t + 25].mean(axis=0) for t in range(30)])
        expected = along(model.trend, trend) + along(model.seasonal, x - trend)
        assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_nlinear_maps_differences_from_the_last_value(context):
    model = NLinear(30, 7)
    for x, found in zip(context, forecast_of(model, context), strict=True):
        assert_allclose(found, along(model.map, x - x[-1]) + x[-1], rtol=1e-4, atol=1e-5)


def test_instance_linear_maps_what_is_scaled_by_its_own_context(context):
    model = InstanceLinear(30, 7)
    for x, found in zip(context, forecast_of(model, context), strict=True):
        mean, std = x.mean(axis=0), x.std(axis=0)
        expected = along(model.map, (x - mean) / std) * std + mean
        assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_instance_linear_takes_no_notice_of_what_is_missing(context):
    model, observed = InstanceLinear(30, 7), torch.rand(2, 30, 3) < 0.7
    other = np.where(observed, context, 1e6)
    assert_allclose(forecast_of(model, context, observed), forecast_of(model, other, observed))


@pytest.mark.parametrize("name", RECIPES)
def test_training_beats_repeating_the_last_value_and_follows_its_seed(data, name):
    def metrics(model: torch.nn.Module) -> dict[str, float]:
        forecast = points(data, lambda batch: forecast_of(model, batch.context.numpy()))
        return score_windows(data, forecast)

    first, again, other = (
        train_linear(RECIPES[name], data, seed=seed, **TRAINING) for seed in (1, 1, 2)
    )
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert metrics(first) != metrics(other)
    last = score_windows(data, points(data, last_value))
    assert metrics(first)["mse"] < last["mse"] / 10


# Scores


def test_truth_scores_0_and_is_scored_on_every_window(data):
    picked = []

    def oracle(part, windows):
        assert part is data.test
        picked.extend(windows.tolist())
        return part[windows].target.double().numpy()

    assert score_windows(data, with_quantiles(data, oracle, ())) == {"mse": 0, "mae": 0}
    assert picked == list(range(2 * (80 - H + 1)))  # two series, a fifth of 400 steps


def test_what_is_not_forecast_does_not_count(data):
    def forecast(batch):
        found = batch.target.double().numpy() + 2
        found[:, 1:] = np.nan
        return found

    assert score_windows(data, points(data, forecast)) == {"mse": 4, "mae": 2}


def test_naive_scores_are_those_of_a_plain_loop(finished):
    frame = waves()[["a", "b"]].to_numpy()
    train, begin = frame[:280], 320
    z = (frame - train.mean(axis=0)) / train.std(axis=0)
    record = next(r for r in records_of(finished) if r["task"] == "naive")
    for name, season in (("repeat last", 1), ("seasonal naive (daily)", 24)):
        errors = [
            z[origin + step] - z[origin + step - season * (step // season + 1)]
            for origin in range(begin, 400 - H + 1)
            for step in range(H)
        ]
        metrics = record["methods"][name]["metrics"]
        assert_allclose(metrics["mse"], np.square(errors).mean(), rtol=1e-6)
        assert_allclose(metrics["mae"], np.abs(errors).mean(), rtol=1e-6)


class LastValue:
    """Stands for a model of statsforecast; its interval of p % has ends p / 10 away."""

    def forecast(self, y: np.ndarray, h: int, level: list[float] | None) -> dict[str, np.ndarray]:
        assert np.isfinite(y).all()
        ends = {"mean": 0, **{f"{end}-{p}": s * p / 10 for p in level or () for end, s in SIDES}}
        return {name: np.repeat(y[-1] + away, h) for name, away in ends.items()}


SIDES = (("lo", -1), ("hi", 1))


def test_statistical_models_see_the_past_of_few_windows(data, in_quantiles):
    with (in_quantiles / "accuracy.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    few = np.unique(np.linspace(0, 149, 20).astype(int))
    last = score_windows(data, points(data, last_value), few)
    for name in statistical.METHODS:
        row = rows[f"{name}, 20 windows"]
        assert row["windows"] == "20"
        assert float(row["mse"]) == pytest.approx(last["mse"], rel=1e-5)
    assert list(rows)[-3:] == [f"{x}, 20 windows" for x in ("tsformer", *statistical.METHODS)]
    assert rows["tsformer, 20 windows"]["mse"] != rows["tsformer"]["mse"]


def test_statistical_models_know_the_seasons_that_have_passed_twice(data, monkeypatch):
    seasons = []
    monkeypatch.setattr(statistical, "build", lambda _, x: seasons.append(x) or LastValue())
    for windows in ([0], [17]):  # at hours 320 and 337 of weeks of 168
        statistical.forecast_each(data, "AutoTheta", data.test, np.array(windows))
    assert seasons == [[24], [24, 168]]


def test_gaps_in_the_past_are_filled_for_statistical_models(tmp_path, monkeypatch):
    frame = waves()
    frame.loc[300:330, "a"] = np.nan
    frame.to_csv(tmp_path / "gaps.csv", index=False)
    task = next(plan_tasks(parse_plan([*TINY, f"dataset.path={tmp_path / 'gaps.csv'}"])))
    data = ForecastData(*load_data(task.settings))
    monkeypatch.setattr(statistical, "build", lambda *_: LastValue())
    found = statistical.forecast_each(data, "AutoTheta", data.test, np.array([0])).point
    last = (frame.loc[299, "a"] - data.scaler.mean[0]) / data.scaler.std[0]
    assert_allclose(found[0, :, 0], last, rtol=1e-5)


@pytest.mark.parametrize("method", statistical.METHODS)
@pytest.mark.parametrize("seasons", [[], [12], [12, 48]])
def test_real_statistical_models_follow_a_season(method, seasons):
    pytest.importorskip("statsforecast")
    y = 50 + 10 * np.sin(2 * np.pi * np.arange(240) / 12)
    y += np.random.default_rng(0).normal(size=240)
    found = statistical.forecast_past(
        statistical.build(statistical.METHODS[method], seasons), y, 12, LEVELS
    )
    assert found.shape == (1 + len(LEVELS), 12)
    assert_allclose(found[3], found[0])  # of the median
    assert (np.diff(found[1:], axis=0) > 0).all()
    if seasons:
        assert_allclose(found[0], y[:12], atol=5)


# Quantiles


def plain_score(q: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return CRPS and coverage of quantiles (..., Q), in units of the table."""
    pinball = 0.0
    for j, level in enumerate(LEVELS):
        error = truth - q[..., j]
        pinball += np.maximum(level * error, (level - 1) * error).sum() / len(LEVELS)
    within = (q[..., 0] <= truth) & (truth <= q[..., -1])
    return {"scaled_crps": 2 * pinball / np.abs(truth).sum(), "coverage": within.mean()}


def test_quantiles_are_scored_in_units_of_the_table(data):
    rng = np.random.default_rng(2)
    q = np.sort(rng.normal(scale=2, size=(len(data.test), H, 1, len(LEVELS))), axis=-1)

    def forecast(_, windows):
        return Forecasts(q[windows, ..., 2], q[windows])

    batch = data.test[np.arange(len(data.test))]
    mean, std = (
        x[batch.series.numpy()][:, None, None] for x in (data.scaler.mean, data.scaler.std)
    )
    truth = batch.target.double().numpy() * std + mean
    expected = plain_score(q * std[..., None] + mean[..., None], truth)
    found = score_windows(data, forecast, levels=LEVELS)
    assert list(found) == ["mse", "mae", "scaled_crps", "coverage"]
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-6)


def test_without_the_interval_of_90_there_is_no_coverage(data):
    levels = [0.1, 0.5, 0.9]
    found = score_windows(data, points(data, last_value, levels), levels=levels)
    assert list(found) == ["mse", "mae", "scaled_crps"]


def test_naive_quantiles_are_order_statistics_of_validation_errors(in_quantiles):
    frame = waves()[["a", "b"]].to_numpy()

    def errors(begin: int, end: int) -> np.ndarray:
        return np.stack(
            [frame[t : t + H] - frame[t - 24 : t - 24 + H] for t in range(begin, end - H + 1)]
        )  # (W, H, 2)

    scores = errors(280, 320)
    m = len(scores)
    outside = np.sort(np.abs(scores), axis=0)[int(np.ceil(0.9 * (m + 1))) - 1]  # 0.05 and 0.95
    alone = np.sort(scores, axis=0)[int(np.floor(0.25 * (m + 1))) - 1]
    offsets = [-outside, alone, np.zeros_like(alone), outside]
    truth = np.stack([frame[t : t + H] for t in range(320, 400 - H + 1)])
    q = (truth - errors(320, 400))[..., None] + np.stack(offsets, axis=-1)
    record = next(r for r in records_of(in_quantiles) if r["task"] == "naive")
    found = record["methods"]["seasonal naive (daily)"]["metrics"]
    for name, value in plain_score(q, truth).items():
        assert found[name] == pytest.approx(value, rel=1e-5)


def test_every_method_has_quantiles_where_ours_has(in_quantiles):
    with (in_quantiles / "accuracy.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert {*METHODS, *(f"{x}, 20 windows" for x in statistical.METHODS)} < set(rows)
    for row in rows.values():
        assert 0 < float(row["scaled_crps"]) < 0.2
        assert 0 <= float(row["coverage"]) <= 1
    text = (in_quantiles / "accuracy.md").read_text()
    assert "| H | method | MSE | MAE | CRPS | in 90 % | minutes |" in text
    assert "split conformal prediction" in text


def test_ours_scores_alike_in_the_fit_and_here(in_quantiles, table, tmp_path, monkeypatch):
    monkeypatch.setattr(accuracy_scores, "FEW", 10**6)  # all windows, under the same name
    methods = [r["methods"] for r in records_of(in_quantiles) if r["task"] == "tsformer"]
    told = methods[0]["tsformer"]["metrics"]
    scores = []
    score = accuracy_scores.score_windows
    monkeypatch.setattr(
        accuracy_scores, "score_windows", lambda *args: scores.append(score(*args)) or scores[-1]
    )
    plan = parse_plan([*TINY, *QUANTILES, "seed=1", f"dataset.path={table}"])
    found = accuracy_scores.fit_ours(next(plan_tasks(plan)).settings)["tsformer"].metrics
    assert found == pytest.approx(told, rel=1e-6)
    assert scores[0] == pytest.approx(told, rel=1e-5)


def test_a_statistical_model_takes_the_ends_of_its_intervals(data):
    found = statistical.forecast_past(LastValue(), np.arange(50.0), 3, [0.005, *LEVELS])
    assert_allclose(found, np.tile([[49], [39.1], [40], [44], [49], [58]], 3))


def test_levels_change_fingerprints_only_where_there_are_quantiles():
    def fingerprints(*arguments: str) -> dict[str, str]:
        plan = parse_plan(["horizon=96", "seed=1", *arguments])
        return {task.name: task.fingerprint for task in plan_tasks(plan)}

    point = fingerprints()
    few = "model.quantiles=[0.1,0.5,0.9]"
    assert {n for n, x in fingerprints(few).items() if x == point[n]} == {"naive", *RECIPES}
    conformal = fingerprints("conformal=true")
    others = [fingerprints("conformal=true", few), fingerprints("model.head=quantile")]
    assert not {*point.values()} & {*conformal.values()}
    assert not {*conformal.values()} & {*others[0].values()}
    # The figures of baselines do not depend on how ours forecasts.
    assert {n for n, x in others[1].items() if x == conformal[n]} == {"naive", *RECIPES}


@pytest.mark.parametrize(
    ("arguments", "number"), [((), 0), (("conformal=true",), 11), (("model.head=normal",), 11)]
)
def test_there_are_levels_where_ours_is_probabilistic(arguments, number):
    task = next(plan_tasks(parse_plan(["dataset=etth1", *arguments])))
    assert len(levels_of(task.settings)) == number


# Arguments


def test_lists_and_single_values_are_taken():
    plan = parse_plan(
        ["dataset=[etth1,etth2]", "horizon=[96,192,336,720]", "seed=3", "output=/tmp/a-b"]
    )
    assert plan.datasets == ["etth1", "etth2"]
    assert plan.horizons == [96, 192, 336, 720]
    assert plan.seeds == [3]
    assert plan.output == Path("/tmp/a-b")
    assert plan.look_back is None


def test_other_settings_reach_every_fit():
    plan = parse_plan(["horizon=96", "seed=[7,8]", "model.dropout=0.4", "dataset=etth2"])
    assert plan.overrides == ["model.dropout=0.4"]
    fits = [task.settings for task in plan_tasks(plan) if task.name == "tsformer"]
    assert [fit["seed"] for fit in fits] == [7, 8]
    assert all(fit["model"]["dropout"] == 0.4 for fit in fits)
    assert all(fit["dataset"]["name"] == "etth2" for fit in fits)
    assert all(fit["horizon"] == 96 and fit["context_length"] == 720 for fit in fits)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("horizon=[]", "a value is needed"),
        ("horizon=", "a value is needed"),
        ("horizon=[96,long]", "horizon=long: expected whole numbers from 1 on"),
        ("horizon=0", "horizon=0: expected whole numbers from 1 on"),
        ("seed=[1,-1]", "seed=-1: expected whole numbers from 0 on"),
        ("seed=1.5", "seed=1.5: expected whole numbers"),
        ("seed=true", "seed=True: expected whole numbers"),
        ("dataset=etth1,etth2", r"put a list in brackets, dataset=\[a,b\]"),
        ("dataset=[[etth1]]", "expected names"),
        ("look_back=[96,336]", "expected one number"),
    ],
)
def test_a_bad_list_is_told(argument, message):
    with pytest.raises(ConfigError, match=message):
        parse_plan([argument])


def test_an_unknown_dataset_is_told_before_anything_runs():
    with pytest.raises(HydraException, match=r"nowhere(.|\n)*etth1"):
        list(plan_tasks(parse_plan(["dataset=[etth1,nowhere]"])))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dataset=nowhere"], "nowhere"),
        (["dataset=[etth1"], "[etth1"),
        (["horizon=0"], "horizon=0"),
        (["model.width=3"], "width"),
        (["dataset=etth1", "paths.data=none"], "none/ETT-small/ETTh1.csv"),
    ],
)
def test_a_mistake_ends_with_one_message_and_exit_code_2(
    arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("sys.argv", ["benchmark.py", "accuracy", *arguments, f"output={tmp_path}"])
    with pytest.raises(SystemExit) as stop:
        benchmark.run()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


# What is written, and what is done again


def records_of(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "accuracy.jsonl").read_text().splitlines()]


def test_every_finished_task_is_a_line(finished):
    records = records_of(finished)
    tasks = [(record["task"], record["seed"]) for record in records]
    linear = [(name, seed) for name in RECIPES for seed in (1, 2)]
    assert tasks == [("tsformer", 1), ("tsformer", 2), ("naive", None), *linear]
    assert all(s["windows"] == 150 for r in records for s in r["methods"].values())


def test_an_interrupted_run_goes_on_where_it_ended(finished, table, tmp_path, monkeypatch):
    lines = (finished / "accuracy.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "accuracy.jsonl").write_text("".join(lines[:4]) + lines[4][:20])
    ran = []

    def interrupted(name, settings):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append((name, settings["seed"]))
        return {name: Score({"mse": 1.0, "mae": 1.0}, 0.0, 150)}

    for name in RUNNERS:
        monkeypatch.setitem(RUNNERS, name, lambda x, name=name: interrupted(name, x))
    arguments = [*TINY, f"dataset.path={table}", f"output={tmp_path}"]
    with pytest.raises(KeyboardInterrupt):
        measure_accuracy(arguments)
    first, second, third = RECIPES
    assert ran == [(first, 2), (second, 1)]
    ran.clear()
    with pytest.raises(KeyboardInterrupt):
        measure_accuracy(arguments)
    assert ran == [(second, 2), (third, 1)]


def test_only_what_changed_is_done_again(finished, table, tmp_path, monkeypatch):
    (tmp_path / "accuracy.jsonl").write_bytes((finished / "accuracy.jsonl").read_bytes())
    ran = []
    for name in RUNNERS:
        score = {name: Score({"mse": 1.0, "mae": 1.0}, 0.0, 150)}
        monkeypatch.setitem(
            RUNNERS, name, lambda _, name=name, score=score: ran.append(name) or score
        )
    arguments = [*TINY, f"dataset.path={table}", f"output={tmp_path}"]
    measure_accuracy([*arguments, "paths.download=true", "dataset.unit=kW"])
    assert ran == []
    measure_accuracy([*arguments, "model.dropout=0.5"])
    assert ran == ["tsformer", "tsformer"]
    ran.clear()
    measure_accuracy([*arguments, "scaling=default", "scaling.method=robust"])
    assert set(ran) == {"tsformer", "naive", *RECIPES}


def test_the_csv_holds_mean_and_spread_over_seeds(finished):
    with (finished / "accuracy.csv").open(newline="") as file:
        rows = {row["method"]: row for row in csv.DictReader(file)}
    assert sorted(rows) == sorted([*METHODS, "seasonal naive (weekly)"])
    for name in ("tsformer", "DLinear"):
        scores = [r["methods"][name] for r in records_of(finished) if name in r["methods"]]
        for metric in ("mse", "mae"):
            values = [score["metrics"][metric] for score in scores]
            assert float(rows[name][metric]) == pytest.approx(np.mean(values))
            assert float(rows[name][f"{metric}_std"]) == pytest.approx(np.std(values, ddof=1))
        assert (rows[name]["seeds"], rows[name]["windows"]) == ("2", "150")
    assert (rows["repeat last"]["seeds"], rows["repeat last"]["mse_std"]) == ("1", "")


def test_the_markdown_says_how_it_was_made(finished, table):
    text = (finished / "accuracy.md").read_text()
    assert f"python scripts/benchmark.py accuracy dataset=custom horizon={H} 'seed=[1,2]'" in text
    assert f"dataset.path={table}" in text
    assert f"torch {torch.__version__}" in text
    assert "seeds 1, 2" in text
    commits = {record["commit"] for record in records_of(finished)}
    assert all(commit in text for commit in commits)
    assert "## custom\n" in text
    for name in METHODS:
        assert f"| {H} | {name} | " in text


def record(dataset: str, horizon: int, method: str, seed: int, **metrics: float) -> dict:
    score = {"metrics": metrics, "minutes": 2.0, "windows": 9}
    return {
        **{"task": method, "dataset": dataset, "horizon": horizon, "seed": seed},
        **{"settings": "0", "commit": "abc", "machine": "a machine", "methods": {method: score}},
    }


def test_published_figures_stand_below_ours():
    records = [
        record("etth1", 96, "tsformer", 1, mse=0.36, mae=0.38, scaled_crps=0.3),
        record("etth1", 96, "tsformer", 2, mse=0.38, mae=0.40, scaled_crps=0.3),
    ]
    rows = summarise(records)
    assert [row.method for row in rows[:2]] == ["tsformer", "DUET (searched)"]
    assert all((row.dataset, row.horizon) == ("etth1", 96) for row in rows)
    text = as_markdown(rows, records, "command")
    assert "| 96 | tsformer | 0.370 ± 0.014 | 0.390 ± 0.014 | 0.3000 ± 0.0000 | 2.0 |  |" in text
    assert "| 96 | PatchTST/64 (512) | 0.370 | 0.400 |  |  | Nie et al. 2023, table 3 |" in text
    assert "4 minutes of training" in text
    lines = list(csv.DictReader(as_csv(rows).splitlines()))
    assert [line["scaled_crps"] for line in lines[:2]] == ["0.3", ""]
    assert lines[1]["source"].startswith("Qiu et al. 2025")


def test_ours_on_few_windows_is_shown_only_beside_others_on_them():
    ours = record("etth1", 96, "tsformer", 1, mse=0.3, mae=0.4)
    few = record("etth1", 96, "tsformer, 5 windows", 1, mse=0.3, mae=0.4)
    theirs = record("etth1", 96, "AutoTheta, 5 windows", 1, mse=0.5, mae=0.4)
    for each in (few, theirs):
        next(iter(each["methods"].values()))["windows"] = 5
    names = [row.method for row in summarise([few, ours]) if row.seeds]
    assert names == ["tsformer"]
    names = [row.method for row in summarise([few, ours, theirs]) if row.seeds]
    assert names == ["tsformer", "tsformer, 5 windows", "AutoTheta, 5 windows"]


def test_every_published_figure_names_its_source_once():
    rows = read_published()
    assert len({(row.dataset, row.horizon, row.method) for row in rows}) == len(rows) > 100
    names = {path.stem for path in (ROOT / "conf" / "dataset").glob("*.yaml")}
    for row in rows:
        assert row.dataset in names
        assert row.source
        assert 0 < row.mean["mse"] < 3
        assert 0 < row.mean.get("mae", 0.5) < 2
    assert PUBLISHED.read_text().startswith("dataset,horizon,method,look_back,mse,mae,source\n")
