"""Series that are forecast together."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from tests.data.frames import covariates_of, long_frame, ramp
from tsformer.data.groups import channel_names, group_series
from tsformer.data.store import SeriesStore
from tsformer.data.table import SeriesTable
from tsformer.data.types import IntArray
from tsformer.errors import ConfigError, DataError


def two_series(**columns) -> pd.DataFrame:
    frame = long_frame({"a": ramp(4), "b": ramp(3, 10)}, starts={"b": 2})
    return frame.assign(**columns)


def groups_of(
    frame: pd.DataFrame, channels: str = "joint", names: list[str] | None = None, **parts
) -> tuple[SeriesStore, IntArray]:
    table = SeriesTable.from_(frame, **parts)
    return group_series(table.store, table.columns, channels, names)


def test_each_series_by_itself():
    assert_array_equal(groups_of(two_series(), "independent")[1], [[0], [1]])


def test_all_series_of_one_target_column_are_channels():
    assert_array_equal(groups_of(two_series())[1], [[0, 1]])
    wide = pd.DataFrame({"ds": pd.date_range("2024", periods=3), "a": 1.0, "b": 2.0, "c": 3.0})
    assert_array_equal(groups_of(wide)[1], [[0, 1, 2]])


def test_target_columns_of_each_id_are_channels():
    store, groups = groups_of(two_series(z=0.0), target=["y", "z"])
    assert_array_equal(groups, [[0, 1], [2, 3]])
    assert channel_names(store) == ("y", "z")


def test_target_columns_need_no_covariates_in_common_with_those_of_other_ids():
    frame = two_series(z=0.0, x=[0, 1, 2, 3, 20, 30, 40])
    store, _ = groups_of(frame, target=["y", "z"], past_covariates=["x"])
    assert_array_equal(covariates_of(store, "b/z")[0], [20, 30, 40])


def test_channels_come_in_the_order_asked_for():
    assert_array_equal(groups_of(two_series(), names=["b", "a"])[1], [[1, 0]])


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], ["a", "c"]])
def test_other_channels_than_the_series_are_refused(names):
    with pytest.raises(DataError) as error:
        groups_of(two_series(), names=names)
    assert str(names) in str(error.value)
    assert "['a', 'b']" in str(error.value)


def test_joint_series_share_their_covariates():
    frame = two_series()
    frame["x"] = frame["ds"].dt.hour + 100.0
    store, _ = groups_of(frame, target=["y"], past_covariates=["x"])
    assert_array_equal(store.covariates[:, 0], ramp(5, 100))
    assert_array_equal(covariates_of(store, "b")[0], ramp(3, 102))


def test_missing_covariates_of_joint_series_stay_missing():
    frame = two_series(x=[0, np.nan, 2, 3, 2, 3, 4])
    store, _ = groups_of(frame, target=["y"], past_covariates=["x"])
    assert_array_equal(store.covariates[:, 0], [0, np.nan, 2, 3, 4])


@pytest.mark.parametrize("other", [9.0, np.nan])
def test_differing_covariates_of_joint_series_are_refused(other):
    frame = two_series(x=[0, 1, 2, 3, 2, other, 4])
    with pytest.raises(DataError, match=r"model\.channels=independent"):
        groups_of(frame, target=["y"], past_covariates=["x"])


def test_joint_series_have_no_static_covariates():
    frame = two_series(size=1.0)
    with pytest.raises(ConfigError, match=r"static covariates \['size'\]"):
        groups_of(frame, target=["y"], static_covariates=["size"])


def test_series_without_covariates_need_none_in_common():
    store, _ = groups_of(two_series())
    assert replace(store).covariates.shape[1] == 0
