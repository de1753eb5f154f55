"""What a head or a transform asks of targets, told by series and stamp."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.stores import store_of
from tsformer.data.checks import check_counts
from tsformer.data.findings import Findings
from tsformer.errors import DataError


def check(store, head="negative_binomial"):
    findings = Findings()
    check_counts(store, head, findings)
    findings.refuse()


@given(
    st.lists(st.integers(0, 2**40) | st.just(np.nan), min_size=1, max_size=20),
    st.sampled_from([0.0, 2**20 + 0.5]),
)
def test_whole_numbers_from_0_up_are_counts(values, center):
    check(store_of({"a": values, "b": [np.nan]}, centers={"a": center}))


@pytest.mark.parametrize("block", [3, 1 << 22])
def test_the_first_value_that_is_no_count_is_named(block, monkeypatch):
    monkeypatch.setattr("tsformer.data.store.BLOCK_ROWS", block)
    store = store_of(
        {"a": [0.0, 5.0], "b": [np.nan, 1e6, -1.0, 3.0], "c": [2.5, 1e6 + 0.5]},
        {"b": 3},
        start="2024-03-01",
    )
    message = r"^series 'b', 2024-03-01 05:00:00: -1 is not a count .*_binomial needs \(3 in all\)"
    with pytest.raises(DataError, match=message):
        check(store)
    with pytest.raises(DataError, match=r"series 'c', 2024-03-01 00:00:00: 2\.5 is not a count"):
        check(store_of({"c": [2.5]}, start="2024-03-01"))


@pytest.mark.parametrize("head", ["point", "quantile", "normal", "student_t"])
def test_other_heads_take_any_value(head):
    check(store_of({"a": [-1.0, 0.5]}), head)
