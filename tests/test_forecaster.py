"""Forecaster: tables in, forecasts out; folders written whole, read with suspicion."""

import json
import pickle
import warnings
from pathlib import Path
from random import Random

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.forecasters import LEVELS, H, L, make_forecaster, make_long, recognisable
from tsformer.data.columns import Columns
from tsformer.errors import ConfigError, DataError, ModelFolderError
from tsformer.forecaster import Forecaster
from tsformer.model.config import (
    network_settings,
)
from tsformer.model.conformal import shifted, step_size, track
from tsformer.nn import ForecastNetwork
from tsformer.nn.heads import at_levels


def test_a_forecaster_says_what_it_forecasts() -> None:
    told = repr(make_forecaster())
    assert told == f"Forecaster(y, freq='h', context_length={L}, horizon={H}, head='point')"


def test_ids_that_were_read_as_numbers_are_told() -> None:
    forecaster = make_forecaster(ids=("007", "a"))
    table = make_long({"007": 30})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster.predict(table)
        forecaster.predict(make_long({"8": 30}))
    with pytest.warns(UserWarning, match="series '7' .* which knows '007'.* ids as text"):
        forecaster.predict(table.assign(unique_id=7))


def test_forecasts_follow_each_series_in_order_of_appearance() -> None:
    frame = make_long({"b": 40, "new": 31, "a": 24})
    forecast = make_forecaster().predict(frame)
    assert list(forecast.columns) == ["unique_id", "ds", "tsformer"]
    assert forecast["unique_id"].tolist() == ["b"] * H + ["new"] * H + ["a"] * H
    for id, rows in forecast.groupby("unique_id"):
        last = frame.loc[frame["unique_id"] == id, "ds"].max()
        assert rows["ds"].tolist() == list(pd.date_range(last, periods=H + 1, freq="h")[1:])
    assert np.isfinite(forecast["tsformer"]).all()


def test_the_network_sees_the_scaled_context_and_its_output_is_scaled_back() -> None:
    forecaster = make_forecaster(columns=Columns("unique_id", "ds", ("y",), ("p",), ("f",)))
    frame = make_long({"b": 40}).assign(p=np.arange(40.0), f=np.arange(40.0) ** 2)
    times = pd.date_range(frame["ds"].max(), periods=H + 1, freq="h")[1:]
    future = pd.DataFrame({"unique_id": "b", "ds": times, "f": np.arange(H) * 7.0})

    from tsformer.data.calendar import calendar_features

    past = frame.tail(L)
    context = torch.tensor((past["y"].to_numpy() - 6.0) / 2.0, dtype=torch.float32)
    covariates = (past[["f", "p"]].to_numpy() - 1.0) / 3.0
    clock = calendar_features(pd.DatetimeIndex([*past["ds"], *times]), "h")
    past_features = np.concatenate([clock[:L], covariates], axis=1)
    future_features = np.concatenate([clock[L:], (future[["f"]].to_numpy() - 1.0) / 3.0], axis=1)
    with torch.inference_mode():
        expected = forecaster.network(
            context[None, :, None],
            torch.ones(1, L, 1, dtype=torch.bool),
            torch.tensor(past_features, dtype=torch.float32)[None],
            torch.tensor(future_features, dtype=torch.float32)[None],
            torch.empty(1, 0),
        )
    forecast = forecaster.predict(frame, future)["tsformer"]
    np.testing.assert_allclose(forecast, expected[0, :, 0, 0] * 2.0 + 6.0, rtol=1e-5)


def test_rows_before_the_context_and_the_order_of_rows_change_nothing() -> None:
    forecaster = make_forecaster()
    frame = make_long({"a": 60, "b": 50})
    forecast = forecaster.predict(frame)
    tail = frame.groupby("unique_id").tail(L)
    pd.testing.assert_frame_equal(forecaster.predict(tail), forecast)
    shuffled = pd.concat([frame.iloc[[0]], frame.iloc[1:].sample(frac=1, random_state=1)])
    pd.testing.assert_frame_equal(forecaster.predict(shuffled), forecast)
    pd.testing.assert_frame_equal(forecaster.predict(frame, batch_size=1), forecast)


def test_a_series_alone_and_among_others_is_forecast_alike() -> None:
    forecaster = make_forecaster()
    frame = make_long({"a": 60, "b": 10, "c": 35})
    together = forecaster.predict(frame)
    for id in "abc":
        alone = forecaster.predict(frame[frame["unique_id"] == id])
        expected = together[together["unique_id"] == id]
        np.testing.assert_allclose(alone["tsformer"], expected["tsformer"], rtol=1e-5)


@given(
    lengths=st.lists(st.integers(1, 3 * L), min_size=1, max_size=6),
    missing=st.integers(0, 5),
    batch_size=st.integers(1, 7),
    random=st.randoms(use_true_random=False),
)
def test_series_in_any_order_and_of_any_length_are_forecast_once(
    lengths: list[int], missing: int, batch_size: int, random: Random
) -> None:
    """Also where the last values of a history are missing."""
    forecaster = make_forecaster(ids=("s1", "s3"))
    ids = [f"s{number}" for number in range(len(lengths))]
    frame = make_long(dict(zip(ids, lengths, strict=True)))
    from_end = frame.groupby("unique_id").cumcount(ascending=False)
    is_first = ~frame["unique_id"].duplicated()
    frame["y"] = frame["y"].where(is_first | (from_end >= missing))
    forecast = forecaster.predict(frame)
    assert forecast["unique_id"].tolist() == [id for id in ids for _ in range(H)]
    assert np.isfinite(forecast["tsformer"]).all()
    last = frame.groupby("unique_id")["ds"].max()[forecast["unique_id"]].to_numpy()
    steps = np.tile(np.arange(1, H + 1), len(ids))
    assert (forecast["ds"] == last + pd.to_timedelta(steps, "h")).all()
    random.shuffle(ids)
    shuffled = pd.concat([frame[frame["unique_id"] == id] for id in ids])
    parts = [forecast[forecast["unique_id"] == id] for id in ids]
    pd.testing.assert_frame_equal(
        forecaster.predict(shuffled, batch_size=batch_size),
        pd.concat(parts, ignore_index=True),
        rtol=1e-4,
    )


def test_gaps_and_missing_values_are_the_same() -> None:
    forecaster = make_forecaster()
    frame = make_long({"a": 40})
    holes = [20, 25, 26, 38]
    missing = frame.copy()
    missing.loc[holes, "y"] = np.nan
    pd.testing.assert_frame_equal(
        forecaster.predict(frame.drop(index=holes)), forecaster.predict(missing)
    )


def test_a_missing_last_value_does_not_move_the_horizon() -> None:
    frame = make_long({"a": 40})
    frame.loc[39, "y"] = np.nan
    forecast = make_forecaster().predict(frame)
    assert forecast["ds"].iloc[0] == frame["ds"].iloc[-1] + pd.Timedelta(hours=1)
    assert np.isfinite(forecast["tsformer"]).all()


@pytest.mark.parametrize("ids", [[3, 1], ["007", "7"], [1.5, 0.5]])
def test_ids_keep_their_type_and_value(ids: list[object]) -> None:
    frame = make_long({"x": 30, "y": 30})
    frame["unique_id"] = frame["unique_id"].map(dict(zip("xy", ids, strict=True)))
    forecast = make_forecaster().predict(frame)
    assert forecast["unique_id"].drop_duplicates().tolist() == ids
    assert forecast["unique_id"].dtype == frame["unique_id"].dtype


SOURCES = {
    "categories": lambda frame, _: frame.astype({"unique_id": "category"}),
    "arrow types": lambda frame, _: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": lambda frame, _: polars.from_pandas(frame),
    "polars, lazy": lambda frame, _: polars.from_pandas(frame).lazy(),
    "pyarrow": lambda frame, _: pa.Table.from_pandas(frame),
    "csv": lambda frame, path: frame.to_csv(path, index=False) or path,
    "text": lambda frame, path: frame.to_csv(path, index=False) or str(path),
    "folder": lambda frame, path: frame.to_parquet(path, partition_cols=["unique_id"]) or path,
}


@pytest.mark.parametrize("source", SOURCES)
def test_tables_from_anywhere_are_forecast_alike(source: str, tmp_path: Path) -> None:
    forecaster = make_forecaster(columns=Columns("unique_id", "ds", ("y",), (), ("price",)))
    frame = make_long({"007": 30, "a": 30}).assign(price=1.5)
    times = pd.date_range("2024-03-02 06:00", periods=H, freq="h")
    future = pd.DataFrame({"unique_id": ["007"] * H + ["a"] * H, "ds": [*times, *times]})
    future["price"] = np.arange(2.0 * H)
    expected = forecaster.predict(frame, future)
    forecast = forecaster.predict(
        SOURCES[source](frame, tmp_path / "history.csv"),
        SOURCES[source](future, tmp_path / "future.csv"),
    )
    pd.testing.assert_frame_equal(
        forecast, expected, check_dtype=False, check_categorical=False, rtol=1e-6
    )


def test_the_table_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    forecaster = make_forecaster(columns=Columns("unique_id", "ds", ("y",), (), ("price",)))
    frame = make_long({"a": 30}).assign(price=1.5)
    path = tmp_path / "x.csv"
    frame.assign(y="x").to_csv(path, index=False)
    with pytest.raises(DataError, match=r"x\.csv: series 'a', column 'y', row 0"):
        forecaster.predict(path)
    with pytest.raises(DataError, match=r"x\.csv: the table needs the columns"):
        make_forecaster(columns=Columns(None, "time", ("a",), ("b",))).predict(path)
    with pytest.raises(DataError, match="the table has no rows"):
        forecaster.predict(frame[:0])
    with pytest.raises(DataError, match=r"builtins\.dict is not a table"):
        forecaster.predict({"y": [1]})
    with pytest.raises(DataError, match=r"future: .*none\.csv: there is no such file"):
        forecaster.predict(frame, tmp_path / "none.csv")


def test_a_wide_table_and_its_long_form_are_forecast_alike() -> None:
    wide = make_forecaster(columns=Columns(None, "date", ("a", "b")))
    frame = make_long({"a": 30, "b": 30})
    table = frame.pivot(index="ds", columns="unique_id", values="y")
    table = table.rename_axis(index="date", columns=None).reset_index()
    pd.testing.assert_frame_equal(wide.predict(table), wide.predict(frame))


def test_joint_channels_come_out_in_the_order_of_the_table() -> None:
    forecaster = make_forecaster(channels="joint")
    frame = make_long({"a": 30, "b": 30})
    forecast = forecaster.predict(frame)
    assert forecast["unique_id"].tolist() == ["a"] * H + ["b"] * H
    swapped = forecaster.predict(frame.sort_values("unique_id", ascending=False, kind="stable"))
    pd.testing.assert_frame_equal(
        swapped.sort_values(["unique_id", "ds"]).reset_index(drop=True), forecast
    )
    with pytest.raises(DataError, match=r"exactly these, but the table has \['a'\]"):
        forecaster.predict(frame[frame["unique_id"] == "a"])


@pytest.mark.parametrize(
    ("freq", "first"), [("MS", "2026-07-01"), ("D", "2024-03-29"), ("W-FRI", "2024-09-13")]
)
def test_horizons_follow_the_calendar(freq: str, first: str) -> None:
    forecast = make_forecaster(freq=freq).predict(make_long({"a": 28}, freq=freq))
    assert forecast["ds"].iloc[0] == pd.Timestamp(first)


def test_zoned_times_stay_in_their_zone() -> None:
    frame = make_long({"a": 30})
    frame["ds"] = frame["ds"].dt.tz_localize("Asia/Tokyo")
    forecast = make_forecaster(time_zone="Asia/Tokyo").predict(frame)
    assert str(forecast["ds"].dt.tz) == "Asia/Tokyo"
    assert forecast["ds"].iloc[0] == frame["ds"].iloc[-1] + pd.Timedelta(hours=1)


def test_what_is_missing_is_named() -> None:
    forecaster = make_forecaster(columns=Columns("unique_id", "ds", ("y",), (), ("price",)))
    frame = make_long({"a": 30, "b": 30}).assign(price=1.0)
    with pytest.raises(DataError, match=r"needs the columns \['unique_id', 'ds', 'y', 'price'\]"):
        forecaster.predict(frame.drop(columns="price"))
    with pytest.raises(DataError, match=r"future covariates \['price'\].*6 steps"):
        forecaster.predict(frame)
    times = pd.date_range("2024-03-02 06:00", periods=H, freq="h")
    future = pd.DataFrame({"unique_id": "a", "ds": times, "price": 2.0})
    with pytest.raises(DataError, match="series 'b' at 2024-03-02 06:00:00 to 2024-03-02 11:00:00"):
        forecaster.predict(frame, future)
    both = pd.concat([future, future.assign(unique_id="b")])
    assert len(forecaster.predict(frame, both)) == 2 * H


def test_a_saved_model_forecasts_the_same(tmp_path: Path) -> None:
    forecaster = make_forecaster()
    frame = make_long({"a": 40, "b": 12})
    forecaster.save(tmp_path / "deep" / "model")
    assert sorted(p.name for p in (tmp_path / "deep").iterdir()) == ["model"]
    assert sorted(p.name for p in (tmp_path / "deep" / "model").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    loaded = Forecaster.load(tmp_path / "deep" / "model")
    pd.testing.assert_frame_equal(loaded.predict(frame), forecaster.predict(frame))
    loaded.save(tmp_path / "deep" / "model")  # over itself
    assert Forecaster.load(tmp_path / "deep" / "model").config == forecaster.config


def test_other_peoples_folders_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("irreplaceable")
    with pytest.raises(ModelFolderError, match="not a model folder; not overwritten"):
        make_forecaster().save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "irreplaceable"


def damage(folder: Path, how: str) -> None:
    config, weights = folder / "config.json", folder / "model.safetensors"
    values = json.loads(config.read_text())
    match how:
        case "no weights":
            weights.unlink()
        case "no json":
            config.write_text("{")
        case "binary json":
            config.write_bytes(b"\xff\xfe\x00")
        case "json list":
            config.write_text("[]")
        case "other schema":
            config.write_text(json.dumps(values | {"schema_version": 99}))
        case "code to run":
            config.write_text(json.dumps(values | {"_target_": "os.system"}))
        case "wrong type":
            values["model"]["d_model"] = "wide"
            config.write_text(json.dumps(values))
        case "other shape":
            values["model"]["d_model"] = 16
            config.write_text(json.dumps(values))
        case "absurd sizes":
            values["model"] |= {"d_model": 2**20, "d_ff": 2**20, "num_layers": 1000}
            config.write_text(json.dumps(values))
        case "absurd horizon":
            config.write_text(json.dumps(values | {"horizon": 10**12}))
        case "deep json":
            config.write_text("[" * 100_000)
        case "double ids":
            values["scaler"]["ids"] = ["a", "a"]
            config.write_text(json.dumps(values))
        case "no scale":
            values["scaler"]["std"][0] = 0.0
            config.write_text(json.dumps(values))
        case "short scaler":
            values["scaler"]["mean"].pop()
            config.write_text(json.dumps(values))
        case "short covariates":
            values["covariates"]["mean"] = [1.0]
            config.write_text(json.dumps(values))
        case "strange vocabulary":
            values["covariates"]["vocabularies"] = {"x": ["a"]}
            config.write_text(json.dumps(values))
        case "no target":
            values["columns"]["target"] = []
            config.write_text(json.dumps(values))
        case "double target":
            values["columns"]["target"] = ["y", "y"]
            config.write_text(json.dumps(values))
        case "nameless column":
            values["columns"]["time"] = ""
            config.write_text(json.dumps(values))
        case "strange category":
            values["columns"]["categorical"] = ["z"]
            config.write_text(json.dumps(values))
        case "channels of independent series":
            config.write_text(json.dumps(values | {"channels": ["a", "b"]}))
        case "irregular long table":
            config.write_text(json.dumps(values | {"regular": False}))
        case "unknown holidays":
            config.write_text(json.dumps(values | {"holidays": "XX"}))
        case "tiny scale":
            values["scaler"]["std"][0] = 1e-320
            config.write_text(json.dumps(values))
        case "zone that is a call":
            config.write_text(json.dumps(values | {"time_zone": "tzlocal()"}))
        case "integer weights":
            state = {name: x.long() for name, x in load_file(weights).items()}
            save_file(state, weights)
        case "no step":
            config.write_text(json.dumps(values | {"freq": "0h"}))
        case "odd zone":
            config.write_text(json.dumps(values | {"time_zone": "../../etc/passwd"}))
        case "nan weights":
            state = load_file(weights)
            state["skip.bias"][0] = float("nan")
            save_file(state, weights)
        case "offsets of other sizes":
            state = load_file(weights)
            state["conformal.offsets"] = state["conformal.offsets"][:, :-1].contiguous()
            save_file(state, weights)
        case "nan offsets":
            state = load_file(weights)
            state["conformal.offsets"][-1, -1, -1, -1] = float("nan")
            save_file(state, weights)
        case "no offsets":
            state = load_file(weights)
            del state["conformal.offsets"]
            save_file(state, weights)
        case "offsets of no use":
            config.write_text(json.dumps(values | {"conformal": False}))
        case "offsets without levels":
            values["model"]["quantiles"] = [0.5]
            config.write_text(json.dumps(values))
        case "level above 1":
            values["model"]["quantiles"] = [0.1, 1.5]
            config.write_text(json.dumps(values))
        case "falling levels":
            values["model"]["quantiles"] = [0.9, 0.1]
            config.write_text(json.dumps(values))
        case "other head":
            values["model"]["head"] = "student_t"
            config.write_text(json.dumps(values))
        case "cut weights":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "pickle":
            torch.save({"x": torch.ones(1)}, weights)


@pytest.mark.parametrize(
    "how",
    [
        "no weights",
        "no json",
        "binary json",
        "json list",
        "other schema",
        "code to run",
        "wrong type",
        "other shape",
        "absurd sizes",
        "absurd horizon",
        "deep json",
        "double ids",
        "no scale",
        "short scaler",
        "short covariates",
        "strange vocabulary",
        "no target",
        "double target",
        "nameless column",
        "strange category",
        "channels of independent series",
        "irregular long table",
        "unknown holidays",
        "tiny scale",
        "zone that is a call",
        "integer weights",
        "no step",
        "odd zone",
        "nan weights",
        "offsets of other sizes",
        "nan offsets",
        "no offsets",
        "offsets of no use",
        "offsets without levels",
        "level above 1",
        "falling levels",
        "other head",
        "cut weights",
        "pickle",
    ],
)
def test_a_damaged_folder_is_refused(how: str, tmp_path: Path) -> None:
    conformal = np.zeros((3, H, 1, 2))
    make_forecaster(quantiles=(0.1, 0.9), conformal=conformal).save(tmp_path / "model")
    Forecaster.load(tmp_path / "model")
    damage(tmp_path / "model", how)
    with pytest.raises(ModelFolderError, match="model"):
        Forecaster.load(tmp_path / "model")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError, match=r"nowhere.*no config\.json"):
        Forecaster.load(tmp_path / "nowhere")


def test_a_pickle_in_place_of_the_weights_is_never_run(tmp_path: Path) -> None:
    class Payload:
        def __reduce__(self) -> tuple[object, tuple[Path]]:
            return Path.touch, (tmp_path / "executed",)

    make_forecaster().save(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ModelFolderError, match="damaged"):
        Forecaster.load(tmp_path / "model")
    assert not (tmp_path / "executed").exists()
    pickle.loads(pickle.dumps(Payload()))
    assert (tmp_path / "executed").exists()  # the payload works


def test_a_series_without_a_value_is_refused_by_name() -> None:
    frame = make_long({"a": 30, "b": 30})
    frame.loc[frame["unique_id"] == "b", "y"] = np.nan
    with pytest.raises(DataError, match=r"series 'b': no observed value, so .* \(1 of 2 series\)"):
        make_forecaster().predict(frame)


def test_values_beyond_float32_are_refused_by_name() -> None:
    frame = make_long({"a": 30, "b": 30})
    frame.loc[frame["unique_id"] == "b", "y"] *= 1e300
    with pytest.raises(DataError, match=r"series 'b'.*too large"):
        make_forecaster().predict(frame)


@pytest.mark.parametrize("id", ["a", "new"])
@pytest.mark.parametrize("adaptive", [False, True])
def test_large_values_are_forecast_or_refused_without_a_warning(id: str, adaptive: bool) -> None:
    forecaster = make_forecaster(quantiles=(0.1, 0.5, 0.9), conformal=recognisable(2))
    frame = make_long({id: 150}).assign(y=lambda x: 1e30 * x["y"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if id == "new":  # which is scaled by its own rows
            forecast = forecaster.predict(frame, level=80, adaptive=adaptive)
            assert (forecast["tsformer"].abs() > 1e29).any()
            return
        with pytest.raises(DataError, match=r"series 'a'.*too large"):
            forecaster.predict(frame, level=80, adaptive=adaptive)


def test_a_folder_with_more_than_a_model_is_not_overwritten(tmp_path: Path) -> None:
    make_forecaster().save(tmp_path / "model")
    (tmp_path / "model" / "notes.txt").write_text("irreplaceable")
    with pytest.raises(ModelFolderError, match="not overwritten"):
        make_forecaster().save(tmp_path / "model")
    assert (tmp_path / "model" / "notes.txt").exists()


# What tables may hold


def test_a_transform_is_undone_in_the_forecast() -> None:
    plain, logged = make_forecaster(), make_forecaster(transform="log1p")
    frame = make_long({"a": 40})
    frame["y"] = np.abs(frame["y"])
    in_logs = plain.predict(frame.assign(y=np.log1p(frame["y"])))
    forecast = logged.predict(frame)["tsformer"]
    np.testing.assert_allclose(forecast, np.expm1(in_logs["tsformer"]), rtol=1e-5)
    with pytest.raises(DataError, match=r"series 'a', 2024-03-01 07:00:00: -1 has no log1p"):
        logged.predict(frame.assign(y=frame["y"].where(frame.index != 7, -1.0)))


def test_a_category_not_seen_in_training_counts_as_a_missing_one() -> None:
    columns = Columns("unique_id", "ds", ("y",), (), ("promo",), ("region",), ("promo", "region"))
    forecaster = make_forecaster(
        columns=columns, vocabularies={"promo": ["flyer", "radio"], "region": ["north"]}
    )
    frame = make_long({"a": 30}).assign(promo="flyer", region="north")
    times = pd.date_range(frame["ds"].max(), periods=H + 1, freq="h")[1:]
    future = pd.DataFrame({"unique_id": "a", "ds": times, "promo": "radio"})

    def forecast(**changes: str | None) -> np.ndarray:
        history = frame.assign(**{k: v for k, v in changes.items() if k != "ahead"})
        ahead = future.assign(promo=changes.get("ahead", "radio"))
        return forecaster.predict(history, ahead)["tsformer"].to_numpy()

    assert not np.allclose(forecast(), forecast(ahead="flyer"))
    assert not np.allclose(forecast(), forecast(promo="radio"))
    assert not np.allclose(forecast(), forecast(region="south"))
    np.testing.assert_array_equal(forecast(region="south"), forecast(region=None))
    np.testing.assert_array_equal(forecast(promo="tv"), forecast(promo=None))
    np.testing.assert_array_equal(forecast(ahead="tv"), forecast(ahead="web"))


@pytest.mark.parametrize("channels", ["independent", "joint"])
def test_target_columns_are_told_apart(channels: str) -> None:
    columns = Columns("shop", "ds", ("units", "revenue"))
    ids = ("units", "revenue") if channels == "joint" else ("7/units", "7/revenue")
    forecaster = make_forecaster(columns=columns, channels=channels, ids=ids)
    frame = make_long({"7": 30, "8": 26}).rename(columns={"unique_id": "shop", "y": "units"})
    frame = frame.astype({"shop": int}).assign(revenue=lambda x: 100 * x["units"])
    forecast = forecaster.predict(frame)
    assert list(forecast) == ["unique_id", "target", "ds", "tsformer"]
    assert forecast["unique_id"].tolist() == [7] * 2 * H + [8] * 2 * H
    assert forecast["target"].tolist() == (["units"] * H + ["revenue"] * H) * 2
    assert forecast["ds"].is_monotonic_increasing is False
    for (shop, _), rows in forecast.groupby(["unique_id", "target"]):
        last = frame.loc[frame["shop"] == shop, "ds"].max()
        assert rows["ds"].tolist() == list(pd.date_range(last, periods=H + 1, freq="h")[1:])


def test_joint_series_that_end_apart_are_forecast_from_the_last_end() -> None:
    frame = make_long({"a": 30, "b": 26})
    forecast = make_forecaster(channels="joint").predict(frame)
    assert set(forecast.groupby("unique_id")["ds"].min()) == {pd.Timestamp("2024-03-02 06:00")}


def test_duplicate_rows_are_taken_as_in_training() -> None:
    forecaster = make_forecaster()
    forecaster.config = forecaster.config.model_copy(update={"duplicates": "mean"})
    frame = make_long({"a": 30})
    around = pd.concat([frame.assign(y=frame["y"] - 1), frame.assign(y=frame["y"] + 1)])
    np.testing.assert_allclose(
        forecaster.predict(around)["tsformer"], forecaster.predict(frame)["tsformer"], rtol=1e-5
    )


def test_a_batch_has_a_series_at_least() -> None:
    with pytest.raises(ConfigError, match="batch_size=0"):
        make_forecaster().predict(make_long({"a": 30}), batch_size=0)


def test_a_folder_from_before_distributions_is_read(tmp_path: Path) -> None:
    forecaster = make_forecaster()
    forecaster.save(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    values = json.loads(config.read_text())
    del values["conformal"], values["model"]["head"], values["model"]["quantiles"]
    values["model"]["linear_skip"] = True
    config.write_text(json.dumps(values))
    loaded = Forecaster.load(tmp_path / "model")
    assert not loaded.is_probabilistic
    frame = make_long({"a": 40})
    pd.testing.assert_frame_equal(loaded.predict(frame), forecaster.predict(frame))


# Distributions

HEADS = ("quantile", "normal", "student_t")
each_head = pytest.mark.parametrize("head", HEADS)


def make_probabilistic(head: str = "quantile", **settings) -> Forecaster:
    return make_forecaster(head=head, quantiles=LEVELS, **settings)


def context_of(values: pd.Series, stamps: pd.Series, steps: int = H) -> list[torch.Tensor]:
    """Return the network's inputs, given the last L scaled values of an hourly series."""
    from tsformer.data.calendar import calendar_features

    times = pd.date_range(stamps.iloc[-L], periods=L + steps, freq="h")
    clock = torch.tensor(calendar_features(times, "h"), dtype=torch.float32)[None]
    context = torch.tensor(values.to_numpy()[-L:], dtype=torch.float32)[None, :, None]
    observed = torch.ones_like(context, dtype=torch.bool)
    return [context, observed, clock[:, :L], clock[:, L:], torch.empty(1, 0)]


@each_head
def test_columns_tell_level_quantile_and_path_in_the_order_asked_for(head: str) -> None:
    forecaster = make_probabilistic(head)
    frame = make_long({"b": 40, "a": 30})
    forecast = forecaster.predict(frame, level=[80, 97.5], quantiles=[0.5, 0.1, 0.9], num_samples=2)
    names = ["lo-80", "hi-80", "lo-97.5", "hi-97.5", "q-0.5", "q-0.1", "q-0.9"]
    names += ["sample-1", "sample-2"]
    expected = ["unique_id", "ds", "tsformer", *(f"tsformer-{name}" for name in names)]
    assert list(forecast) == expected
    assert len(forecast) == 2 * H
    assert (forecast["tsformer-lo-97.5"] < forecast["tsformer-lo-80"]).all()
    assert (forecast["tsformer-lo-80"] < forecast["tsformer-q-0.5"]).all()
    assert (forecast["tsformer-q-0.5"] < forecast["tsformer-hi-80"]).all()
    assert (forecast["tsformer-hi-80"] < forecast["tsformer-hi-97.5"]).all()
    for end, level in (("lo", "0.1"), ("hi", "0.9")):
        quantile = forecast[f"tsformer-q-{level}"]
        pd.testing.assert_series_equal(forecast[f"tsformer-{end}-80"], quantile, check_names=False)
    median = forecast["tsformer-q-0.5"]
    np.testing.assert_allclose(forecast["tsformer"], median, rtol=1e-6)
    assert (forecast["tsformer-sample-1"] != forecast["tsformer-sample-2"]).all()
    one = forecaster.predict(frame, level=80, quantiles=0.1)
    pd.testing.assert_frame_equal(one, forecast[list(one)])


@each_head
@pytest.mark.parametrize("transform", ["none", "log1p"])
def test_quantiles_are_the_networks_in_units_of_the_table(head: str, transform: str) -> None:
    forecaster = make_probabilistic(head, transform=transform)
    frame = make_long({"b": 40}).assign(y=lambda x: x["y"].abs())
    forward, backward = {"none": (lambda x: x,) * 2, "log1p": (np.log1p, np.expm1)}[transform]
    with torch.inference_mode():
        parameters = forecaster.network(*context_of((forward(frame["y"]) - 6) / 2, frame["ds"]))
        wanted = (0.02, 0.25, 0.6)
        scaled = forecaster.network.head.quantiles(parameters, wanted)[0, :, 0].double()
    expected = backward(scaled.numpy() * 2 + 6)
    forecast = forecaster.predict(frame, quantiles=wanted)
    names = [f"tsformer-q-{level}" for level in wanted]
    np.testing.assert_allclose(forecast[names], expected, rtol=1e-4)


def test_paths_are_drawn_from_the_quantiles_of_each_step() -> None:
    forecaster, count = make_probabilistic("normal"), 2000
    frame = make_long({"a": 40, "b": 30})
    forecast = forecaster.predict(frame, quantiles=LEVELS, num_samples=count)
    paths = forecast.filter(like="sample").to_numpy()
    assert paths.shape == (2 * H, count)
    for level in LEVELS:
        below = paths <= forecast[[f"tsformer-q-{level}"]].to_numpy()
        slack = 5 * (level * (1 - level) / count) ** 0.5
        assert (abs(below.mean(axis=1) - level) < slack).all()


@pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])
def test_the_seed_alone_decides_what_is_drawn(decoding: str) -> None:
    forecaster, frame = make_probabilistic("normal", decoding=decoding), make_long({"a": 40})
    state = torch.get_rng_state()
    forecast = forecaster.predict(frame, level=80, num_samples=3, seed=7)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    again = forecaster.predict(frame, level=80, num_samples=3, seed=7)
    pd.testing.assert_frame_equal(again, forecast)
    other = forecaster.predict(frame, level=80, num_samples=3, seed=8)
    assert (other["tsformer-sample-1"] != forecast["tsformer-sample-1"]).all()
    pd.testing.assert_series_equal(other["tsformer"], forecast["tsformer"])
    drawn = decoding == "autoregressive"  # its quantiles are those of paths
    assert (other["tsformer-lo-80"] != forecast["tsformer-lo-80"]).all() == drawn


@each_head
def test_the_order_of_series_changes_no_quantile(head: str) -> None:
    forecaster = make_probabilistic(head)
    frame = make_long({"a": 40, "b": 30, "c": 12})
    swapped = pd.concat([frame[frame["unique_id"] == id] for id in "cab"], ignore_index=True)
    forecast = forecaster.predict(frame, level=[50, 90])
    other = forecaster.predict(swapped, level=[50, 90], batch_size=2)
    other = other.sort_values(["unique_id", "ds"], ignore_index=True)
    pd.testing.assert_frame_equal(other, forecast, rtol=1e-5)


def test_a_head_of_counts_gives_counts_and_takes_no_other() -> None:
    forecaster = make_forecaster(head="negative_binomial", quantiles=LEVELS, ids=("x",))
    scaler = forecaster.config.scaler.model_copy(
        update={"per": "none", "mean": [0.0], "std": [1.0]}
    )
    forecaster.config = forecaster.config.model_copy(update={"scaler": scaler})
    frame = make_long({"a": 40}).assign(y=lambda x: x["y"].abs().round())
    forecast = forecaster.predict(frame, level=80, num_samples=3)
    for name in ("lo-80", "hi-80", "sample-1", "sample-2", "sample-3"):
        values = forecast[f"tsformer-{name}"]
        assert ((values >= 0) & (values == values.round())).all()
    assert (forecast["tsformer"] != forecast["tsformer"].round()).any()  # a mean
    frame.loc[7, "y"] = 1.5
    with pytest.raises(DataError, match=r"series 'a', 2024-03-01 07:00:00: 1\.5 is not a count"):
        forecaster.predict(frame)


@pytest.mark.parametrize("channels", ["independent", "joint"])
def test_quantiles_stand_beside_their_target_column(channels: str) -> None:
    columns = Columns("unique_id", "ds", ("units", "revenue"))
    ids = ("units", "revenue") if channels == "joint" else ("7/units", "7/revenue")
    forecaster = make_probabilistic(columns=columns, channels=channels, ids=ids)
    frame = make_long({"7": 30, "8": 26}).rename(columns={"y": "units"})
    frame = frame.assign(revenue=lambda x: 1e4 + x["units"])
    forecast = forecaster.predict(frame, level=80, num_samples=1)
    assert list(forecast)[:4] == ["unique_id", "target", "ds", "tsformer"]
    assert forecast["target"].tolist() == (["units"] * H + ["revenue"] * H) * 2
    assert (forecast["tsformer-lo-80"] < forecast["tsformer"]).all()
    assert (forecast["tsformer"] < forecast["tsformer-hi-80"]).all()
    large = forecast["target"] == "revenue"
    for name in ("tsformer", "tsformer-lo-80", "tsformer-hi-80", "tsformer-sample-1"):
        assert (forecast.loc[large, name] > 5e3).all()
        assert (forecast.loc[~large, name] < 5e3).all()


# Other horizons


@pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])
@pytest.mark.parametrize("head", ["point", "quantile"])
def test_a_shorter_horizon_is_the_beginning_of_the_trained_one(decoding: str, head: str) -> None:
    forecaster = make_forecaster(head=head, quantiles=LEVELS, decoding=decoding)
    frame = make_long({"a": 40, "b": 12})
    asked = {} if head == "point" else {"level": 80, "num_samples": 2}
    whole = forecaster.predict(frame, **asked)
    for steps in (1, 4):
        forecast = forecaster.predict(frame, horizon=steps, **asked)
        expected = whole.groupby("unique_id").head(steps).reset_index(drop=True)
        pd.testing.assert_frame_equal(forecast, expected)


def test_a_shorter_horizon_needs_no_more_of_the_future() -> None:
    forecaster = make_forecaster(columns=Columns("unique_id", "ds", ("y",), (), ("price",)))
    frame = make_long({"a": 30}).assign(price=1.0)
    times = pd.date_range(frame["ds"].max(), periods=5, freq="h")[1:]
    future = pd.DataFrame({"unique_id": "a", "ds": times, "price": [1.0, 2.0, 3.0, 4.0]})
    assert forecaster.predict(frame, future, horizon=4)["ds"].tolist() == list(times)
    with pytest.raises(DataError, match="2 of 6 steps"):
        forecaster.predict(frame, future)


def test_a_longer_horizon_goes_on_from_its_own_forecasts() -> None:
    columns = Columns("unique_id", "ds", ("y",), (), ("price",))
    forecaster, frame = make_forecaster(columns=columns), make_long({"b": 40}).assign(price=1.0)
    times = pd.date_range(frame["ds"].max(), periods=2 * H + 3, freq="h")[1:]  # 2 H + 2 steps
    future = pd.DataFrame({"unique_id": "b", "ds": times, "price": np.arange(2 * H + 2.0)})
    with pytest.warns(UserWarning, match="horizon=14: the model was trained for 6 steps"):
        forecast = forecaster.predict(frame, future, horizon=2 * H + 2)
    assert forecast["ds"].tolist() == list(times)
    history = frame
    for begin in (0, H):
        block = future[begin : begin + H].assign(y=forecast["tsformer"][begin : begin + H])
        expected = forecaster.predict(history, block.drop(columns="y"))
        np.testing.assert_allclose(block["y"], expected["tsformer"], rtol=1e-4)
        history = pd.concat([history, block])
    last = forecaster.predict(history, future[2 * H :], horizon=2)
    np.testing.assert_allclose(forecast["tsformer"][2 * H :], last["tsformer"], rtol=1e-4)
    with (
        pytest.warns(UserWarning, match="horizon=14"),
        pytest.raises(DataError, match="2 of 14 steps"),
    ):
        forecaster.predict(frame, future[:-2], horizon=2 * H + 2)


def test_columns_name_all_digits_of_a_level() -> None:
    forecaster = make_probabilistic("quantile")
    frame = make_long({"b": 40})
    names = forecaster.predict(frame, level=[80, 97.5], quantiles=[0.1234561, 0.1234562]).columns
    assert list(names[3:]) == [
        "tsformer-lo-80",
        "tsformer-hi-80",
        "tsformer-lo-97.5",
        "tsformer-hi-97.5",
        "tsformer-q-0.1234561",
        "tsformer-q-0.1234562",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": 0}, r"level=0\.0: give percents from 1 to 99.99"),
        ({"level": [80, 100]}, r"level=100\.0: give percents"),
        ({"level": float("nan")}, "level=nan: give percents"),
        ({"level": 0.9}, r"level=0\.9: give percents"),
        ({"level": [[80, 90]]}, "give a number or a list of numbers"),
        ({"seed": "a"}, "seed='a': give a whole number from 0 up"),
        ({"seed": -1}, "seed=-1: give a whole number from 0 up"),
        ({"level": "a"}, "level='a': give a number or a list of numbers"),
        ({"quantiles": 1.5}, r"quantiles=1\.5: give levels between 0 and 1"),
        ({"quantiles": [0.1, 0]}, r"quantiles=0\.0: give levels"),
        ({"quantiles": [None, "x"]}, "quantiles=.*: give a number or a list"),
        ({"num_samples": 0}, "num_samples=0: give a whole number from 1 up"),
        ({"num_samples": 10**12}, "num_samples=1000000000000: give at most 1,000,000 paths"),
        ({"level": 10**400}, "give a number or a list of numbers"),
        ({"num_samples": True}, "num_samples=True: give a whole number from 1 up"),
        ({"horizon": True}, "horizon=True: give a whole number from 1 up"),
        ({"batch_size": True}, "batch_size=True: give a whole number from 1 up"),
        ({"level": True}, "level=True: give a number or a list of numbers"),
        ({"horizon": 0}, "horizon=0: give a whole number from 1 up"),
        ({"horizon": 2.5}, "horizon=2.5: give a whole number"),
        ({"horizon": -3}, "horizon=-3: give a whole number from 1 up"),
        ({"adaptive": True}, "needs a model that was fitted with conformal=true"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, object], message: str) -> None:
    frame = make_long({"a": 30})
    with pytest.raises(ConfigError, match=message):
        make_probabilistic().predict(frame, **arguments)


def test_a_model_of_points_says_how_to_fit_another() -> None:
    forecaster, frame = make_forecaster(), make_long({"a": 30})
    assert not forecaster.is_probabilistic
    for asked in ({"level": 80}, {"quantiles": 0.1}, {"num_samples": 2}):
        with pytest.raises(
            ConfigError, match=r"only point forecasts\. Fit it with model\.head=quantile"
        ):
            forecaster.predict(frame, **asked)
    calibrated = make_forecaster(quantiles=(0.1, 0.9), conformal=np.zeros((3, H, 1, 2)))
    assert list(calibrated.predict(frame, level=80)) == [
        *("unique_id", "ds", "tsformer", "tsformer-lo-80", "tsformer-hi-80")
    ]
    with pytest.raises(ConfigError, match="only point forecasts"):  # it has no paths
        calibrated.predict(frame, num_samples=2)


# Conformal offsets


def test_offsets_are_those_of_the_series_or_pooled_for_a_new_one() -> None:
    offsets = recognisable(2)
    forecaster = make_forecaster(quantiles=(0.1, 0.5, 0.9), conformal=offsets)
    frame = make_long({"new": 40, "b": 30, "a": 35, "newer": 26})
    forecast = forecaster.predict(frame, quantiles=[0.1, 0.5, 0.9], batch_size=3)
    point = make_forecaster().predict(frame)["tsformer"]
    np.testing.assert_allclose(forecast["tsformer"], point, rtol=1e-6)
    for id, rows in forecast.groupby("unique_id"):
        values = frame.loc[frame["unique_id"] == id, "y"]
        std = 2.0 if id in ("a", "b") else values.std(ddof=0)
        for place, level in enumerate((0.1, 0.5, 0.9)):
            moved = (rows[f"tsformer-q-{level}"] - rows["tsformer"]) / std
            expected = offsets[{"a": 0, "b": 1}.get(id, -1), :, 0, place]
            np.testing.assert_allclose(moved, expected, rtol=1e-3)


def test_joint_channels_have_their_own_offsets() -> None:
    offsets = recognisable(1, channels=2)
    forecaster = make_forecaster(
        quantiles=(0.1, 0.5, 0.9), conformal=offsets, channels="joint", ids=("a", "b")
    )
    forecast = forecaster.predict(make_long({"b": 30, "a": 30}), quantiles=[0.1, 0.9])
    for channel, id in enumerate("ab"):
        rows = forecast[forecast["unique_id"] == id]
        for place, level in ((0, 0.1), (2, 0.9)):
            moved = (rows[f"tsformer-q-{level}"] - rows["tsformer"]) / 2
            np.testing.assert_allclose(moved, offsets[0, :, channel, place], rtol=1e-3)


@pytest.mark.parametrize("channels", ["independent", "joint"])
def test_target_columns_have_their_own_offsets(channels: str) -> None:
    columns = Columns("unique_id", "ds", ("y", "z"))
    ids = ("7/y", "7/z", "8/y", "8/z")
    offsets = recognisable(2, 2) if channels == "joint" else recognisable(4)
    forecaster = make_forecaster(
        columns=columns, quantiles=(0.1, 0.5, 0.9), conformal=offsets, ids=ids
    )
    if channels == "joint":
        model = forecaster.config.model.model_copy(update={"channels": "joint"})
        config = forecaster.config.model_copy(update={"channels": ["y", "z"], "model": model})
        network = ForecastNetwork(**network_settings(config))
        forecaster = Forecaster(network, config, forecaster.conformal)
    frame = make_long({"8": 30, "7": 30}).assign(z=lambda x: x["y"] + 1)
    forecast = forecaster.predict(frame, quantiles=0.9)
    for series, (id, target) in enumerate(name.split("/") for name in ids):
        rows = forecast[(forecast["unique_id"] == id) & (forecast["target"] == target)]
        own = offsets[series // 2, :, series % 2] if channels == "joint" else offsets[series, :, 0]
        moved = (rows["tsformer-q-0.9"] - rows["tsformer"]) / 2
        np.testing.assert_allclose(moved, own[:, 2], rtol=1e-3)


def test_levels_between_those_calibrated_lie_between_their_values() -> None:
    known = (0.1, 0.5, 0.9)
    forecaster = make_forecaster(head="quantile", quantiles=known, conformal=recognisable(2))
    frame = make_long({"a": 40})
    forecast = forecaster.predict(frame, quantiles=[0.02, 0.1, 0.3, 0.5, 0.9])
    values = torch.tensor(forecast[[f"tsformer-q-{level}" for level in known]].to_numpy())
    expected = at_levels(values, known, (0.02, 0.3))
    np.testing.assert_allclose(forecast[["tsformer-q-0.02", "tsformer-q-0.3"]], expected, rtol=1e-6)


def test_steps_beyond_the_trained_ones_take_the_last_offset() -> None:
    offsets = recognisable(2)
    forecaster = make_forecaster(quantiles=(0.1, 0.5, 0.9), conformal=offsets)
    with pytest.warns(UserWarning, match="horizon=9"):
        forecast = forecaster.predict(make_long({"b": 40}), quantiles=0.9, horizon=9)
    moved = (forecast["tsformer-q-0.9"] - forecast["tsformer"]) / 2
    np.testing.assert_allclose(
        moved, [*offsets[1, :, 0, 2], *[offsets[1, -1, 0, 2]] * 3], rtol=1e-3
    )


@pytest.mark.parametrize("length", [200, 60, 28])  # of the latest 100 windows, all, some, few
@pytest.mark.parametrize("head", ["point", "quantile"])
def test_adaptive_intervals_follow_the_latest_windows(length: int, head: str) -> None:
    known = (0.1, 0.5, 0.9)
    forecaster = make_forecaster(head=head, quantiles=known, conformal=recognisable(2))
    frame = make_long({"b": length})
    scaled = (frame["y"] - 6) / 2

    def base_at(origin: int) -> np.ndarray:
        """Return quantiles of the window whose first target step is row `origin`, (1, H, 1, Q)."""
        stamps = pd.Series(pd.date_range(frame["ds"][0], periods=length, freq="h"))
        first = stamps[0] + pd.Timedelta(hours=origin - L)
        times = pd.Series(pd.date_range(first, periods=L, freq="h"))
        rows = np.arange(origin - L, origin)
        values = np.where(rows >= 0, scaled.to_numpy()[rows.clip(0)], 0.0)
        inputs = context_of(pd.Series(values), times)
        inputs[1] = torch.tensor(rows >= 0)[None, :, None]
        inputs[2] = inputs[2].where(inputs[1], 0.0)
        with torch.inference_mode():
            parameters = forecaster.network(*inputs)
            return forecaster.network.head.quantiles(parameters, known).double().numpy()

    base, truth = [], []
    for origin in range(length - H - 99, length - H + 1):
        if origin < 1:  # nothing of the context is known
            continue
        base.append(base_at(origin))
        truth.append(scaled.to_numpy()[origin : origin + H][None, :, None])
    base, truth = np.stack(base), np.stack(truth)
    begin = recognisable(2)[[1]]
    offsets = track(base, truth, begin, known, step_size(base, truth))
    expected = shifted(base_at(length), offsets, known)[0, :, 0] * 2 + 6
    forecast = forecaster.predict(frame, quantiles=known, adaptive=True)
    found = forecast[[f"tsformer-q-{level}" for level in known]]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    plain = forecaster.predict(frame, quantiles=known)[list(found)]
    assert not np.allclose(found, plain, rtol=1e-3)


def test_a_calibrated_model_is_saved_with_its_offsets(tmp_path: Path) -> None:
    offsets = recognisable(2, levels=len(LEVELS))
    forecaster = make_probabilistic(conformal=offsets)
    forecaster.save(tmp_path / "model")
    loaded = Forecaster.load(tmp_path / "model")
    assert loaded.conformal is not None
    assert loaded.conformal.levels == LEVELS
    np.testing.assert_array_equal(loaded.conformal.offsets, np.float32(offsets))
    frame = make_long({"a": 200, "new": 120})
    asked = {"level": [50, 90], "num_samples": 2, "adaptive": True}
    pd.testing.assert_frame_equal(
        loaded.predict(frame, **asked), forecaster.predict(frame, **asked)
    )


def test_a_table_of_a_longer_step_than_the_models_is_told() -> None:
    forecaster = make_forecaster()
    with pytest.warns(UserWarning, match=r"freq='h', but .* 24 or more steps apart.* longer step"):
        forecaster.predict(make_long({"a": 30, "b": 3}, freq="D"))
    frame = make_long({"a": 30, "b": 30})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        forecaster.predict(make_long({"a": 7}, freq="D"))  # too few to tell
        forecaster.predict(frame.assign(y=frame["y"].where(frame.index % 20 < 2)))  # just gaps
