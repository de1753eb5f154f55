"""Batch forecasts within one process: what comes out, what is refused, what is left."""

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.batch.cases import (
    H,
    batch_settings,
    contents,
    forecasts,
    make_long,
    read_parts,
    run,
    with_covariate,
    write_model,
)
from tests.forecasters import make_forecaster
from tsformer.batch import part
from tsformer.batch.config import parse_batch
from tsformer.batch.run import forecast_files
from tsformer.data.columns import Columns
from tsformer.data.locking import alone
from tsformer.errors import BatchError, ConfigError, DataError, ModelFolderError
from tsformer.forecaster import Forecaster

LENGTHS = {f"s{number}": 20 + 7 * (number % 5) for number in range(12)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model")


def write(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_parquet(path, index=False)
    return path


def spoilt(frame: pd.DataFrame, *ids: str) -> pd.DataFrame:
    return frame.assign(y=frame["y"].where(~frame["unique_id"].isin(ids)))


def assert_same_forecasts(left: pd.DataFrame, right: pd.DataFrame) -> None:
    """Compare them whatever the order of the series; batches round otherwise."""
    by = ["unique_id", "ds"]
    left, right = (x.sort_values(by, kind="stable", ignore_index=True) for x in (left, right))
    pd.testing.assert_frame_equal(left, right, rtol=1e-4, atol=1e-5)


# What comes out


def test_a_small_table_is_one_part_which_is_what_predict_returns(
    model: Path, tmp_path: Path
) -> None:
    frame = make_long(LENGTHS)
    summary = run(model, write(frame, tmp_path / "t.parquet"), tmp_path / "out", horizon=3)
    assert (summary.series, summary.rows, summary.errors) == (12, 36, 0)
    assert str(summary).startswith("12 series, 36 rows, 0 errors in ")
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {"forecasts", "manifest.json"}
    [forecast] = read_parts(tmp_path / "out")
    pd.testing.assert_frame_equal(forecast, Forecaster.load(model).predict(frame, horizon=3))


@pytest.mark.parametrize("ending", ["parquet", "csv", "feather"])
@pytest.mark.parametrize("layout", ["sorted", "files", "spread"])
def test_parts_make_up_the_forecast_of_the_whole(
    model: Path, tmp_path: Path, ending: str, layout: str
) -> None:
    frame = make_long(LENGTHS)
    pieces = [frame]
    if layout == "files":
        pieces = [rows for _, rows in frame.groupby("unique_id", sort=False)]
    elif layout == "spread":
        pieces = [rows for _, rows in frame.sort_values("ds", kind="stable").groupby("ds")]
    (tmp_path / "in").mkdir()
    for number, rows in enumerate(pieces):
        path = tmp_path / "in" / f"{number:03d}.{ending}"
        if ending == "csv":
            rows.to_csv(path, index=False)
        else:
            getattr(rows.reset_index(drop=True), f"to_{ending}")(path)
    summary = run(model, tmp_path / "in", tmp_path / "out", rows_per_part=80)
    assert summary.series == 12
    parts = read_parts(tmp_path / "out")
    assert len(parts) > 3
    assert_same_forecasts(pd.concat(parts), Forecaster.load(model).predict(frame))
    assert pd.concat(parts)["unique_id"].drop_duplicates().tolist() == list(LENGTHS)
    assert not list((tmp_path / "out").glob(".*"))


def test_the_order_of_files_changes_no_forecast(model: Path, tmp_path: Path) -> None:
    frame = make_long(LENGTHS)
    series = [rows for _, rows in frame.groupby("unique_id", sort=False)]
    for name, order in (("a", range(12)), ("b", np.random.default_rng(0).permutation(12))):
        (tmp_path / name).mkdir()
        for place, number in enumerate(order):
            write(series[number], tmp_path / name / f"{place:02d}.parquet")
        run(model, tmp_path / name, tmp_path / f"out-{name}", rows_per_part=80)
    assert_same_forecasts(forecasts(tmp_path / "out-a"), forecasts(tmp_path / "out-b"))


@pytest.mark.parametrize("spread", [False, True])
def test_future_covariates_reach_their_series_in_any_order(tmp_path: Path, spread: bool) -> None:
    model = write_model(tmp_path / "model", columns=with_covariate())
    frame = make_long(LENGTHS)
    frame["price"] = np.arange(len(frame)) % 17 + 0.5
    ends = frame.groupby("unique_id")["ds"].max()
    future = pd.DataFrame(
        [
            (id, end + pd.Timedelta(hours=step + 1), float(step * place))
            for place, (id, end) in enumerate(ends.items())
            for step in range(H)
        ],
        columns=["unique_id", "ds", "price"],
    )
    strangers = future.iloc[:9].assign(unique_id="not in the history")
    shuffled = pd.concat([future, strangers]).sample(frac=1, random_state=0)
    expected = Forecaster.load(model).predict(frame, future)
    history = frame.sort_values("ds") if spread else frame
    run(
        model,
        write(history, tmp_path / "t.parquet"),
        tmp_path / "out",
        future=write(shuffled, tmp_path / "f.parquet"),
        rows_per_part=80,
    )
    assert len(read_parts(tmp_path / "out")) > 3
    assert_same_forecasts(forecasts(tmp_path / "out"), expected)
    with pytest.raises(ConfigError, match=r"\['price'\].*future="):
        run(model, tmp_path / "t.parquet", tmp_path / "other")
    lacking = write(future.drop(columns="price"), tmp_path / "g.parquet")
    with pytest.raises(DataError, match="no column 'price'"):
        run(model, tmp_path / "t.parquet", tmp_path / "other", future=lacking, on_error="skip")
    assert not (tmp_path / "other").exists()
    few = write(future[future["unique_id"].isin(["s0", "s7"])], tmp_path / "h.parquet")
    summary = run(
        model, tmp_path / "t.parquet", tmp_path / "few", future=few, on_error="skip",
        rows_per_part=80,
    )  # fmt: skip
    assert (summary.series, summary.errors) == (2, 10)
    two = expected[expected["unique_id"].isin(["s0", "s7"])]
    assert_same_forecasts(forecasts(tmp_path / "few"), two)


@pytest.mark.parametrize("rows", [30, 1000])
def test_odd_ids_are_kept_as_they_are(model: Path, tmp_path: Path, rows: int) -> None:
    for name, ids in {
        "text": ["007", "7", "NA", "nan", "été ☃", " a ", "a,b", "x" * 200],
        "numbers": [7, -1, 2**60 + 1, 0],
    }.items():
        frame = make_long({str(id): 24 for id in ids})
        frame["unique_id"] = np.repeat(np.array(ids), 24) if name == "numbers" else np.repeat(
            np.array(ids, dtype=object), 24
        )  # fmt: skip
        table = write(frame, tmp_path / f"{name}.parquet")
        run(model, table, tmp_path / name, rows_per_part=rows)
        forecast = forecasts(tmp_path / name)
        assert forecast["unique_id"].tolist() == [id for id in ids for _ in range(H)]
        assert forecast["unique_id"].dtype == pd.read_parquet(table)["unique_id"].dtype


def test_sample_paths_of_parts_differ(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", head="normal")
    one = make_long({"a": 30})
    frame = pd.concat([one, one.assign(unique_id="b")])
    table = write(frame, tmp_path / "t.parquet")
    for output in ("out", "again"):
        run(model, table, tmp_path / output, rows_per_part=30, num_samples=2)
    first, second = (x.filter(like="sample").to_numpy() for x in read_parts(tmp_path / "out"))
    assert not np.isclose(first, second).any()
    assert contents(tmp_path / "out") == contents(tmp_path / "again")


def test_series_that_are_forecast_together_are_one_part(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", channels="joint")
    frame = make_long({"a": 30, "b": 30})
    run(model, write(frame, tmp_path / "t.parquet"), tmp_path / "out", rows_per_part=10)
    [forecast] = read_parts(tmp_path / "out")
    pd.testing.assert_frame_equal(forecast, Forecaster.load(model).predict(frame))


def test_several_targets_and_names_of_ones_own(tmp_path: Path) -> None:
    columns = Columns("shop", "day", ("units", "revenue"))
    model = write_model(tmp_path / "model", columns=columns)
    frame = make_long(LENGTHS).rename(columns={"unique_id": "shop", "ds": "day", "y": "units"})
    frame["revenue"] = frame["units"] * 3
    table = write(frame, tmp_path / "t.parquet")
    assert run(model, table, tmp_path / "out", rows_per_part=80).series == 24
    expected = Forecaster.load(model).predict(frame)
    pd.testing.assert_frame_equal(forecasts(tmp_path / "out"), expected, rtol=1e-4)


# Faults of single series


def test_raise_names_the_series_and_keeps_finished_parts(model: Path, tmp_path: Path) -> None:
    frame = make_long(LENGTHS)
    frame = spoilt(frame, "s9")
    table = write(frame, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: series 's9': no observed value"):
        run(model, table, tmp_path / "out", rows_per_part=80)
    finished = sorted((tmp_path / "out").glob("forecasts/part-*"))
    assert len(finished) >= 2
    parts = json.loads((tmp_path / "out" / "manifest.json").read_text())["parts"]
    assert [part["file"] for part in parts if part["state"] == "finished"] == [
        file.name for file in finished
    ]
    summary = run(model, table, tmp_path / "out", rows_per_part=80, on_error="skip")
    assert (summary.series, summary.errors) == (11, 1)


def test_raise_names_the_row_of_the_input(model: Path, tmp_path: Path) -> None:
    frame = make_long(LENGTHS)
    frame["y"] = frame["y"].astype(str)
    row = frame.index[frame["unique_id"] == "s8"][3]
    frame.loc[row, "y"] = "many"
    table = write(frame, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=rf"series 's8', column 'y', row {row}: 'many'"):
        run(model, table, tmp_path / "out", rows_per_part=80)


@pytest.mark.parametrize("layout", ["sorted", "spread"])
@pytest.mark.parametrize("rows", [80, 10_000])
def test_skip_lists_what_cannot_be_forecast_and_forecasts_the_rest(
    model: Path, tmp_path: Path, layout: str, rows: int
) -> None:
    frame = make_long(LENGTHS)
    bad = spoilt(frame, "s0", "s6")
    bad["unique_id"] = bad["unique_id"].where(bad.index != bad.index[-1])  # no id
    bad = pd.concat([bad, bad[bad["unique_id"] == "s7"].iloc[[4]]])  # a row twice
    if layout == "spread":
        bad = bad.sort_values("ds", kind="stable")
    table = write(bad, tmp_path / "t.parquet")
    summary = run(model, table, tmp_path / "out", rows_per_part=rows, on_error="skip")
    assert (summary.series, summary.errors) == (9, 4)
    errors = pd.read_parquet(tmp_path / "out" / "errors.parquet")
    assert list(errors.columns) == ["unique_id", "part", "reason"]
    reasons = errors.set_index(errors["unique_id"].fillna("none"))["reason"]
    assert set(reasons.index) == {"s0", "s6", "s7", "none"}
    assert "no observed value" in reasons["s0"]
    assert "twice, in row 4 and row" in reasons["s7"]
    assert "no series id" in reasons["none"]
    good = bad[~bad["unique_id"].isin(["s0", "s6", "s7"]) & bad["unique_id"].notna()]
    assert_same_forecasts(forecasts(tmp_path / "out"), Forecaster.load(model).predict(good))


def test_an_empty_id_is_no_id(model: Path, tmp_path: Path) -> None:
    table = write(make_long({"": 24, "a": 24}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="no series id is given"):
        run(model, table, tmp_path / "out")
    assert run(model, table, tmp_path / "out", on_error="skip").errors == 1
    assert pd.read_parquet(tmp_path / "out" / "errors.parquet")["unique_id"].tolist() == [""]


def test_a_table_of_faults_alone_gives_parts_without_rows(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", head="normal")
    frame = spoilt(make_long({"a": 30, "b": 30}), "a", "b")
    frame["unique_id"] = frame["unique_id"].map({"a": 3, "b": 4})
    table = write(frame, tmp_path / "t.parquet")
    arguments = {"level": [80], "num_samples": 2}
    summary = run(model, table, tmp_path / "out", on_error="skip", **arguments)
    assert (summary.series, summary.rows, summary.errors) == (0, 0, 2)
    [none] = read_parts(tmp_path / "out")
    some = Forecaster.load(model).predict(make_long({"a": 30}), level=80, num_samples=2)
    assert list(none.columns) == list(some.columns)
    errors = pd.read_parquet(tmp_path / "out" / "errors.parquet")
    assert errors["unique_id"].tolist() == [3, 4]


# Mistakes of the whole


def test_what_no_series_could_be_forecast_with_is_told_at_once(model: Path, tmp_path: Path) -> None:
    frame = make_long(LENGTHS)
    for changed, words in (
        (frame.drop(columns="y"), r"needs the columns .*'y'"),
        (frame.assign(ds=np.arange(len(frame))), "column 'ds' holds numbers, not times"),
        (frame.iloc[:0], "no rows"),
    ):
        table = write(changed, tmp_path / "t.parquet")
        for on_error in ("raise", "skip"):
            with pytest.raises(DataError, match=words):
                run(model, table, tmp_path / "out", on_error=on_error)
            assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match=r"none\.parquet: there is no such file"):
        run(model, tmp_path / "none.parquet", tmp_path / "out")
    with pytest.raises(ConfigError, match="only point forecasts"):
        run(model, write(frame, tmp_path / "t.parquet"), tmp_path / "out", level=[80])
    for device in ("abacus", "cuda:99"):
        with pytest.raises(ConfigError, match=f"device={device}: cannot be used here"):
            run(model, tmp_path / "t.parquet", tmp_path / "out", device=device)
    with pytest.raises(ModelFolderError, match="not a model folder"):
        run(tmp_path / "none", tmp_path / "t.parquet", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"engine": "dask"}, "engine='dask'"),
        ({"on_error": "ignore"}, "on_error='ignore'"),
        ({"rows_per_part": 0}, "rows_per_part=0"),
        ({"num_workers": -1}, "num_workers=-1"),
        ({"level": ["many"]}, "level"),
        ({"input": ""}, "input: a path is needed"),
        ({"ray": {"address": "auto", "num_cpus": 1, "num_gpus": 0}}, "engine=ray"),
    ],
)
def test_wrong_settings_are_told(changed: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_batch(batch_settings(**changed))


def test_the_output_must_be_a_folder_of_ours(model: Path, tmp_path: Path) -> None:
    table = write(make_long(LENGTHS), tmp_path / "t.parquet")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(BatchError, match=r"file: is a file"):
        run(model, table, tmp_path / "file")
    with pytest.raises(BatchError, match=r"is a file|cannot be written"):
        run(model, table, tmp_path / "file" / "out")
    with pytest.raises(BatchError, match="cannot be written"):
        run(model, table, Path("/proc/out"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "part-00000.parquet").write_text("mine")
    for resume in (True, False):
        with pytest.raises(BatchError, match=r"full: holds 'part-00000\.parquet'"):
            run(model, table, tmp_path / "full", resume=resume)
    run(model, table, tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    for resume in (True, False):
        with pytest.raises(BatchError, match=r"holds 'notes\.txt'"):
            run(model, table, tmp_path / "out", resume=resume)
    (tmp_path / "out" / "notes.txt").rename(tmp_path / "out" / "forecasts" / "notes.txt")
    for resume in (True, False):
        with pytest.raises(BatchError, match=r"holds 'forecasts/notes\.txt'"):
            run(model, table, tmp_path / "out", resume=resume)
    (tmp_path / "out" / "forecasts" / "notes.txt").unlink()
    (tmp_path / "out" / "manifest.json").write_text('{"files": []}')
    with pytest.raises(BatchError, match=r"manifest\.json: not the manifest of a forecast"):
        run(model, table, tmp_path / "out", resume=False)
    assert (tmp_path / "out" / "forecasts" / "part-00000.parquet").exists()


def test_the_output_must_not_be_taken_for_input(model: Path, tmp_path: Path) -> None:
    table = write(make_long(LENGTHS), tmp_path / "t.parquet")
    (tmp_path / "link").symlink_to(tmp_path)
    for output in (tmp_path / "out", tmp_path / "no" / ".." / "out", tmp_path / "link" / "out"):
        with pytest.raises(ConfigError, match="must not be inside the input"):
            run(model, tmp_path, output)
    with pytest.raises(ConfigError, match="is inside the model folder"):
        run(model, table, model / "out")
    run(model, table, tmp_path / "out")
    with pytest.raises(ConfigError, match="must not be inside the input"):
        run(model, tmp_path / "**" / "*.parquet", tmp_path / "out")


def test_two_forecasts_in_one_folder_are_refused(model: Path, tmp_path: Path) -> None:
    table = write(make_long(LENGTHS), tmp_path / "t.parquet")
    (tmp_path / "out").mkdir()
    with (
        alone(tmp_path / "out" / ".lock"),
        pytest.raises(BatchError, match="another forecast is writing there"),
    ):
        run(model, table, tmp_path / "out")
    run(model, table, tmp_path / "out")


def test_an_input_that_changes_meanwhile_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write(make_long(LENGTHS), tmp_path / "t.parquet")
    predict = Forecaster.predict

    def changing(self, *arguments, **options):
        os.utime(table, (1, 1))
        return predict(self, *arguments, **options)

    monkeypatch.setattr(Forecaster, "predict", changing)
    with pytest.raises(DataError, match=r"t\.parquet: changed while"):
        run(model, table, tmp_path / "out")


# Going on


def test_finished_parts_are_not_forecast_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write(make_long(LENGTHS).sort_values("ds"), tmp_path / "t.parquet")
    run(model, table, tmp_path / "whole", rows_per_part=80)

    def stopped(forecaster, job, number):
        if number == 2:
            raise KeyboardInterrupt
        return part.forecast_part(forecaster, job, number)

    monkeypatch.setattr("tsformer.batch.local.forecast_part", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(model, table, tmp_path / "out", rows_per_part=80)
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("forecasts/part-*")}
    assert len(times) == 2
    (tmp_path / "out" / "forecasts" / ".part-00002.parquet-0123abcd").write_text("half")
    monkeypatch.undo()
    run(model, table, tmp_path / "out", rows_per_part=80)
    assert {file: file.stat().st_mtime_ns for file in times} == times
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    monkeypatch.setattr(Forecaster, "predict", None)  # all is there
    summary = run(model, table, tmp_path / "out", rows_per_part=80)
    assert summary.series == 12


def test_a_full_disk_leaves_nothing_half_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write(make_long(LENGTHS).sort_values("ds"), tmp_path / "t.parquet")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)  # of the gathered rows
        with pytest.raises(OSError, match=r"No space left.*/out/\.gathered"):
            run(model, table, tmp_path / "out", rows_per_part=80)
    assert not (tmp_path / "out").exists()
    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.write_table", full)
        with pytest.raises(OSError, match="No space left"):
            run(model, table, tmp_path / "out", rows_per_part=80)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "manifest.json",
        ".gathered",
        "forecasts",
    }
    assert run(model, table, tmp_path / "out", rows_per_part=80).series == 12


def test_to_go_on_all_has_to_be_as_it_was(model: Path, tmp_path: Path) -> None:
    frame = make_long(LENGTHS)
    table = write(frame, tmp_path / "t.parquet")
    output = tmp_path / "out"
    run(model, table, output)
    other = write_model(tmp_path / "other", ids=("x",))
    for changed, words in (
        ({"model": other}, r"the model changed: it was .*, now .*other"),
        ({"horizon": 3}, r"horizon=3, which was 6"),
        ({"seed": 1}, r"seed=1, which was 0"),
        ({"rows_per_part": 10, "batch_size": 7}, r"batch_size=7, which was 1024; rows_per_part=10"),
        ({"input": write(frame, tmp_path / "u.parquet")}, r"u\.parquet is new"),
    ):
        settings = batch_settings(**{"model": model, "input": table, "output": output, **changed})
        before = contents(output)
        with pytest.raises(BatchError, match=words) as caught:
            forecast_files(settings)
        assert "resume=false" in str(caught.value)
        assert contents(output) == before
    os.utime(table, (1, 1))
    with pytest.raises(BatchError, match=r"t\.parquet has changed"):
        run(model, table, output)
    run(model, table, output, resume=False, horizon=3, rows_per_part=80)
    assert len(forecasts(output)) == 12 * 3
    run(model, table, output, resume=False)
    assert len(read_parts(output)) == 1


def test_lost_rows_and_damaged_parts_are_told(model: Path, tmp_path: Path) -> None:
    table = write(make_long(LENGTHS).sort_values("ds"), tmp_path / "t.parquet")
    output = tmp_path / "out"
    run(model, table, output, rows_per_part=80)
    before, part = contents(output), output / "forecasts" / "part-00001.parquet"
    part.write_text("half")
    with pytest.raises(DataError, match=r"part-00001\.parquet: damaged .* Remove it"):
        run(model, table, output, rows_per_part=80)
    part.write_bytes((output / "forecasts" / "part-00000.parquet").read_bytes())
    with pytest.raises(
        DataError, match=r"part-00001\.parquet: not written by this forecast\. Remove it"
    ):
        run(model, table, output, rows_per_part=80)
    part.unlink()
    run(model, table, output, rows_per_part=80)  # which gathers its rows again
    assert contents(output) == before


def test_series_left_out_by_an_earlier_run_are_told(model: Path, tmp_path: Path) -> None:
    frame = make_long(LENGTHS)
    frame.loc[frame["unique_id"] == "s2", "y"] = np.nan
    table = write(frame, tmp_path / "t.parquet")
    assert run(model, table, tmp_path / "out", on_error="skip").errors == 1
    with pytest.raises(DataError, match="series 's2' was left out by an earlier run"):
        run(model, table, tmp_path / "out", on_error="raise")
    assert run(model, table, tmp_path / "out", on_error="skip").errors == 1


def test_all_parts_have_the_same_types(model: Path, tmp_path: Path) -> None:
    def write_parts(folder: str, *frames: pd.DataFrame) -> Path:
        (tmp_path / folder).mkdir()
        for number, frame in enumerate(frames):
            write(frame, tmp_path / folder / f"{number}.parquet")
        return tmp_path / folder

    one, other = make_long({"x": 40}), make_long({"y": 40}, seed=1)
    for folder, ids, expected in (
        ("mixed", (1, "b"), ["1", "b"]),
        ("small", (np.int8(5), np.int64(300)), [5, 300]),
        ("floats", (1.0, "b"), ["1", "b"]),
    ):
        frames = (each.assign(unique_id=id) for each, id in zip((one, other), ids, strict=True))
        run(model, write_parts(folder, *frames), tmp_path / f"{folder}-out", series_per_part=1)
        assert forecasts(tmp_path / f"{folder}-out")["unique_id"].unique().tolist() == expected
    zoned = [each.assign(ds=each["ds"].dt.tz_localize("America/New_York")) for each in (one, other)]
    table = write_parts("zoned", zoned[0].assign(y=np.nan), zoned[1])
    run(model, table, tmp_path / "zoned-out", series_per_part=1, on_error="skip")
    expected = Forecaster.load(model).predict(zoned[1])["ds"]
    assert forecasts(tmp_path / "zoned-out")["ds"].tolist() == expected.tolist()
    table = write_parts("one-zoned", one, zoned[1])
    with pytest.raises(
        DataError,
        match=r"have the zone America/New_York, but the first times of the table have none",
    ):
        run(model, table, tmp_path / "refused", series_per_part=1)


def test_an_id_may_be_a_whole_number_in_one_file_and_a_float_in_the_next(
    model: Path, tmp_path: Path
) -> None:
    frame, folder = make_long({"7": 40}), tmp_path / "t"
    folder.mkdir()
    write(frame[:20].assign(unique_id=7), folder / "0.parquet")
    write(frame[20:].assign(unique_id=7.0), folder / "1.parquet")
    expected = Forecaster.load(model).predict(frame)["tsformer"]
    found = Forecaster.load(model).predict(folder)
    assert set(found["unique_id"]) == {7}
    np.testing.assert_allclose(found["tsformer"], expected, rtol=1e-6)
    run(model, folder, tmp_path / "out")
    np.testing.assert_allclose(forecasts(tmp_path / "out")["tsformer"], expected, rtol=1e-6)


def test_faults_between_series_do_not_stop_the_others(model: Path, tmp_path: Path) -> None:
    later = make_long({"b": 40}, seed=1)
    later["ds"] += pd.Timedelta(minutes=7)  # not on the grid of the other
    table = write(pd.concat([make_long({"a": 40}), later]), tmp_path / "t.parquet")
    summary = run(model, table, tmp_path / "out", on_error="skip")
    assert (summary.series, summary.errors) == (2, 0)
    assert forecasts(tmp_path / "out")["unique_id"].unique().tolist() == ["a", "b"]


def test_predict_to_writes_what_predict_returns(tmp_path: Path) -> None:
    forecaster, frame = make_forecaster(), make_long(LENGTHS)
    forecaster.predict_to(tmp_path / "f.parquet", frame, horizon=3)
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "f.parquet"), forecaster.predict(frame, horizon=3)
    )
    with pytest.raises(OSError, match="none"):
        forecaster.predict_to(tmp_path / "none" / "f.parquet", frame)
    assert [path.name for path in tmp_path.iterdir()] == ["f.parquet"]
