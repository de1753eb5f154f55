from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.data.frames import hours, long_frame, ramp, rows_of, table_of
from tsformer.data.scaling import Scaler

END = 12  # train rows lie before it


def some_table(seed: int = 0):
    """Three series of different parts of 20 hours, with missing values and two covariates."""
    random = np.random.default_rng(seed)
    frame = long_frame(
        {
            "a": random.normal(50, 7, 20),
            "b": random.normal(-3, 0.1, 9),
            "c": random.normal(0, 1, 15),
        },
        starts={"b": 6, "c": 5},
    )
    frame["f"] = random.normal(1e3, 10, len(frame))
    frame["p"] = random.exponential(size=len(frame))
    for column in ("y", "f", "p"):
        frame.loc[random.choice(len(frame), 8, replace=False), column] = np.nan
    return table_of(frame, freq="h", future_covariates=["f"], past_covariates=["p"])


def train_rows(table, id: str) -> np.ndarray:
    part = rows_of(table, id)
    return np.arange(part.start, part.stop)[table.row_positions[part] < END]


@pytest.mark.parametrize("seed", range(5))
def test_statistics_are_those_of_the_observed_train_rows(seed):
    table = some_table(seed)
    scaler = Scaler.fit(table, END)
    for series, id in enumerate(table.ids):
        y = table.target[train_rows(table, id), 0]
        assert 0 < np.isnan(table.target).sum() < len(table.target)
        assert_allclose(scaler.mean[series, 0], np.nanmean(y), rtol=1e-12)
        assert_allclose(scaler.std[series, 0], np.nanstd(y), rtol=1e-12)
    x = table.covariates[np.concatenate([train_rows(table, id) for id in table.ids])]
    assert_allclose(scaler.covariate_mean, np.nanmean(x, axis=0), rtol=1e-12)
    assert_allclose(scaler.covariate_std, np.nanstd(x, axis=0), rtol=1e-12)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_scores_of_the_train_rows_have_mean_0_and_std_1(mean, std):
    values = mean + std * np.random.default_rng(0).normal(size=30)
    table = table_of(long_frame({"a": values}))
    scaled, _ = Scaler.fit(table, 20).transform(table)
    assert_allclose(scaled[:20].mean(), 0, atol=1e-6)
    assert_allclose(scaled[:20].std(), 1, rtol=1e-6)


def test_transform_scales_each_series_by_its_own_and_keeps_missing_values():
    table = some_table()
    scaler = Scaler.fit(table, END)
    target, covariates = scaler.transform(table)
    for series, id in enumerate(table.ids):
        rows = rows_of(table, id)
        back = target[rows] * scaler.std[series] + scaler.mean[series]
        assert_allclose(back, table.target[rows], rtol=1e-12)
    back = covariates * scaler.covariate_std + scaler.covariate_mean
    assert_allclose(back, table.covariates, rtol=1e-12)
    assert_array_equal(np.isnan(target), np.isnan(table.target))


@pytest.mark.parametrize("constant", [0.0, 0.1, 1e9 + 0.1, -7e-3])
def test_constant_series_is_scaled_to_zero_not_blown_up(constant):
    table = table_of(long_frame({"a": [constant] * 50}))
    scaler = Scaler.fit(table, 40)
    assert scaler.std[0, 0] == 1
    assert_allclose(scaler.transform(table)[0], 0, atol=1e-6)


def test_series_and_covariates_without_a_train_value_keep_0_and_1():
    frame = long_frame({"late": ramp(6), "empty": [np.nan] * 20, "a": ramp(20)}, {"late": 14})
    table = table_of(frame.assign(x=np.nan), freq="h", past_covariates=["x"])
    scaler = Scaler.fit(table, END)
    assert_array_equal(scaler.mean[:2, 0], [0, 0])
    assert_array_equal(scaler.std[:2, 0], [1, 1])
    assert_array_equal([scaler.covariate_mean, scaler.covariate_std], [[0], [1]])


def test_nothing_behind_the_train_rows_moves_the_statistics():
    table = some_table()
    later = table.row_positions >= END
    spiked = replace(
        table,
        target=np.where(later[:, None], 1e9, table.target),
        covariates=np.where(later[:, None], -1e9, table.covariates),
    )
    for name in ("mean", "std", "covariate_mean", "covariate_std"):
        assert_array_equal(
            getattr(Scaler.fit(spiked, END), name), getattr(Scaler.fit(table, END), name)
        )
    # The row before that does.
    assert not np.allclose(Scaler.fit(spiked, END + 1).mean, Scaler.fit(table, END + 1).mean)


def test_channels_of_a_joined_table_have_the_statistics_of_their_series():
    frame = pd.DataFrame({"ds": hours(20), "a": ramp(20), "b": 5 * ramp(20, 3) ** 2})
    table = table_of(frame)
    apart, joined = Scaler.fit(table, END), Scaler.fit(table.joined(), END)
    assert joined.mean.shape == (1, 2)
    assert_allclose(joined.mean, apart.mean.T)
    assert_allclose(joined.std, apart.std.T)


# adapt


def fitted() -> Scaler:
    return Scaler.fit(table_of(long_frame({"a": ramp(20), "b": ramp(20, 100) * 3})), END)


@pytest.mark.parametrize("ids", [["a", "b"], ["b", "a"], ["b"], ["a"]])
def test_known_series_keep_their_statistics_in_any_order(ids):
    scaler = fitted()
    table = table_of(long_frame({id: ramp(4, 1e6) for id in ids}))
    adapted = scaler.adapt(table)
    assert adapted.ids == tuple(ids)
    own = [scaler.ids.index(id) for id in ids]
    assert_array_equal(adapted.mean, scaler.mean[own])
    assert_array_equal(adapted.std, scaler.std[own])


def test_new_series_are_scaled_by_their_own_rows():
    scaler = fitted()
    table = table_of(long_frame({"new": [1.0, 3.0], "b": ramp(4), "empty": [np.nan, np.nan]}))
    adapted = scaler.adapt(table)
    assert_array_equal(adapted.mean[:, 0], [2, scaler.mean[1, 0], 0])
    assert_array_equal(adapted.std[:, 0], [1, scaler.std[1, 0], 1])


def test_rows_that_a_forecast_adds_do_not_count():
    table = table_of(long_frame({"new": [1.0, 3.0]}))
    adapted = fitted().adapt(table.extended(5))
    assert (adapted.mean[0, 0], adapted.std[0, 0]) == (2, 1)


def test_channels_keep_their_statistics():
    wide = pd.DataFrame({"ds": hours(20), "a": ramp(20), "b": ramp(20, 7)})
    scaler = Scaler.fit(table_of(wide).joined(), END)
    shuffled = table_of(wide[["ds", "b", "a"]].assign(a=1e6)).joined(scaler.ids)
    assert_array_equal(scaler.adapt(shuffled).mean, scaler.mean)


def test_covariates_keep_the_statistics_of_training():
    table = some_table()
    scaler = Scaler.fit(table, END)
    other = replace(table, covariates=table.covariates + 1e6)
    assert_array_equal(scaler.adapt(other).covariate_mean, scaler.covariate_mean)
    assert_array_equal(scaler.adapt(other).covariate_std, scaler.covariate_std)
