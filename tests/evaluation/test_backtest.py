"""cross_validate: each window as predict forecasts it from the rows before it."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.forecasters import LEVELS, H, L, make_forecaster, make_long, recognisable
from tsformer.data.columns import Columns
from tsformer.errors import ConfigError, DataError
from tsformer.forecaster import Forecaster
from tsformer.prediction.history import History

COVARIATES = Columns(
    "unique_id", "ds", ("y",), ("wind",), ("price", "promo"), ("region",), ("promo", "region")
)
VOCABULARIES = {"promo": ["flyer", "radio"], "region": ["north", "south"]}


def with_covariates(frame: pd.DataFrame) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return frame.assign(
        wind=rng.normal(size=len(frame)),
        price=rng.normal(size=len(frame)),
        promo=rng.choice(["flyer", "radio", "unheard of"], size=len(frame)),
        region=frame["unique_id"].map({"a": "north", "new": "south"}).fillna("nowhere"),
    )


def expected(
    forecaster: Forecaster,
    frame: pd.DataFrame,
    n_windows: int,
    step: int,
    horizon: int = H,
    **asked: Any,
) -> pd.DataFrame:
    """Predict window by window from the rows up to each cutoff, of each series or of all."""
    columns = forecaster.config.columns
    own = set(columns.names) <= set(frame)
    id, time = (columns.id, columns.time) if own else ("unique_id", "ds")
    target = list(columns.target) if own else ["y"]
    joint = forecaster.config.channels is not None
    alone = [frame] if id is None or (joint and len(target) == 1) else None
    parts = alone or [rows for _, rows in frame.groupby(id, sort=False)]
    found = []
    for rows in parts:
        times = rows[time].drop_duplicates().sort_values().reset_index(drop=True)
        for window in range(n_windows):
            first = len(times) - horizon - (n_windows - 1 - window) * step
            cutoff = times[first - 1]
            ahead = rows[(rows[time] > cutoff) & (rows[time] <= times[first + horizon - 1])]
            future = ahead.drop(columns=target)
            forecast = forecaster.predict(
                rows[rows[time] <= cutoff],
                future if columns.future_covariates else None,
                horizon=horizon,
                **asked,
            )
            if id is None or len(target) > 1:
                long = ahead.melt(
                    id_vars=[time, *([id] if id else [])], value_vars=target, value_name="truth"
                )
                naming = {"variable": "target" if id else "unique_id", time: "ds", "truth": "y"}
                long = long.rename(columns=naming | ({id: "unique_id"} if id else {}))
            else:
                long = ahead.rename(columns={id: "unique_id", time: "ds", target[0]: "y"})
            keys = [name for name in ("unique_id", "target", "ds") if name in forecast]
            truth = long[[*keys, "y"]]
            forecast = forecast.merge(truth, how="left", on=keys, validate="1:1")
            forecast.insert(forecast.columns.get_loc("ds") + 1, "cutoff", cutoff)
            forecast.insert(forecast.columns.get_loc("cutoff") + 1, "y", forecast.pop("y"))
            found.append(forecast)
    whole = pd.concat(found, ignore_index=True)
    names = [name for name in ("unique_id", "target") if name in whole]
    order = whole[names].drop_duplicates().reset_index(drop=True).assign(order=lambda x: x.index)
    whole = whole.merge(order, on=names, how="left")
    whole = whole.sort_values(["order", "cutoff", "ds"], ignore_index=True)
    return whole.drop(columns="order")


def assert_as_predicted(forecaster: Forecaster, frame: pd.DataFrame, **arguments: Any) -> None:
    n_windows, step = arguments.pop("n_windows", 3), arguments.pop("step", 4)
    found = forecaster.cross_validate(frame, n_windows, step, **arguments)
    wanted = expected(forecaster, frame, n_windows, step, **arguments)
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-4, check_dtype=False)


def ending_together(frame: pd.DataFrame) -> pd.DataFrame:
    """Shift the series, so that short ones begin late."""
    return frame.assign(
        ds=frame["ds"] + (frame["ds"].max() - frame.groupby("unique_id")["ds"].transform("max"))
    )


def wide(frame: pd.DataFrame) -> pd.DataFrame:
    table = frame.pivot(index="ds", columns="unique_id", values="y")
    return table.rename_axis(index="ds", columns=None).reset_index()


FRAMES = {
    "known series": (lambda: make_forecaster(), make_long({"b": 60, "a": 45})),
    "new and short series": (
        lambda: make_forecaster(),
        make_long({"new": 50, "a": 60, "short": 2 * 4 + H + 1}),
    ),
    "covariates": (
        lambda: make_forecaster(columns=COVARIATES, vocabularies=VOCABULARIES),
        with_covariates(make_long({"new": 50, "a": 60})),
    ),
    "a wide table": (
        lambda: make_forecaster(columns=Columns(None, "ds", ("a", "b"))),
        wide(make_long({"a": 50, "b": 50})),
    ),
    "rows as they stand": (
        lambda: make_forecaster(columns=Columns(None, "ds", ("a", "b")), regular=False),
        wide(make_long({"a": 50, "b": 50})),
    ),
    "joint series": (
        lambda: make_forecaster(channels="joint"),
        make_long({"b": 50, "a": 50}),
    ),
    "joint series that end apart": (
        lambda: make_forecaster(channels="joint"),
        make_long({"b": 50, "a": 47}),
    ),
    "target columns": (
        lambda: make_forecaster(columns=Columns("shop", "ds", ("y", "z")), ids=("7/y", "7/z")),
        make_long({"7": 50, "8": 60}).rename(columns={"unique_id": "shop"}),
    ),
    "joint target columns": (
        lambda: make_forecaster(
            columns=Columns("shop", "ds", ("y", "z")), channels="joint", ids=("y", "z")
        ),
        make_long({"7": 50, "8": 60}).rename(columns={"unique_id": "shop"}),
    ),
    "a transform": (
        lambda: make_forecaster(transform="log1p"),
        make_long({"new": 50, "a": 60}).assign(y=lambda x: x["y"].abs()),
    ),
    "a time zone": (
        lambda: make_forecaster(time_zone="Asia/Tokyo"),
        make_long({"new": 50}).assign(ds=lambda x: x["ds"].dt.tz_localize("Asia/Tokyo")),
    ),
    "step by step": (
        lambda: make_forecaster(decoding="autoregressive"),
        make_long({"new": 50, "a": 60}),
    ),
}


@pytest.mark.parametrize("case", FRAMES)
def test_each_window_is_what_predict_gives_on_the_rows_before(case: str) -> None:
    make, frame = FRAMES[case]
    forecaster = make()
    if "z" in forecaster.config.columns.target:
        frame = frame.assign(z=100 + 3 * frame["y"])
    assert_as_predicted(forecaster, frame)


@pytest.mark.parametrize("horizon", [1, 4, 2 * H + 2])
@pytest.mark.filterwarnings("ignore:horizon=14:UserWarning")
def test_other_horizons_are_those_of_predict(horizon: int) -> None:
    forecaster = make_forecaster(columns=COVARIATES, vocabularies=VOCABULARIES)
    frame = with_covariates(make_long({"new": 60, "a": 70}))
    assert_as_predicted(forecaster, frame, horizon=horizon)


@pytest.mark.parametrize("adaptive", [False, True])
def test_intervals_are_those_of_predict(adaptive: bool) -> None:
    offsets = recognisable(2, levels=len(LEVELS))
    forecaster = make_forecaster(head="quantile", quantiles=LEVELS, conformal=offsets)
    frame = make_long({"new": 80, "a": 70})
    asked = {"level": [90, 50], "quantiles": [0.3], "adaptive": adaptive}
    assert_as_predicted(forecaster, frame, n_windows=2, **asked)
    names = list(forecaster.cross_validate(frame, level=90))
    assert names == [
        *("unique_id", "ds", "cutoff", "y", "tsformer", "tsformer-lo-90", "tsformer-hi-90")
    ]


@given(
    lengths=st.lists(st.integers(H + 1, 50), min_size=1, max_size=4),
    n_windows=st.integers(1, 4),
    step=st.integers(1, 9),
    batch_size=st.integers(1, 5),
)
def test_windows_end_with_each_series_and_come_once(
    lengths: list[int], n_windows: int, step: int, batch_size: int
) -> None:
    frame = make_long({f"s{number}": length for number, length in enumerate(lengths)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = make_forecaster().cross_validate(frame, n_windows, step, batch_size=batch_size)
    wanted = []
    for number, length in enumerate(lengths):
        times = pd.date_range("2024-03-01", periods=length, freq="h")
        for window in reversed(range(n_windows)):
            first = length - H - window * step
            if first > 0:
                wanted += [(f"s{number}", times[first - 1], times[first + h]) for h in range(H)]
    assert list(zip(found["unique_id"], found["cutoff"], found["ds"], strict=True)) == wanted
    joined = found.merge(frame, on=["unique_id", "ds"])
    np.testing.assert_allclose(joined["y_x"], joined["y_y"], rtol=1e-6)


def test_steps_are_a_horizon_unless_told() -> None:
    cutoffs = make_forecaster().cross_validate(make_long({"a": 60}), 3)["cutoff"].unique()
    assert (np.diff(cutoffs) == pd.Timedelta(hours=H)).all()


def test_nothing_after_a_cutoff_moves_its_forecast() -> None:
    forecaster = make_forecaster(columns=COVARIATES, vocabularies=VOCABULARIES)
    frame = with_covariates(make_long({"new": 60, "a": 60}))
    before = forecaster.cross_validate(frame, 2)
    late = frame["ds"] > before["cutoff"].max()
    spiked = frame.assign(y=frame["y"].where(~late, 1e6), wind=frame["wind"].where(~late, 1e6))
    after = forecaster.cross_validate(spiked, 2)
    pd.testing.assert_series_equal(after["tsformer"], before["tsformer"])
    future = frame.assign(price=frame["price"].where(~late, 1e6))
    moved = forecaster.cross_validate(future, 2)
    last = before["cutoff"] == before["cutoff"].max()
    pd.testing.assert_series_equal(moved["tsformer"][~last], before["tsformer"][~last])
    assert (moved["tsformer"][last] != before["tsformer"][last]).all()


def test_missing_truth_stays_missing() -> None:
    frame = make_long({"new": 60})
    frame.loc[[40, 57], "y"] = np.nan
    found = make_forecaster().cross_validate(frame.drop(index=56))
    assert found["y"].isna().tolist() == [False, False, True, True, False, False]
    assert np.isfinite(found["tsformer"]).all()


def test_a_future_covariate_that_the_table_lacks_counts_as_missing() -> None:
    columns = Columns("unique_id", "ds", ("y",), (), ("price",))
    frame = make_long({"a": 60}).assign(price=1.0)  # the mean, which scales to 0
    missing = frame.assign(price=frame["price"].where(frame.index < 56))
    forecaster = make_forecaster(columns=columns)
    pd.testing.assert_frame_equal(
        forecaster.cross_validate(missing), forecaster.cross_validate(frame)
    )


def test_windows_without_a_value_before_them_are_left_out() -> None:
    frame = make_long({"a": 60, "b": 3 + H, "c": 2})
    frame.loc[frame["unique_id"].eq("b") & frame.groupby("unique_id").cumcount().lt(2), "y"] = None
    with pytest.warns(UserWarning, match=r"series 'b', 'c': too short for 5 of 9 windows") as told:
        found = make_forecaster().cross_validate(frame, 3, 1)
    assert told[0].filename == __file__
    assert found.groupby("unique_id")["cutoff"].nunique().to_dict() == {"a": 3, "b": 1}
    with pytest.raises(
        DataError, match="value followed by 6 steps, and the longest series has 6 rows"
    ):
        make_forecaster().cross_validate(make_long({"b": H, "c": 2}), 3, 1)


def test_stamps_are_the_tables_where_rows_stand_as_they_are() -> None:
    columns = Columns(None, "ds", ("a", "b"))
    forecaster = make_forecaster(columns=columns, regular=False)
    table = wide(make_long({"a": 50, "b": 50}))
    table["ds"] += pd.to_timedelta(table.index**2, "min")
    found = forecaster.cross_validate(table)
    assert found["ds"].tolist() == table["ds"].tolist()[-H:] * 2
    assert (found["cutoff"] == table["ds"].iloc[-H - 1]).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_windows": 0}, "n_windows=0: give a whole number from 1 up"),
        ({"n_windows": True}, "n_windows=True: give a whole number"),
        ({"step": 0}, "step=0: give a whole number from 1 up"),
        ({"step": 1.5}, r"step=1\.5: give a whole number"),
        ({"level": 80}, "only point forecasts"),
        ({"adaptive": True}, "conformal=true"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"baselines": None}, "baselines=None: give a name, or a list of names"),
        ({"baselines": [3]}, r"baselines=\[3\]: give a name"),
        ({"since": 20240101}, "since: 20240101 is not a local time"),
        ({"refit": 1}, "refit=1: give True, or the arguments of fine_tune by name"),
        ({"refit": {"epochs": 3}}, "refit: 'epochs' is not an argument of fine_tune"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_forecaster().cross_validate(make_long({"a": 60}), **arguments)


def test_a_table_without_the_columns_is_refused() -> None:
    with pytest.raises(DataError, match="the table needs the columns"):
        make_forecaster().cross_validate(make_long({"a": 60}).drop(columns="y"))


@pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning")
def test_refitting_is_fine_tuning_on_the_rows_before_each_cutoff() -> None:
    forecaster = make_forecaster(
        head="quantile", quantiles=LEVELS, conformal=recognisable(2, levels=len(LEVELS))
    )
    before = {name: x.clone() for name, x in forecaster.network.state_dict().items()}
    frame = make_long({"new": 3 * L, "a": 3 * L + 7})
    found = forecaster.cross_validate(frame, 2, refit={"max_steps": 3, "lr": 0.01}, level=80)
    # Series end at different times, and still none is forecast by what others show later.
    for cutoff, rows in found.groupby("cutoff"):
        history = frame[frame["ds"] <= cutoff]
        tuned = forecaster.fine_tune(history, max_steps=3, lr=0.01)
        forecast = tuned.predict(history, level=80)
        names = list(forecast)
        forecast = rows[["unique_id", "ds"]].merge(forecast, on=["unique_id", "ds"])
        assert len(forecast) == H
        pd.testing.assert_frame_equal(rows[names].reset_index(drop=True), forecast, rtol=1e-4)
    assert found["cutoff"].nunique() == 4
    plain = forecaster.cross_validate(frame, 2)
    assert not np.allclose(plain["tsformer"], found["tsformer"], rtol=1e-3)
    assert all(before[name].equal(x) for name, x in forecaster.network.state_dict().items())


@pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning")
def test_series_that_end_together_share_their_trainings(monkeypatch) -> None:
    trained_on = []

    def fine_tune(forecaster: Forecaster, history: History, **arguments: Any) -> Forecaster:
        trained_on.append((len(history.store.grid), history.store.lengths.tolist()))
        return forecaster

    monkeypatch.setattr("tsformer.trainer.fine_tuning.fine_tune", fine_tune)
    make_forecaster().cross_validate(make_long({"b": 60, "a": 60}), 2, refit=True)
    ends = [60 - 2 * H, 60 - H]
    assert trained_on == [(end, [end, end]) for end in ends]


@pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning")
def test_too_few_rows_to_refit_to_are_told_with_their_cutoff() -> None:
    told = r"rows up to 2024-03-01 02:00:00: the table has 3 steps\. .*series that end early"
    with pytest.raises(DataError, match=told):
        make_forecaster().cross_validate(make_long({"a": 60, "early": H + 3}), refit=True)


@pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning")
@pytest.mark.parametrize("case", FRAMES)
def test_any_table_can_be_refitted_to(case: str) -> None:
    make, frame = FRAMES[case]
    forecaster = make()
    if "z" in forecaster.config.columns.target:
        frame = frame.assign(z=100 + 3 * frame["y"])
    if "short" in case:  # whose own cutoffs leave too few rows to train on
        frame = ending_together(frame)
    plain = forecaster.cross_validate(frame, 2)
    found = forecaster.cross_validate(frame, 2, refit={"max_steps": 1, "lr": 0.01})
    pd.testing.assert_frame_equal(found.drop(columns="tsformer"), plain.drop(columns="tsformer"))
    assert np.isfinite(found["tsformer"]).all()


@pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning")
def test_series_that_begin_after_a_cutoff_do_not_hinder_a_refit() -> None:
    frame = ending_together(make_long({"a": 60, "late": H + 1}))
    with pytest.warns(UserWarning, match="series 'late': too short for 1 of 4 windows"):
        found = make_forecaster().cross_validate(frame, 2, refit={"max_steps": 1})
    assert found.groupby("unique_id")["cutoff"].nunique().to_dict() == {"a": 2, "late": 1}


def test_more_windows_than_there_are_rows_and_steps_beyond_memory_are_no_trouble() -> None:
    forecaster, frame = make_forecaster(), make_long({"a": 40})
    with pytest.warns(UserWarning, match="too short for"):
        found = forecaster.cross_validate(frame, n_windows=10**9, step=1)
    assert found["cutoff"].nunique() == 40 - forecaster.horizon
    with pytest.raises(ConfigError, match="at most 1,000,000 steps"):
        forecaster.cross_validate(frame, n_windows=5, step=2**62)
    with pytest.raises(ConfigError, match="at most 1,000,000 steps"):
        forecaster.predict(frame, horizon=10**9)
