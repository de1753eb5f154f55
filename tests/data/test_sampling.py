"""The order of windows: each once, alike for all ranks, from seed and epoch alone."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from tsformer.data.sampling import BatchSampler, TrainingSampler
from tsformer.data.windows import WindowIndex
from tsformer.errors import DataError


def plain_index(num_windows: int) -> WindowIndex:
    return uneven_index([num_windows])


def uneven_index(counts: list[int]) -> WindowIndex:
    """Index of groups with so many windows each."""
    groups = np.arange(len(counts))[:, None]
    return WindowIndex(groups, np.zeros(len(counts), np.int64), np.cumsum([0, *counts]))


samplers = st.fixed_dictionaries(
    {
        "index": st.integers(1, 60).map(plain_index),
        "batch_size": st.integers(1, 20),
        "seed": st.integers(0, 3),
    }
)


def order_of(sampler: BatchSampler) -> list[int]:
    return np.concatenate(list(sampler)).tolist()


@given(samplers, st.booleans())
def test_every_window_once_an_epoch_and_no_batch_dropped(arguments, shuffle):
    sampler = BatchSampler(**arguments, shuffle=shuffle)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert sorted(order_of(sampler)) == list(range(len(arguments["index"])))
    *full, last = map(len, batches)
    assert set(full) <= {arguments["batch_size"]}
    assert 1 <= last <= arguments["batch_size"]


def test_without_shuffling_windows_come_in_order():
    sampler = BatchSampler(plain_index(5), 2, shuffle=False)
    assert [batch.tolist() for batch in sampler] == [[0, 1], [2, 3], [4]]


def test_shuffled_order_follows_from_seed_and_epoch():
    def order(seed: int, epoch: int) -> list[int]:
        sampler = BatchSampler(plain_index(100), 7, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        return order_of(sampler)

    orders = {(seed, epoch): order(seed, epoch) for seed in range(3) for epoch in range(3)}
    assert orders == {key: order(*key) for key in orders}
    assert len(set(map(tuple, orders.values()))) == 9
    assert list(range(100)) not in orders.values()


def test_order_of_an_epoch_does_not_depend_on_the_epochs_before():
    resumed, straight = (BatchSampler(plain_index(50), 8, shuffle=True, seed=1) for _ in range(2))
    for epoch in range(3):
        straight.set_epoch(epoch)
        last = order_of(straight)
    resumed.set_epoch(2)
    assert order_of(resumed) == last


@given(samplers, st.integers(1, 40), st.integers(0, 40), st.integers(1, 3))
def test_a_training_goes_on_with_the_batch_that_it_stopped_at(
    arguments, num_batches, first, world_size
):
    def batches(first: int) -> list[list[int]]:
        epochs = BatchSampler(**arguments, shuffle=True, rank=0, world_size=world_size)
        sampler = TrainingSampler(epochs, num_batches, first)
        assert len(sampler) == num_batches
        return [batch.tolist() for batch in sampler]

    whole = batches(0)
    assert len(whole) == num_batches
    assert batches(first) == whole[first:]


def test_a_training_is_its_epochs_one_after_another():
    epochs = BatchSampler(plain_index(10), 4, shuffle=True, seed=5)
    whole = [batch.tolist() for batch in TrainingSampler(epochs, 7)]
    expected = []
    for epoch in range(3):
        epochs.set_epoch(epoch)
        expected += [batch.tolist() for batch in epochs]
    assert whole == expected[:7]


def test_order_does_not_depend_on_the_global_generators():
    sampler = BatchSampler(plain_index(50), 8, shuffle=True)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    first = order_of(sampler)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(2)
    assert order_of(sampler) == first


@given(samplers, st.integers(1, 5))
def test_ranks_share_windows_out_in_order(arguments, world_size):
    orders, lengths = [], set()
    for rank in range(world_size):
        sampler = BatchSampler(**arguments, shuffle=False, rank=rank, world_size=world_size)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        lengths.add(len(batches))  # ranks wait for each other at every batch
        orders += [i for batch in batches for i in batch]
    assert sorted(orders) == list(range(len(arguments["index"])))
    assert len(lengths) == 1


@given(samplers, st.integers(1, 5), st.integers(0, 3), st.none() | st.integers(1, 90))
def test_shuffling_ranks_take_as_many_steps_and_leave_nothing_out(
    arguments, world_size, epoch, windows_per_epoch
):
    sizes, seen = set(), []
    for rank in range(world_size):
        sampler = BatchSampler(
            **arguments,
            shuffle=True,
            windows_per_epoch=windows_per_epoch,
            rank=rank,
            world_size=world_size,
        )
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        sizes.add(tuple(map(len, batches)))
        seen += [i for batch in batches for i in batch]
    assert len(sizes) == 1
    total = len(arguments["index"])
    asked = windows_per_epoch or total
    assert 0 <= len(seen) - asked < world_size
    # No window comes again before all have come.
    assert len(set(seen)) == min(asked, total)
    assert set(seen) <= set(range(total))
    assert np.ptp(np.unique(seen, return_counts=True)[1]) <= 1


@pytest.mark.parametrize("windows_per_epoch", [10, 300])
def test_epochs_of_fewer_windows_go_through_different_ones(windows_per_epoch):
    sampler = BatchSampler(plain_index(600), 7, shuffle=True, windows_per_epoch=windows_per_epoch)
    drawn = []
    for epoch in range(60):
        sampler.set_epoch(epoch)
        order = order_of(sampler)
        assert len(set(order)) == len(order) == windows_per_epoch
        drawn += order
    counts = np.bincount(drawn, minlength=600)
    mean = windows_per_epoch / 10
    assert abs(counts - mean).max() < 6 * np.sqrt(mean) + 2
    assert abs(np.mean(drawn) - 299.5) < 600 / np.sqrt(12 * len(drawn)) * 4


def shares(counts: list[int], **settings) -> np.ndarray:
    """Share of the windows of each group among many draws."""
    index = uneven_index(counts)
    sampler = BatchSampler(index, 1000, shuffle=True, windows_per_epoch=40_000, **settings)
    drawn = np.array(order_of(sampler))
    assert len(drawn) == 40_000
    group, origin = index.locate(drawn)
    for g, count in enumerate(counts):  # all windows of a group are as likely
        if (group == g).any():
            mean = (group == g).sum() / count
            assert (
                abs(np.bincount(origin[group == g], minlength=count) - mean).max() < 6 * mean**0.5
            )
    return np.bincount(group, minlength=len(counts)) / len(drawn)


COUNTS = [100, 0, 1, 20, 0]
WEIGHTS = np.array([1.0, 5.0, 3.0, 0.0, 1.0])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"over": "series"}, [1 / 3, 0, 1 / 3, 1 / 3, 0]),
        ({"over": "series", "weights": WEIGHTS}, [1 / 4, 0, 3 / 4, 0, 0]),
        ({"weights": WEIGHTS}, [100 / 103, 0, 3 / 103, 0, 0]),
        ({"weights": np.ones(5)}, [100 / 121, 0, 1 / 121, 20 / 121, 0]),
        ({}, [100 / 121, 0, 1 / 121, 20 / 121, 0]),
    ],
    ids=["series", "weighted series", "weighted windows", "equal weights", "windows"],
)
def test_groups_are_drawn_as_often_as_asked(settings, expected):
    assert_allclose(shares(COUNTS, **settings), expected, atol=0.01)


def test_draws_over_series_are_as_many_as_windows_unless_told():
    sampler = BatchSampler(uneven_index(COUNTS), 50, shuffle=True, over="series")
    assert len(sampler) == 3
    assert len(order_of(sampler)) == 121


def test_draws_with_weights_follow_from_seed_and_epoch():
    def order(seed: int, epoch: int) -> list[int]:
        sampler = BatchSampler(
            uneven_index(COUNTS), 50, shuffle=True, over="series", weights=WEIGHTS, seed=seed
        )
        sampler.set_epoch(epoch)
        return order_of(sampler)

    assert order(1, 2) == order(1, 2)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


def test_weights_that_leave_nothing_to_draw_are_refused():
    with pytest.raises(DataError, match="weights of all series with train windows are 0"):
        BatchSampler(uneven_index([3, 0]), 2, shuffle=True, weights=np.array([0.0, 1.0]))


@pytest.mark.parametrize("settings", [{}, {"over": "series"}, {"weights": np.array([1.0, 2.0])}])
def test_few_draws_of_many_windows_need_little_memory(settings):
    index = uneven_index([10**12, 10**13])
    tracemalloc.start()
    order = order_of(BatchSampler(index, 100, shuffle=True, windows_per_epoch=1000, **settings))
    next(iter(BatchSampler(index, 100, shuffle=False)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(order)) == 1000
    assert peak < 10**6
