"""Windows against a plain oracle: Python loops over the series' values."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.data.frames import hours, long_frame, ramp, table_of
from tsformer.data.calendar import calendar_features
from tsformer.data.scaling import Scaler
from tsformer.data.store import SeriesStore
from tsformer.data.windows import BatchSampler, WindowBatch, WindowDataset, WindowIndex

CALENDAR = calendar_features(hours(50), "h")


@dataclass
class Case:
    """Series on an hourly grid, and a part of it whose windows are asked for."""

    lengths: list[int]
    starts: list[int]
    missing: list[set[int]]  # rows of each series that hold no value
    context_length: int
    horizon: int
    begin: int
    end: int

    def value(self, series: int, position: int) -> float | None:
        row = position - self.starts[series]
        if row < 0 or row in self.missing[series]:
            return None
        return 100.0 * (series + 1) + row

    def covariates(self, series: int, position: int) -> tuple[float, float]:
        """One known ahead and one known up to now."""
        row = position - self.starts[series]
        return 1000.0 * (series + 1) + row, -1000.0 * (series + 1) - row

    def windows(self) -> list[tuple[int, int]]:
        """Series and first target position of every window, in order."""
        found = []
        for series, (length, start) in enumerate(zip(self.lengths, self.starts, strict=True)):
            stop = min(start + length, self.end)
            context = min(self.context_length, stop - start - self.horizon)
            for origin in range(self.begin, stop - self.horizon + 1):
                if context >= 1 and origin - context >= start:
                    found.append((series, origin))
        return found

    def dataset(self) -> WindowDataset:
        ids = [f"s{i}" for i in range(len(self.lengths))]
        frame = long_frame(
            {id: ramp(length) for id, length in zip(ids, self.lengths, strict=True)},
            dict(zip(ids, self.starts, strict=True)),
        )
        where = [
            (series, start + row)
            for series, start in enumerate(self.starts)
            for row in range(self.lengths[series])
        ]
        frame["y"] = [np.nan if (y := self.value(*place)) is None else y for place in where]
        frame[["ahead", "past"]] = [self.covariates(*place) for place in where]
        table = table_of(frame, freq="h", future_covariates=["ahead"], past_covariates=["past"])
        # Statistics 0 and 1 leave the values as they are, exact in float32.
        count = len(ids)
        scaler = Scaler(
            tuple(ids), np.zeros((count, 1)), np.ones((count, 1)), np.zeros(2), np.ones(2)
        )
        index = WindowIndex.between(
            table.offsets,
            table.starts,
            begin=self.begin - min(self.starts),
            end=self.end - min(self.starts),
            context_length=self.context_length,
            horizon=self.horizon,
        )
        return WindowDataset(
            SeriesStore.build(table, scaler, calendar=True, time_zone=None),
            index,
            context_length=self.context_length,
            horizon=self.horizon,
            num_future_covariates=1,
        )


@st.composite
def cases(draw) -> Case:
    count = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(1, 25), min_size=count, max_size=count))
    starts = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    missing = [draw(st.sets(st.integers(0, length - 1))) for length in lengths]
    first, last = min(starts), max(map(sum, zip(starts, lengths, strict=True)))
    begin, end = sorted([draw(st.integers(first, last)), draw(st.integers(first, last))])
    return Case(
        lengths, starts, missing, draw(st.integers(1, 8)), draw(st.integers(1, 5)), begin, end
    )


def check_window(case: Case, batch: WindowBatch, i: int, series: int, origin: int) -> None:
    """Compare window i of a batch, step by step."""
    length, horizon = case.context_length, case.horizon
    assert batch.series[i] == series
    for step in range(-length, horizon):
        position = origin + step
        value = case.value(series, position)
        inside = position >= case.starts[series]
        calendar = (
            list(calendar_features(hours(position + 1)[-1:], "h")[0]) if inside else [0.0] * 6
        )
        ahead, past = case.covariates(series, position) if inside else (0.0, 0.0)
        if step < 0:
            at = (i, step + length)
            found = batch.context[at].item(), batch.observed[at].item()
            assert batch.past_features[at].tolist() == [*calendar, ahead, past]
        else:
            at = (i, step)
            found = batch.target[at].item(), batch.target_observed[at].item()
            assert batch.future_features[at].tolist() == [*calendar, ahead]
        assert found == ((0.0, False) if value is None else (value, True))


@given(cases())
def test_every_window_is_there_once_and_equals_a_slice_of_its_series(case):
    dataset, expected = case.dataset(), case.windows()
    assert len(dataset) == len(expected)
    if not expected:
        return
    batch = dataset[np.arange(len(expected))]
    sizes = {len(x) for x in batch}
    assert sizes == {len(expected)}
    for i, (series, origin) in enumerate(expected):
        check_window(case, batch, i, series, origin)


@given(cases(), st.randoms(use_true_random=False))
def test_a_batch_may_ask_for_windows_in_any_order_and_twice(case, random):
    dataset, expected = case.dataset(), case.windows()
    if not expected:
        return
    picked = np.array([random.randrange(len(expected)) for _ in range(7)])
    batch, every = dataset[picked], dataset[np.arange(len(expected))]
    for part, whole in zip(batch, every, strict=True):
        assert torch.equal(part, whole[torch.from_numpy(picked)])


def test_shapes_and_types():
    batch = Case([20, 9], [0, 4], [set(), {2}], 5, 3, 0, 20).dataset()[np.arange(6)]
    assert {name: tuple(x.shape) for name, x in batch._asdict().items()} == {
        "context": (6, 5, 1),
        "observed": (6, 5, 1),
        "past_features": (6, 5, 8),
        "future_features": (6, 3, 7),
        "target": (6, 3, 1),
        "target_observed": (6, 3, 1),
        "series": (6,),
    }
    assert batch.context.dtype == batch.past_features.dtype == torch.float32
    assert batch.observed.dtype == batch.target_observed.dtype == torch.bool


def test_short_series_gives_one_window_padded_on_the_left():
    dataset = Case([6], [0], [set()], 8, 2, 0, 6).dataset()
    assert len(dataset) == 1
    batch = dataset[np.array([0])]
    assert batch.context[0, :, 0].tolist() == [0, 0, 0, 0, 100, 101, 102, 103]
    assert batch.observed[0, :, 0].tolist() == [False] * 4 + [True] * 4
    assert not batch.past_features[0, :4].any()
    assert batch.target[0, :, 0].tolist() == [104, 105]


def test_padding_never_shows_the_series_before():
    dataset = Case([10, 6], [0, 0], [set(), set()], 8, 2, 0, 10).dataset()
    batch = dataset[np.array([len(dataset) - 1])]
    assert batch.series.tolist() == [1]
    assert batch.context[0, :, 0].tolist() == [0, 0, 0, 0, 200, 201, 202, 203]


@pytest.mark.parametrize("length", [1, 2])
def test_series_without_a_context_step_gives_no_window(length):
    assert len(Case([length], [0], [set()], 8, 2, 0, 10).dataset()) == 0


# BatchSampler


samplers = st.fixed_dictionaries(
    {
        "num_windows": st.integers(1, 60),
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
    assert sorted(order_of(sampler)) == list(range(arguments["num_windows"]))
    *full, last = map(len, batches)
    assert set(full) <= {arguments["batch_size"]}
    assert 1 <= last <= arguments["batch_size"]


def test_without_shuffling_windows_come_in_order():
    assert [b.tolist() for b in BatchSampler(5, 2, shuffle=False)] == [[0, 1], [2, 3], [4]]


def test_shuffled_order_follows_from_seed_and_epoch():
    def order(seed: int, epoch: int) -> list[int]:
        sampler = BatchSampler(100, 7, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        return order_of(sampler)

    orders = {(seed, epoch): order(seed, epoch) for seed in range(3) for epoch in range(3)}
    assert orders == {key: order(*key) for key in orders}
    assert len(set(map(tuple, orders.values()))) == 9
    assert list(range(100)) not in orders.values()


def test_order_of_an_epoch_does_not_depend_on_the_epochs_before():
    resumed, straight = (BatchSampler(50, 8, shuffle=True, seed=1) for _ in range(2))
    for epoch in range(3):
        straight.set_epoch(epoch)
        last = order_of(straight)
    resumed.set_epoch(2)
    assert order_of(resumed) == last


def test_order_does_not_depend_on_the_global_generators():
    sampler = BatchSampler(50, 8, shuffle=True)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    first = order_of(sampler)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(2)
    assert order_of(sampler) == first


@given(samplers, st.integers(1, 5))
def test_ranks_share_windows_out_in_order(arguments, world_size):
    orders = []
    for rank in range(world_size):
        sampler = BatchSampler(**arguments, shuffle=False, rank=rank, world_size=world_size)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        orders += [i for batch in batches for i in batch]
    assert sorted(orders) == list(range(arguments["num_windows"]))


@given(samplers, st.integers(1, 5), st.integers(0, 3))
def test_shuffling_ranks_take_as_many_steps_and_leave_nothing_out(arguments, world_size, epoch):
    sizes, seen = set(), []
    for rank in range(world_size):
        sampler = BatchSampler(**arguments, shuffle=True, rank=rank, world_size=world_size)
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert len(batches) == len(sampler)
        sizes.add(tuple(map(len, batches)))
        seen += [i for batch in batches for i in batch]
    assert len(sizes) == 1
    assert set(seen) == set(range(arguments["num_windows"]))
    assert len(seen) - arguments["num_windows"] < world_size
