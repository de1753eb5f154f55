"""scripts/evaluate.py as users run it, and evaluate() on tables of any kind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from tests.conftest import compose_settings
from tests.forecasters import H, make_forecaster, make_long
from tests.processes import run_script
from tsformer import Forecaster
from tsformer.data.columns import Columns
from tsformer.data.locking import alone
from tsformer.errors import ConfigError, DataError, TsformerError
from tsformer.evaluating import evaluate
from tsformer.evaluation.comparison import compare
from tsformer.evaluation.scores import score


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a model of points, one of quantiles, and a table."""
    make_forecaster().save(tmp_path / "model")
    quantiles = (0.05, 0.25, 0.5, 0.75, 0.95)
    make_forecaster(head="quantile", quantiles=quantiles).save(tmp_path / "quantile")
    make_long({"a": 200, "b": 120, "c": 200}).to_csv(tmp_path / "my.csv", index=False)
    return tmp_path


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    dataset = compose_settings("dataset=custom", "dataset.path=my.csv")["dataset"]
    dataset |= {"path": str(folder / "my.csv"), **changes.pop("dataset", {})}
    return {
        "model": str(folder / "model"),
        "dataset": dataset,
        "paths": {"data": "", "runs": "", "run": "", "cache": None},
        "output": str(folder / "out"),
        "part": "test",
        "n_windows": None,
        "step": None,
        "horizon": None,
        "quantiles": None,
        "adaptive": False,
        "refit": False,
        "baselines": ["seasonal_naive"],
        "loss": "mae",
        "report": False,
        "seed": 0,
        "batch_size": 64,
        "num_workers": 1,
        "device": "cpu",
        **changes,
    }


def test_forecasts_scores_and_a_report_are_written(folder: Path) -> None:
    result = run_script(
        "evaluate", folder, "model=quantile", "dataset=custom", "dataset.path=my.csv", "output=out"
    )
    assert result.returncode == 0, result.stderr
    assert "seasonal naive (daily)" in result.stdout
    assert "How much better tsformer is than" in result.stdout
    assert "MASE less by" in result.stdout
    assert "the test needs at least 8 cutoffs" in " ".join(result.stdout.split())
    assert "Warning" not in result.stdout + result.stderr
    names = {path.name for path in (folder / "out").iterdir()}
    groups = ("series", "horizon_step", "hour", "weekday")
    scores = {f"scores_by_{by}.csv" for by in groups}
    assert names == {"forecasts.parquet", "metrics.json", "report.html", *scores}
    told = json.loads((folder / "out" / "metrics.json").read_text())
    frame = pd.read_parquet(folder / "out" / "forecasts.parquet")
    again = score(frame).set_index("method")
    for method, scores in told["total"].items():
        assert_allclose(scores["MAE"], again.loc[method, "MAE"])
    assert told["total"]["seasonal naive (daily)"]["scaled CRPS"] is None
    for method, compared in told["comparison"].items():
        assert_allclose(compared["loss"], told["total"]["tsformer"]["MASE"])
        assert_allclose(compared["baseline_loss"], told["total"][method]["MASE"])
    assert told["steps"] == len(frame) == H * told["windows"]
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "my.csv" in page
    again = run_script(
        "evaluate", folder, "model=model", "dataset=custom", "dataset.path=my.csv", "output=out"
    )
    assert again.returncode == 2
    assert "Choose another" in again.stderr


def test_forecasts_are_those_of_cross_validate_and_begin_in_the_test_part(folder: Path) -> None:
    found = evaluate(settings(folder))
    frame = pd.read_parquet(found.output / "forecasts.parquet")
    # 200 steps, of which the last 40 are the test part; series b ends before it.
    assert set(frame["unique_id"]) == {"a", "c"}
    grid = pd.date_range("2024-03-01", periods=200, freq="h")
    assert frame["ds"].min() >= grid[160]
    assert frame.groupby("unique_id")["cutoff"].nunique().tolist() == [6, 6]  # 40 // 6
    forecaster = Forecaster.load(folder / "model")
    table = pd.read_csv(folder / "my.csv", parse_dates=["ds"])
    table = table[table["unique_id"] != "b"]
    same = forecaster.cross_validate(
        table, n_windows=None, since=grid[160], baselines="seasonal_naive"
    )
    pd.testing.assert_frame_equal(frame, same, check_dtype=False, rtol=1e-6)
    for row in compare(frame.merge(same)).to_dict("records"):
        assert row["num_cutoffs"] == 6


def test_totals_weigh_series_by_their_column(folder: Path) -> None:
    table = pd.read_csv(folder / "my.csv")
    table["size"] = table["unique_id"].map({"a": 3.0, "b": 1.0, "c": 1.0})
    table.to_csv(folder / "my.csv", index=False)
    found = evaluate(settings(folder, dataset={"weight_column": "size"}))
    ours = found.by_series[found.by_series["method"] == "tsformer"].set_index("unique_id")["MAE"]
    mean = found.series_mean.set_index("method").loc["tsformer", "MAE"]
    assert_allclose(mean, (3 * ours["a"] + ours["c"]) / 4)


def test_mase_is_by_the_train_rows(folder: Path) -> None:
    found = evaluate(settings(folder, baselines=[]))
    assert found.comparison.empty
    table = pd.read_csv(folder / "my.csv")
    scaled, scaled_squares = [], []
    frame = pd.read_parquet(found.output / "forecasts.parquet")
    for series in ("a", "c"):
        y = table.loc[table["unique_id"] == series, "y"].to_numpy()[:140]  # 0.7 of 200
        jump = y[24:] - y[:-24]
        rows = frame[frame["unique_id"] == series]
        error = rows["tsformer"] - rows["y"]
        scaled.append(error.abs().mean() / np.abs(jump).mean())
        scaled_squares.append(((error**2).mean() / (jump**2).mean()) ** 0.5)
    ours = found.series_mean.set_index("method").loc["tsformer"]
    assert_allclose(ours["MASE"], np.mean(scaled), rtol=1e-5)
    assert_allclose(ours["RMSSE"], np.mean(scaled_squares), rtol=1e-5)


def test_missing_truth_counts_not_and_is_told(folder: Path) -> None:
    table = pd.read_csv(folder / "my.csv")
    table.loc[table.index % 7 == 0, "y"] = np.nan
    table.to_csv(folder / "my.csv", index=False)
    found = evaluate(settings(folder, report=True))
    frame = pd.read_parquet(found.output / "forecasts.parquet")
    known = frame[["y", "tsformer", *found.total["method"]]].notna().all(axis=1)
    assert found.total["rows"].iloc[0] == known.sum() < frame["y"].notna().sum() < len(frame)
    page = (found.output / "report.html").read_text(encoding="utf-8")
    assert "have no truth and are not scored" in page
    assert "cannot forecast are left out of all scores" in page


@pytest.mark.parametrize("kind", ["one series", "wide", "two targets", "joint", "numbers as ids"])
def test_tables_of_any_kind_are_evaluated(kind: str, tmp_path: Path) -> None:
    long = make_long({"a": 200, "b": 200})
    wide = long.pivot(index="ds", columns="unique_id", values="y").reset_index()
    columns, channels, num_series = Columns("unique_id", "ds", ("y",)), "independent", 2
    if kind == "one series":
        long, num_series = long[long["unique_id"] == "a"], 1
    elif kind == "wide":
        long, columns = wide, Columns(None, "ds", ("a", "b"))
    elif kind == "two targets":
        long, num_series = long.assign(z=10 * long["y"]), 4
        columns = Columns("unique_id", "ds", ("y", "z"))
    elif kind == "joint":
        channels = "joint"
    else:
        long = long.assign(unique_id=long["unique_id"].map({"a": 7, "b": 10}))
    make_forecaster(columns=columns, channels=channels).save(tmp_path / "model")
    long.to_csv(tmp_path / "my.csv", index=False)
    found = evaluate(settings(tmp_path, report=True))
    assert found.by_series["unique_id"].nunique() == num_series
    frame = pd.read_parquet(found.output / "forecasts.parquet")
    assert len(frame) == num_series * 6 * H
    if kind == "numbers as ids":
        assert set(frame["unique_id"]) == {"7", "10"}  # ids of text files are text


def test_a_baseline_without_error_is_compared_with_as_far_as_can_be(folder: Path, capsys) -> None:
    table = pd.read_csv(folder / "my.csv")
    table.assign(y=3.0).to_csv(folder / "my.csv", index=False)
    found = evaluate(settings(folder, report=True))
    assert (found.total.set_index("method")["MAE"].drop("tsformer") == 0).all()
    out = capsys.readouterr().out
    assert "nan" not in out
    assert "inf" not in out


def test_refit_trains_before_each_cutoff(folder: Path) -> None:
    plain = evaluate(settings(folder, n_windows=2))
    refit = {"max_epochs": 1, "max_steps": 2}
    tuned = evaluate(settings(folder, n_windows=2, refit=refit, output=str(folder / "tuned")))
    assert plain.total["MAE"].iloc[0] != tuned.total["MAE"].iloc[0]
    assert plain.total["MAE"].iloc[1] == tuned.total["MAE"].iloc[1]  # of the baseline


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": "none"}, "none: not a model folder"),
    "freq": ({"dataset": {"freq": "D"}}, "the model forecasts steps of h"),
    "no file": ({"dataset": {"path": "none.csv"}}, "none.csv"),
    "no test part": ({"dataset": {"split": [150, 50, 0]}}, "leaves no test part"),
    "short test part": ({"dataset": {"split": [150, 47, 3]}}, "no series is long enough"),
    "baseline": ({"baselines": ["prophet"]}, "no baseline 'prophet'"),
    "quantiles": ({"quantiles": [0.1]}, "gives only point forecasts"),
    "refit": ({"refit": {"epochs": 3}}, "'epochs' is not an argument of fine_tune"),
    "part": ({"part": "train"}, "'test' or 'all'"),
    "steps": ({"step": 0}, "step=0"),
    "weights": ({"dataset": {"weight_column": "size"}}, "size"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_and_nothing_is_written(mistake: str, folder: Path) -> None:
    changes, message = MISTAKES[mistake]
    with pytest.raises(TsformerError, match=message):
        evaluate(settings(folder, **changes))
    assert not (folder / "out").exists()


def test_an_output_that_is_something_else_is_refused_before_any_work(folder: Path) -> None:
    (folder / "link").symlink_to("nowhere")
    before = sorted(folder.iterdir())
    for output in ("my.csv", "model", "my.csv/out", "link", "link/out"):
        with pytest.raises(ConfigError, match="output="):
            evaluate(settings(folder, output=str(folder / output)))
    assert sorted(folder.iterdir()) == before


def test_a_second_evaluation_in_one_folder_is_refused(folder: Path) -> None:
    (folder / "out").mkdir()
    with alone(folder / "out" / ".lock"), pytest.raises(ConfigError, match="another evaluation"):
        evaluate(settings(folder))
    assert not list((folder / "out").iterdir())


def test_other_columns_steps_and_no_truth_are_told(folder: Path) -> None:
    table = pd.read_csv(folder / "my.csv", parse_dates=["ds"])
    table.rename(columns={"y": "load"}).to_csv(folder / "my.csv", index=False)
    with pytest.raises(DataError, match=r"my.csv.*needs the columns.*'y'.*'load'"):
        evaluate(settings(folder))
    table.assign(ds=table["ds"] + table.groupby("unique_id").cumcount() * pd.Timedelta("7min"))
    off = table.assign(
        ds=pd.Timestamp("2024-03-01") + table.groupby("unique_id").cumcount() * pd.Timedelta("7min")
    )
    off.to_csv(folder / "my.csv", index=False)
    with pytest.raises(DataError, match="is not on the grid of freq='h'"):
        evaluate(settings(folder))
    late = table.groupby("unique_id").cumcount() >= 150
    table.assign(y=table["y"].where(~late)).to_csv(folder / "my.csv", index=False)
    with pytest.raises(DataError, match="all are missing"):
        evaluate(settings(folder))
    assert not (folder / "out").exists()


def test_missing_covariates_are_told(tmp_path: Path) -> None:
    columns = Columns("unique_id", "ds", ("y",), future_covariates=("price",))
    make_forecaster(columns=columns).save(tmp_path / "model")
    make_long({"a": 200}).to_csv(tmp_path / "my.csv", index=False)
    with pytest.raises(DataError, match="price"):
        evaluate(settings(tmp_path))


def test_more_rows_than_memory_holds_are_refused(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr("tsformer.evaluating._MAX_ROWS", 50)
    with pytest.raises(ConfigError, match="Raise step"):
        evaluate(settings(folder))


def test_since_and_baselines_are_checked_by_cross_validate() -> None:
    forecaster, frame = make_forecaster(), make_long({"a": 100})
    with pytest.raises(ConfigError, match="since='2030-01-01' is after the end of the table"):
        forecaster.cross_validate(frame, since="2030-01-01")
    with pytest.raises(ConfigError, match="since: 'soon' is not a local time"):
        forecaster.cross_validate(frame, since="soon")
    with pytest.raises(ConfigError, match="choose from seasonal_naive"):
        forecaster.cross_validate(frame, baselines=["naive"])
    every = forecaster.cross_validate(frame, n_windows=None, step=1)
    assert every["cutoff"].nunique() == 100 - H  # each but the first value has one before it
