"""fine_tune: training goes on, the meaning of what the network sees stays."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from tests.data.frames import long_frame
from tests.evaluation.test_backtest import FRAMES
from tests.forecasters import LEVELS, H, L, make_forecaster, make_long, recognisable
from tsformer.data.columns import Columns
from tsformer.data.forecast_data import ForecastData
from tsformer.data.table import SeriesTable
from tsformer.errors import ConfigError, DataError
from tsformer.forecaster import Forecaster
from tsformer.ranks import Interrupted
from tsformer.trainer import fine_tuning
from tsformer.training import describe_forecaster

pytestmark = pytest.mark.filterwarnings("ignore:.*:UserWarning:lightning")


def make_waves(lengths: dict[str, int], period: int = 12) -> pd.DataFrame:
    frame = make_long(lengths)
    place = frame.groupby("unique_id").cumcount()
    return frame.assign(y=10 + 3 * np.sin(2 * np.pi * place / period))


def weights_of(forecaster: Forecaster) -> torch.Tensor:
    return torch.cat([x.detach().flatten().clone() for x in forecaster.network.parameters()])


def test_training_goes_on_and_the_original_stays() -> None:
    forecaster, frame = make_forecaster(), make_waves({"new": 300, "a": 250})
    before, config = weights_of(forecaster), forecaster.config
    state = torch.get_rng_state()
    tuned = forecaster.fine_tune(frame, max_epochs=4, lr=0.01, batch_size=16)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(weights_of(forecaster), before)
    assert forecaster.config is config
    assert not tuned.network.training
    later = make_waves({"new": 400, "a": 400})

    def error(forecaster: Forecaster) -> float:
        found = forecaster.cross_validate(later, 10)
        return (found["tsformer"] - found["y"]).abs().mean()

    assert error(tuned) < error(forecaster) / 3


def test_it_begins_with_the_weights_as_they_are() -> None:
    forecaster, frame = make_forecaster(), make_waves({"new": 100})
    # Not with the seed that made them.
    tuned = forecaster.fine_tune(frame, max_steps=1, lr=1e-12, seed=5)
    torch.testing.assert_close(weights_of(tuned), weights_of(forecaster), rtol=0, atol=1e-9)


def test_the_seed_decides() -> None:
    forecaster, frame = make_forecaster(), make_waves({"new": 100})

    def tuned(seed: int) -> torch.Tensor:
        return weights_of(forecaster.fine_tune(frame, max_steps=2, lr=0.01, seed=seed))

    first = tuned(1)
    assert torch.equal(tuned(1), first)
    assert not torch.equal(tuned(2), first)


def test_new_series_are_scaled_by_their_train_rows_and_known_ones_as_before() -> None:
    forecaster = make_forecaster()
    frame = make_long({"new": 100, "b": 80})
    frame.loc[frame["unique_id"].eq("new") & (frame.groupby("unique_id").cumcount() >= 80), "y"] = (
        1e6
    )
    scaler = forecaster.fine_tune(frame, max_steps=1, validation=20).config.scaler
    assert scaler.ids == ["new", "b"]
    train = frame["y"][:80]
    np.testing.assert_allclose(scaler.mean, [train.mean(), 6.0], rtol=1e-6)
    np.testing.assert_allclose(scaler.std, [train.std(ddof=0), 2.0], rtol=1e-6)


def test_covariates_and_categories_keep_their_meaning() -> None:
    make, frame = FRAMES["covariates"]
    forecaster = make()
    frame = frame.assign(price=1e3 * frame["price"])
    tuned = forecaster.fine_tune(frame, max_steps=1)
    for name in ("covariates", "static", "columns", "model", "freq", "horizon"):
        assert getattr(tuned.config, name) == getattr(forecaster.config, name)


def test_the_weights_are_those_that_validation_chose(tmp_path: Path) -> None:
    forecaster, frame = make_forecaster(), make_waves({"new": 150})
    tuned = forecaster.fine_tune(frame, lr=0.01, output=tmp_path / "run")
    checkpoint = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)
    for name, weight in tuned.network.state_dict().items():
        assert torch.equal(weight, checkpoint["state_dict"][f"averaged.{name}"])
    curve = pd.read_csv(tmp_path / "run" / "csv" / "metrics.csv")
    best = curve.loc[curve["val/mae"].idxmin(), "step"]
    assert checkpoint["global_step"] == best + 1
    found = tuned.cross_validate(frame, 15 - H + 1, 1)  # the validation windows
    mae = (found["tsformer"] - found["y"]).abs().mean() / tuned.config.scaler.std[0]
    assert mae == pytest.approx(curve["val/mae"].min(), rel=1e-3)


def test_the_output_folder_is_a_run_of_its_own(tmp_path: Path) -> None:
    forecaster, frame = make_forecaster(), make_waves({"new": 100})
    tuned = forecaster.fine_tune(frame, max_steps=1, output=tmp_path / "run")
    loaded = Forecaster.load(tmp_path / "run" / "model")
    pd.testing.assert_frame_equal(loaded.predict(frame), tuned.predict(frame))
    settings = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert settings["trainer"]["max_steps"] == 1
    with pytest.raises(ConfigError, match="holds another run"):
        forecaster.fine_tune(frame, max_steps=1, output=tmp_path / "run")


@pytest.mark.parametrize("output", [1, [], "", True])
def test_an_output_that_is_no_folder_is_refused(output: Any) -> None:
    with pytest.raises(ConfigError, match=r"output=.*: give a folder"):
        make_forecaster().fine_tune(make_waves({"a": 100}), output=output)


def test_without_an_output_folder_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    make_forecaster().fine_tune(make_waves({"new": 100}), max_steps=1)
    assert list(tmp_path.iterdir()) == []


def test_intervals_are_calibrated_on_the_validation_part(tmp_path: Path) -> None:
    levels = len(LEVELS)
    forecaster = make_forecaster(
        head="quantile", quantiles=LEVELS, conformal=recognisable(2, levels=levels)
    )
    frame = make_long({"x": 150, "y": 150, "z": 150})
    tuned = forecaster.fine_tune(frame, max_steps=3, validation=30)
    assert tuned.conformal is not None
    assert tuned.conformal.offsets.shape == (4, H, 1, levels)
    windows = 30 - H + 1
    found = tuned.cross_validate(frame, windows, 1, level=80)
    inside = found["y"].between(found["tsformer-lo-80"], found["tsformer-hi-80"])
    steps = found.groupby("cutoff").cumcount() % H
    covered = inside.groupby([found["unique_id"], steps]).mean()
    assert covered.between(0.8, 0.8 + 2 / windows).all()
    tuned.save(tmp_path / "model")
    pd.testing.assert_frame_equal(
        Forecaster.load(tmp_path / "model").predict(frame, level=80), tuned.predict(frame, level=80)
    )


@pytest.mark.parametrize("case", FRAMES)
def test_any_table_that_can_be_forecast_can_be_trained_on(case: str) -> None:
    make, frame = FRAMES[case]
    forecaster = make()
    if "z" in forecaster.config.columns.target:
        frame = frame.assign(z=100 + 3 * frame["y"])
    tuned = forecaster.fine_tune(frame, max_steps=2, lr=0.01)
    found, before = (x.cross_validate(frame) for x in (tuned, forecaster))
    assert np.isfinite(found["tsformer"]).all()
    assert not np.allclose(found["tsformer"], before["tsformer"], rtol=1e-4)


def test_series_shorter_than_a_context_are_trained_on() -> None:
    frame = make_waves({f"s{number}": L - 4 for number in range(3)})
    tuned = make_forecaster().fine_tune(frame, max_epochs=1)
    assert np.isfinite(tuned.predict(frame)["tsformer"]).all()


def test_the_loss_of_the_fit_goes_on(fit_config: Any, tmp_path: Path) -> None:
    config = fit_config({"loss": "mse"})
    table = SeriesTable.from_(long_frame({"a": np.arange(100.0)}))
    described = describe_forecaster(ForecastData(table, config), config)
    assert described.loss == "mse"
    forecaster = make_forecaster()
    forecaster.config = forecaster.config.model_copy(update={"loss": "mse"})
    tuned = forecaster.fine_tune(make_waves({"a": 100}), max_steps=1, output=tmp_path / "run")
    assert tuned.config.loss == "mse"
    settings = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert settings["loss"] == "mse"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_epochs": 0}, "set max_epochs or max_steps above 0"),
        ({"max_epochs": -1}, "nothing ends the training"),
        ({"max_epochs": True}, "max_epochs=True: give a whole number from -1 up"),
        ({"lr": 0}, r"optimizer\.lr=0: Input should be greater than 0"),
        ({"batch_size": 0}, "batch_size=0: give a whole number from 1 up"),
        ({"batch_size": True}, "batch_size=True: give a whole number"),
        ({"seed": -1}, "seed=-1: give a whole number from 0 up"),
        ({"validation": 0}, r"validation=0: give a whole number from 1 up\. Or give a fraction"),
        ({"validation": 1.5}, r"validation=1\.5: give a whole number"),
        ({"validation": 3}, "the validation part, 3 steps, holds no window of horizon=6 steps"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_forecaster().fine_tune(make_long({"a": 100}), **arguments)


def test_tables_that_cannot_be_trained_on_are_refused() -> None:
    forecaster, frame = make_forecaster(), make_long({"a": 100})
    with pytest.raises(DataError, match=r"12 steps\. Training needs at least 7 steps, plus 6 for"):
        forecaster.fine_tune(frame[: 2 * H])
    with pytest.raises(DataError, match=r"100 steps\. Training needs .*, plus 95 for"):
        forecaster.fine_tune(frame, validation=95)
    with pytest.raises(DataError, match="the table needs the columns"):
        forecaster.fine_tune(frame.drop(columns="y"))
    late = frame.assign(y=frame["y"].where(frame.index < 80))
    with pytest.raises(ConfigError, match=r"validation part holds no value.*another validation"):
        forecaster.fine_tune(late)
    joint = make_forecaster(channels="joint")
    with pytest.raises(DataError, match=r"exactly these, but the table has \['a'\]"):
        joint.fine_tune(frame)


def test_a_value_and_two_horizons_are_enough() -> None:
    tuned = make_forecaster().fine_tune(make_long({"a": 2 * H + 1}), max_steps=1)
    assert len(tuned.predict(make_long({"a": 3}))) == H


def test_an_interrupt_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise Interrupted(signal.SIGINT)

    monkeypatch.setattr(fine_tuning, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make_forecaster().fine_tune(make_long({"a": 100}), max_steps=1)


def test_forecasters_of_columns_with_other_names_are_tuned() -> None:
    columns = Columns("shop", "day", ("sales",))
    frame = make_waves({"a": 100}).set_axis(["shop", "day", "sales"], axis=1)
    tuned = make_forecaster(columns=columns).fine_tune(frame, max_steps=1)
    assert tuned.config.columns == columns
    assert len(tuned.predict(frame)) == H
