"""Where the parts of a table end."""

from hypothesis import given
from hypothesis import strategies as st

from tsformer.data.splits import split_ends


@given(st.integers(1, 10**7))
def test_fractions_follow_the_published_protocol(length):
    train, test = int(length * 0.7), int(length * 0.2)
    validation = length - train - test
    assert split_ends([0.7, 0.1, 0.2], length) == (train, train + validation, length)


def test_lengths_are_taken_from_the_start_and_the_rest_is_unused():
    assert split_ends([8640, 2880, 2880], 17_420) == (8640, 11_520, 14_400)


def test_lengths_beyond_the_data_end_with_them():
    assert split_ends([6, 2, 5], 10) == (6, 8, 10)


def test_thirds_that_do_not_quite_sum_to_1_are_fractions():
    assert split_ends([0.6, 0.3, 0.1], 100)[2] == 100


def test_fractions_below_1_leave_the_end_unused():
    assert split_ends([0.5, 0.1, 0.2], 100) == (50, 60, 80)
