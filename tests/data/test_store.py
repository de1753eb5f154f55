"""SeriesStore: what is left of it before a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.stores import store_of


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    starts=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    ends=st.lists(st.integers(-2, 20), min_size=5, max_size=5),
)
def test_until_leaves_the_rows_before(
    lengths: list[int], starts: list[int], ends: list[int]
) -> None:
    values = {f"s{s}": 100.0 * s + np.arange(length) for s, length in enumerate(lengths)}
    begins = dict(zip(values, starts, strict=False))
    store = store_of(values, begins, centers={"s0": 7.0})
    wanted = np.array(ends[: len(lengths)])
    cut = store.until(wanted)
    assert cut.ids == store.ids
    assert cut.grid.equals(store.grid[: max(wanted.max(), 1)])
    for series, end in enumerate(wanted):
        rows = store.values(series, 0, 30)
        rows[max(end, 0) :] = np.nan
        np.testing.assert_array_equal(cut.values(series, 0, 30), rows)
        assert cut.ends[series] <= max(end, cut.starts[series])


@pytest.mark.parametrize("end", [0, 3, 99])
def test_until_takes_one_end_for_all(end: int) -> None:
    store = store_of({"a": range(5), "b": range(7)}, {"b": 2})
    both = store.until(np.array([end, end]))
    one = store.until(end)
    np.testing.assert_array_equal(one.target, both.target)
    np.testing.assert_array_equal(one.offsets, both.offsets)
