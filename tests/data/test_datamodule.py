import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_array_equal

from tests.data.frames import hours, long_frame, ramp
from tsformer.data.catalog import read_as
from tsformer.data.datamodule import ForecastDataModule
from tsformer.data.forecast_data import ForecastData
from tsformer.data.sampling import BatchSampler
from tsformer.data.windows import WindowBatch
from tsformer.errors import ConfigError, DataError

L, H = 8, 4  # of the settings that conftest.py gives


@pytest.fixture
def module(fit_config):
    def build(frame: pd.DataFrame, overrides: dict | None = None) -> ForecastData:
        config = fit_config({"dataset.freq": "h", **(overrides or {})})
        table = read_as(config.dataset, frame)
        return ForecastData(table, config)

    return build


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=count)


def wide() -> pd.DataFrame:
    return pd.DataFrame({"ds": hours(100), "a": noise(100), "b": noise(100, 1)})


def wide_with_covariates() -> pd.DataFrame:
    return wide().assign(ahead=noise(100, 2), past=noise(100, 3))


COVARIATES = {"dataset.future_covariates": ["ahead"], "dataset.past_covariates": ["past"]}


def batches_of(data: ForecastData, part: str) -> list[WindowBatch]:
    module = ForecastDataModule(data)
    if part == "test":  # which no training loads
        in_order = BatchSampler(data.test.index, data.config.eval_batch_size, shuffle=False)
        return [data.test[numbers] for numbers in in_order]
    return list(module.train_dataloader() if part == "train" else module.val_dataloader())


def gathered(data: ForecastData, part: str) -> WindowBatch:
    return WindowBatch(*map(torch.cat, zip(*batches_of(data, part), strict=True)))


def assert_equal_batches(left: list[WindowBatch], right: list[WindowBatch]) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        for name, x, y in zip(WindowBatch._fields, one, other, strict=True):
            assert torch.equal(x, y), name


def test_parts_hold_every_window_whose_targets_lie_in_them(module):
    data = module(pd.DataFrame({"ds": hours(100), "y": ramp(100)}))
    assert data.train_end == 70
    scale, shift = data.scaler.std[0], data.scaler.mean[0]
    for part, begin, end in (("validation", 70, 80), ("test", 80, 100)):
        batch = gathered(data, part)
        row = (batch.target[:, 0, 0].double() * scale + shift).round().int().tolist()
        assert row == list(range(begin, end - H + 1))
        row = (batch.context[:, 0, 0].double() * scale + shift).round().int().tolist()
        assert row == list(range(begin - L, end - H + 1 - L))
        assert batch.observed.all()
    batch = gathered(data, "train")
    first = (batch.target[:, 0, 0].double() * scale + shift).round().int()
    assert sorted(first.tolist()) == list(range(L, 70 - H + 1))


def test_lengths_of_a_split_leave_the_rest_unused(module):
    data = module(pd.DataFrame({"ds": hours(100), "y": ramp(100)}), {"dataset.split": [50, 10, 20]})
    assert (len(data.train), len(data.validation), len(data.test)) == (
        50 - L - H + 1,
        10 - H + 1,
        20 - H + 1,
    )


@pytest.mark.parametrize("channels", ["independent", "joint"])
def test_spikes_behind_the_train_rows_move_nothing_that_training_sees(module, channels):
    overrides = {**COVARIATES, "model.channels": channels}
    spiked = wide_with_covariates()
    spiked.loc[70:, ["a", "b", "ahead", "past"]] = 1e6
    data, other = module(wide_with_covariates(), overrides), module(spiked, overrides)
    for fitted in ("scaler", "covariates"):
        for name in ("mean", "std"):
            found, expected = (getattr(getattr(x, fitted), name) for x in (other, data))
            assert_array_equal(found, expected)
    assert_equal_batches(batches_of(data, "train"), batches_of(other, "train"))
    # The spike is there: validation sees it.
    assert (
        gathered(data, "validation").target.max() < 100 < gathered(other, "validation").target.max()
    )


def test_a_spike_in_the_last_train_row_is_seen(module):
    spiked = wide_with_covariates()
    spiked.loc[69, "a"] = 1e6
    assert (
        module(wide_with_covariates(), COVARIATES).scaler.mean
        != module(spiked, COVARIATES).scaler.mean
    )[0]


def test_future_features_hold_only_what_is_known_ahead(module):
    changed = wide_with_covariates().assign(past=noise(100, 9))
    data, other = module(wide_with_covariates(), COVARIATES), module(changed, COVARIATES)
    batch, changed_batch = gathered(data, "test"), gathered(other, "test")
    assert batch.past_features.shape[2] == 4 + 2
    assert batch.future_features.shape[2] == 4 + 1
    assert torch.equal(batch.future_features, changed_batch.future_features)
    assert not torch.equal(batch.past_features, changed_batch.past_features)


def test_order_of_rows_in_a_wide_frame_changes_no_batch(module):
    shuffled = wide_with_covariates().sample(frac=1, random_state=0)
    data, other = module(wide_with_covariates(), COVARIATES), module(shuffled, COVARIATES)
    for part in ("train", "validation", "test"):
        assert_equal_batches(batches_of(data, part), batches_of(other, part))


def test_order_of_rows_within_the_series_of_a_long_frame_changes_no_batch(module):
    frame = long_frame({"a": noise(100), "b": noise(80, 1)}, starts={"b": 20})
    shuffled = frame.sample(frac=1, random_state=0).sort_values("unique_id", kind="stable")
    assert not shuffled["ds"].is_monotonic_increasing
    for part in ("train", "validation", "test"):
        assert_equal_batches(batches_of(module(frame), part), batches_of(module(shuffled), part))


def test_train_batches_follow_from_seed_and_epoch(module):
    data = module(wide())
    loader = ForecastDataModule(data).train_dataloader()
    first, again = list(loader), list(loader)
    assert_equal_batches(first, again)
    assert_equal_batches(first, batches_of(module(wide()), "train"))
    second = list(ForecastDataModule(data, 2 * len(first)).train_dataloader())[len(first) :]
    assert not torch.equal(first[0].target, second[0].target)
    seeded = batches_of(module(wide(), {"seed": 1}), "train")
    assert not torch.equal(first[0].target, seeded[0].target)


def test_batches_have_their_size_and_the_last_one_the_rest(module):
    data = module(wide(), {"batch_size": 50, "eval_batch_size": 5})
    assert len(data.train) == 2 * (70 - L - H + 1)
    assert [len(batch.series) for batch in batches_of(data, "train")] == [50, 50, 18]
    assert len(data.validation) == 2 * (10 - H + 1)
    assert [len(batch.series) for batch in batches_of(data, "validation")] == [5, 5, 4]


def test_joint_channels_are_one_sample(module):
    data = module(wide_with_covariates(), {**COVARIATES, "model.channels": "joint"})
    batch = gathered(data, "test")
    assert batch.target.shape == (20 - H + 1, H, 2)
    apart = gathered(module(wide_with_covariates(), COVARIATES), "test")
    for channel in range(2):
        one = apart.series == channel
        assert torch.equal(batch.target[..., channel], apart.target[one][..., 0])
        assert torch.equal(batch.context[..., channel], apart.context[one][..., 0])


def test_joint_channels_need_common_covariates(module):
    frame = long_frame({"a": noise(100), "b": noise(100, 1)}).assign(past=noise(200, 2))
    with pytest.raises(DataError, match=r"model\.channels=independent"):
        module(frame, {"model.channels": "joint", "dataset.past_covariates": ["past"]})


def test_short_series_take_part_with_what_they_have(module):
    frame = long_frame({"a": noise(100), "short": noise(7, 1)}, starts={"short": 20})
    batch = gathered(module(frame), "train")
    own = batch.series == 1
    assert own.sum() == 1
    assert batch.observed[own][0, :, 0].tolist() == [False] * 5 + [True] * 3
    assert not batch.context[own][0, :5].any()
    assert not batch.past_features[own][0, :5].any()


def test_missing_values_are_zero_and_not_observed(module):
    frame = pd.DataFrame({"ds": hours(100), "y": 5 + noise(100)}).drop([85, 90])
    batch = gathered(module(frame), "test")
    for values, observed in (
        (batch.context, batch.observed),
        (batch.target, batch.target_observed),
    ):
        assert 0 < (~observed).sum() < observed.numel()
        assert not values[~observed].any()
        assert values[observed].all()


def test_calendar_follows_the_zone_of_the_settings_or_else_of_the_stamps(module):
    local = pd.date_range("2024-03-25", periods=300, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"ds": local, "y": noise(300)})
    utc = frame.assign(ds=local.tz_convert("UTC"))
    berlin = {"dataset.time_zone": "Europe/Berlin"}
    calendar = {
        "stamps in Berlin": module(frame).calendar,
        "stamps in UTC, Berlin set": module(utc, berlin).calendar,
        "stamps in UTC": module(utc).calendar,
        "stamps in Berlin, UTC set": module(frame, {"dataset.time_zone": "UTC"}).calendar,
    }
    assert np.array_equal(calendar["stamps in Berlin"], calendar["stamps in UTC, Berlin set"])
    assert np.array_equal(calendar["stamps in UTC"], calendar["stamps in Berlin, UTC set"])
    assert not np.array_equal(calendar["stamps in UTC"], calendar["stamps in Berlin"])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            {"context_length": 68, "horizon": 4},
            ["context_length=68", "horizon=4", "72 steps", "70 train steps", "of 100"],
        ),
        ({"horizon": 11}, ["validation part, 10 steps", "horizon=11", "dataset.split"]),
        ({"dataset.split": [0.7, 0.28, 0.02]}, ["test part, 2 steps", "horizon=4"]),
        ({"dataset.split": [70, 40, 10]}, ["test part, 0 steps"]),
        ({"dataset.split": [0, 0.5, 0.5]}, ["0 train steps"]),
    ],
)
def test_parts_that_hold_no_window_are_refused(module, overrides, words):
    with pytest.raises(ConfigError) as error:
        module(pd.DataFrame({"ds": hours(100), "y": ramp(100)}), overrides)
    for word in words:
        assert word in str(error.value)


def test_part_of_exactly_one_window_is_enough(module):
    data = module(pd.DataFrame({"ds": hours(20), "y": ramp(20)}), {"dataset.split": [L + H, H, H]})
    assert (len(data.train), len(data.validation), len(data.test)) == (1, 1, 1)


def test_a_part_whose_only_values_are_of_dropped_series_is_refused(module):
    frame = long_frame({"a": ramp(100), "short": ramp(8)}, starts={"short": 85})
    frame.loc[(frame["unique_id"] == "a") & (frame["y"] >= 80), "y"] = np.nan
    with pytest.raises(ConfigError, match="the test part holds no value of the target"):
        module(frame, {"dataset.short_series": "drop"})


def test_weights_of_all_train_windows_may_not_be_0(module):
    frame = long_frame({"a": ramp(100), "b": ramp(10)}, starts={"b": 90}).assign(w=0.0)
    frame.loc[frame["unique_id"] == "b", "w"] = 1.0
    overrides = {"dataset.target": ["y"], "dataset.weight_column": "w"}
    with pytest.raises(DataError, match="column 'w': the weights of all series with train windows"):
        module(frame, overrides)


def test_windows_are_thinned_as_the_settings_say(module):
    frame = pd.DataFrame({"ds": hours(100), "y": ramp(100)})
    all_windows = module(frame)
    thinned = module(frame, {"sampling.stride": 3, "sampling.eval_stride": 5})
    assert len(thinned.train) == -(-len(all_windows.train) // 3)
    assert len(thinned.validation) == -(-len(all_windows.validation) // 5)
    assert len(thinned.test) == -(-len(all_windows.test) // 5)


def test_the_place_in_the_year_is_a_feature_of_two_years_of_train_rows(module):
    long = pd.DataFrame({"ds": pd.date_range("2020-01-01", periods=1200, freq="D")})
    long["y"] = noise(1200)
    for rows, yearly in ((1200, True), (900, False)):  # of which 840 and 630 are trained on
        data = module(long[:rows], {"dataset.freq": "D", "dataset.calendar": True})
        assert data.yearly is yearly
        assert data.calendar.shape == (rows, 4 if yearly else 2)
        notes = [str(note) for note in data.findings.of("note")]
        told = ["The day of the year is not used as a covariate." in note for note in notes]
        assert any(told) is not yearly


def test_yearly_data_have_no_place_in_the_year(module):
    frame = pd.DataFrame({"ds": pd.date_range("1900-12-31", periods=100, freq="YE")})
    data = module(frame.assign(y=noise(100)), {"dataset.freq": "YE", "dataset.calendar": True})
    assert data.yearly is False
    assert data.calendar.shape == (100, 0)
    assert not any("less than two years" in str(note) for note in data.findings.of("note"))
