"""Scores against figures by hand, plain loops and utilsforecast's own evaluate."""

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from utilsforecast import losses
from utilsforecast.evaluation import evaluate

from tsformer import evaluation
from tsformer.errors import ConfigError, DataError, TsformerError
from tsformer.evaluation.frames import (
    GROUPS,
    groups_of,
    point_columns,
    quantile_columns,
    with_groups,
)
from tsformer.evaluation.scores import (
    Scales,
    comparable,
    fraction_below,
    mean_over_series,
    score,
)


def random_frame(num_series: int = 3, num_cutoffs: int = 5, horizon: int = 30) -> pd.DataFrame:
    """Hourly windows of series, with some truths and forecasts missing."""
    rng = np.random.default_rng(0)
    parts = []
    for series in "zyxwv"[:num_series]:
        for cutoff in pd.date_range("2024-02-28 05:00", periods=num_cutoffs, freq="12h"):
            ds = pd.date_range(cutoff, periods=horizon + 1, freq="h")[1:]
            y = rng.normal(10, 3, horizon)
            error = rng.normal(0, 1, (2, horizon))
            columns = {"y": y, "tsformer": y + error[0], "naive": y + 2 * error[1]}
            parts.append(pd.DataFrame({"unique_id": series, "ds": ds, "cutoff": cutoff, **columns}))
    frame = pd.concat(parts, ignore_index=True)
    for level, shift in ((0.05, -2), (0.25, -0.7), (0.5, 0.1), (0.75, 0.6), (0.95, 1.5)):
        frame[f"tsformer-q-{level}"] = frame["tsformer"] + shift
    frame.loc[rng.choice(len(frame), 40, replace=False), "y"] = np.nan
    frame.loc[rng.choice(len(frame), 30, replace=False), "naive"] = np.nan
    return frame


SCALES = Scales(pd.Series({"z": 2.0, "y": np.nan, "x": 0.5}), pd.Series({"z": 3.0, "x": 0.7}))


def by_hand(rows: pd.DataFrame, method: str) -> dict[str, float]:
    """Return every score of some rows by plain loops in double precision."""
    found: dict[str, list[float]] = {}

    def add(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)

    for row in rows.to_dict("records"):
        y, forecast = row["y"], row[method]
        if np.isnan([y, row["tsformer"], row["naive"]]).any():
            continue
        error = forecast - y
        add("MAE", abs(error))
        add("MSE", error**2)
        add("MAPE", abs(error) / abs(y))
        add("sMAPE", 2 * abs(error) / (abs(y) + abs(forecast)))
        add("bias", error)
        absolute = SCALES.absolute.get(row["unique_id"], np.nan)
        squared = SCALES.squared.get(row["unique_id"], np.nan)
        if absolute > 0:
            add("MASE", abs(error) / absolute)
        if squared > 0:
            add("RMSSE", (error / squared) ** 2)
        if method != "tsformer":
            continue
        add("magnitude", abs(y))
        levels = (0.05, 0.25, 0.5, 0.75, 0.95)
        pinball = [
            max(q * (y - row[f"tsformer-q-{q}"]), (q - 1) * (y - row[f"tsformer-q-{q}"]))
            for q in levels
        ]
        add("pinball", sum(pinball) / 5)
        for nominal, low, high in ((90, 0.05, 0.95), (50, 0.25, 0.75)):
            low, high = row[f"tsformer-q-{low}"], row[f"tsformer-q-{high}"]
            alpha = 1 - nominal / 100
            add(f"coverage-{nominal}", low <= y <= high)
            add(f"width-{nominal}", high - low)
            if absolute > 0:
                outside = max(low - y, y - high, 0)
                add(f"MSIS-{nominal}", (high - low + 2 / alpha * outside) / absolute)
    means = {name: sum(values) / len(values) for name, values in found.items()}
    means["RMSE"] = means["MSE"] ** 0.5
    means["RMSSE"] = means["RMSSE"] ** 0.5 if "RMSSE" in means else np.nan
    means.setdefault("MASE", np.nan)
    if method == "tsformer":
        means["scaled CRPS"] = 2 * means["pinball"] / means.pop("magnitude")
        for nominal in (90, 50):
            means.setdefault(f"MSIS-{nominal}", np.nan)
    return means


@pytest.mark.parametrize("by", [None, "unique_id", *GROUPS])
def test_scores_are_those_of_plain_loops_in_all_and_by_group(by):
    frame = with_groups(random_frame(), "h")
    found = score(frame, by, scales=SCALES)
    assert list(found["method"].unique()) == ["tsformer", "naive"]
    parts = [(None, frame)] if by is None else list(frame.groupby(by, observed=True))
    assert len(found) == 2 * len(parts)
    for name, rows in parts:
        for method in ("tsformer", "naive"):
            own = found["method"] == method
            row = found[own if by is None else own & (found[by] == name)].iloc[0]
            for key, value in by_hand(rows, method).items():
                assert_allclose(row[key], value, rtol=1e-9, atol=1e-12, err_msg=f"{name} {key}")
            if method == "naive":
                assert np.isnan(row["pinball"])
                assert np.isnan(row["coverage-90"])


def test_scores_of_series_are_those_of_utilsforecasts_evaluate():
    frame = random_frame()
    rows = comparable(frame).drop(columns="cutoff")
    theirs = evaluate(
        rows[["unique_id", "ds", "y", "tsformer", "naive"]],
        [losses.mae, losses.mse, losses.rmse, losses.mape, losses.smape],
    )
    ours = score(frame, "unique_id").set_index(["unique_id", "method"])
    for row in theirs.to_dict("records"):
        name = {"smape": "sMAPE"}.get(row["metric"], row["metric"].upper())
        factor = 2 if name == "sMAPE" else 1  # theirs is half of the M competitions'
        for method in ("tsformer", "naive"):
            value = ours.loc[(row["unique_id"], method), name]
            assert_allclose(value, factor * row[method], rtol=1e-12)


def test_intervals_may_be_named_by_their_level():
    frame = random_frame()
    named = frame.rename(
        columns={
            "tsformer-q-0.05": "tsformer-lo-90",
            "tsformer-q-0.95": "tsformer-hi-90",
            "tsformer-q-0.25": "tsformer-lo-50",
            "tsformer-q-0.75": "tsformer-hi-50",
        }
    )
    pd.testing.assert_frame_equal(score(named), score(frame))
    assert quantile_columns(named, "tsformer")[0.05] == "tsformer-lo-90"


def test_order_of_rows_changes_nothing():
    frame = random_frame()
    shuffled = frame.sample(frac=1, random_state=1)
    for by in (None, *GROUPS, "unique_id"):
        one, other = (score(with_groups(x, "h"), by, scales=SCALES) for x in (frame, shuffled))
        pd.testing.assert_frame_equal(one, other)
    pd.testing.assert_frame_equal(fraction_below(frame), fraction_below(shuffled))


def test_fractions_below_are_counted():
    frame = pd.DataFrame(
        {
            "unique_id": "a",
            "ds": pd.date_range("2024-01-01", periods=4, freq="D"),
            "y": [1.0, 2.0, 3.0, np.nan],
            "m": 2.0,
            "m-q-0.1": [0.0, 2.0, 3.0, 9.0],
            "m-q-0.9": [1.0, 2.0, 9.0, 9.0],
        }
    )
    found = fraction_below(frame)
    assert_allclose(found["m"], [2 / 3, 1])
    assert fraction_below(frame[["unique_id", "ds", "y", "m"]]) is None


def test_means_over_series_count_each_alike_or_by_weight():
    frame = random_frame()
    scores = score(frame, "unique_id", scales=SCALES)
    ours = scores[scores["method"] == "tsformer"].set_index("unique_id")
    plain = mean_over_series(scores).set_index("method").loc["tsformer"]
    assert_allclose(plain["MAE"], ours["MAE"].mean())
    assert_allclose(plain["MASE"], ours.loc[["x", "z"], "MASE"].mean())  # y has no scale
    assert plain["series"] == 3
    weights = pd.Series({"x": 3.0, "y": 0.0, "z": 1.0})
    weighed = mean_over_series(scores, weights).set_index("method").loc["tsformer"]
    assert_allclose(weighed["MAE"], (3 * ours.loc["x", "MAE"] + ours.loc["z", "MAE"]) / 4)


def test_methods_are_compared_on_the_same_rows_and_those_without_forecasts_left_out():
    frame = random_frame().assign(empty=np.nan)
    frame["empty-q-0.5"] = np.nan
    rows = comparable(frame)
    assert point_columns(rows) == ["tsformer", "naive"]
    assert len(rows) == frame[["y", "tsformer", "naive"]].notna().all(axis=1).sum()
    assert (score(frame)["rows"] == len(rows)).all()


def test_groups_of_the_calendar_need_no_preparation():
    frame = random_frame()
    pd.testing.assert_frame_equal(
        evaluation.score(frame, "hour"), score(with_groups(frame, "h"), "hour")
    )


@pytest.mark.parametrize(
    ("columns", "by", "message"),
    [
        (["unique_id", "ds", "tsformer"], None, "lack the columns .'y'."),
        (["unique_id", "ds", "y"], None, "no column holds forecasts"),
        (["unique_id", "ds", "y", "tsformer"], "shop", "lack the columns .'shop'."),
        (["unique_id", "ds", "y", "tsformer"], "hour", "lack the columns .'cutoff'."),
    ],
)
def test_missing_columns_are_named(columns, by, message):
    with pytest.raises(ConfigError, match=message):
        score(random_frame()[columns], by)


def test_no_truth_and_no_common_row_are_told():
    with pytest.raises(DataError, match="no step that was forecast has a truth"):
        score(random_frame().assign(y=np.nan))
    frame = random_frame()
    first = frame.index % 2 == 0
    frame["tsformer"], frame["naive"] = frame["y"].where(first), frame["y"].where(~first)
    with pytest.raises(DataError, match="no step has a forecast of each method"):
        score(frame)


def test_groups_follow_the_local_clock_and_the_step():
    ds = pd.date_range("2024-03-31 00:00", periods=4, freq="h", tz="UTC")
    frame = pd.DataFrame({"unique_id": "a", "cutoff": ds[0], "ds": ds, "y": 1.0})
    found = with_groups(frame, "h", "Europe/Berlin")
    assert list(found["hour"]) == [1, 3, 4, 5]  # 2 o'clock is skipped
    assert list(found["horizon step"]) == [1, 2, 3, 4]
    assert list(found["weekday"].unique()) == ["Sun"]
    assert groups_of(found) == ["horizon step", "hour"]
    monthly = pd.date_range("2023-11-30", periods=4, freq="ME")
    found = with_groups(frame.assign(ds=monthly), "ME")
    assert list(found["month"]) == ["Nov", "Dec", "Jan", "Feb"]
    assert groups_of(found) == ["horizon step", "month"]


@pytest.mark.parametrize("name", ["all", "1", "models", ""])
def test_a_method_may_have_any_name(name: str) -> None:
    frame = random_frame()
    named = frame.rename(columns={"naive": name})
    if name == "1":
        named.columns = [1 if column == name else column for column in named]  # a number
    expected = score(frame).replace({"method": {"naive": name}})
    pd.testing.assert_frame_equal(score(named), expected)


def test_errors_are_told_by_any_column() -> None:
    frame = random_frame(num_series=1, num_cutoffs=2)
    by_cutoff = score(frame, "cutoff")
    for cutoff, rows in frame.groupby("cutoff"):
        found = by_cutoff[by_cutoff["cutoff"] == cutoff].drop(columns="cutoff")
        pd.testing.assert_frame_equal(found.reset_index(drop=True), score(rows))
    assert len(score(frame, "y")) == 2 * len(comparable(frame))


def test_frames_of_other_libraries_and_of_text_files_are_scored_alike(tmp_path) -> None:
    frame = random_frame()
    frame.to_csv(tmp_path / "forecasts.csv", index=False)
    text = pd.read_csv(tmp_path / "forecasts.csv")
    expected = score(frame, "weekday")
    for other in (polars.from_pandas(frame), pa.Table.from_pandas(frame), text):
        pd.testing.assert_frame_equal(score(other, "weekday"), expected)
    pd.testing.assert_frame_equal(fraction_below(text), fraction_below(frame))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"naive": np.inf}, "column 'naive' holds infinite values"),
        ({"y": -np.inf}, "column 'y' holds infinite values"),
        ({"y": "x"}, "column 'y' holds no numbers"),
        ({"unique_id": None}, "some rows have no unique_id"),
        ({"ds": "soon"}, "column 'ds' does not hold times"),
        ({"tsformer-q-0.5": "x"}, "column 'tsformer-q-0.5' holds no numbers"),
        ({"tsformer-lo-100": 1.0}, "column 'tsformer-lo-100': there is no such level"),
        ({"tsformer-q-1.5": 1.0}, "column 'tsformer-q-1.5': there is no such level"),
    ],
)
def test_what_cannot_be_scored_is_named(changes: dict, message: str) -> None:
    frame = random_frame().assign(**changes)
    for asked in (score, fraction_below):
        with pytest.raises(TsformerError, match=message):
            asked(frame)


def test_two_columns_of_one_name_are_refused() -> None:
    frame = random_frame()
    with pytest.raises(DataError, match="two columns 'naive'"):
        score(pd.concat([frame, frame[["naive"]]], axis=1))


@pytest.mark.parametrize("unit", [1e-30, 1e-12, 1e12])
def test_scaled_crps_has_no_unit(unit: float) -> None:
    frame = random_frame(num_series=1, num_cutoffs=2)
    scaled = frame.copy()
    numbers = frame.select_dtypes("float").columns
    scaled[numbers] *= unit
    column = "scaled CRPS"
    assert_allclose(score(scaled)[column], score(frame)[column], rtol=1e-9)


def test_scaled_crps_of_truths_that_are_all_0_is_none() -> None:
    frame = random_frame(num_series=1, num_cutoffs=2)
    frame["y"] = frame["y"].where(frame["y"].isna(), 0.0)
    scores = score(frame).set_index("method").loc["tsformer"]
    assert np.isnan(scores["scaled CRPS"])
    assert scores["pinball"] > 0
