"""Windows against a plain oracle: Python loops over the series' values."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch.utils.data import DataLoader

from tests.data.stores import columns_of, store_of
from tsformer.data.covariates import CovariateEncoder, shared_covariates
from tsformer.data.sampling import BatchSampler
from tsformer.data.scaling import Scaler
from tsformer.data.store import SeriesStore
from tsformer.data.windows import (
    WindowBatch,
    WindowDataset,
    WindowIndex,
)

GRID = 40
# Numbers that float32 holds exactly, and no two alike.
CALENDAR = np.stack([np.arange(GRID) + 0.5, -np.arange(GRID) - 1.0], axis=1).astype(np.float32)


def as_it_is(count: int) -> CovariateEncoder:
    """Encoder that changes nothing but missing values."""
    names = tuple(f"x{i}" for i in range(count))
    return CovariateEncoder(names, np.zeros(count), np.ones(count), {})


def unscaled(store: SeriesStore) -> Scaler:
    return Scaler.fit(store, 0, per="none")


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
    groups: list[list[int]]  # series that are forecast together
    stride: int = 1
    leave_out: frozenset[int] = frozenset()

    @property
    def joint(self) -> bool:
        return len(self.groups[0]) > 1

    def value(self, series: int, position: int) -> float | None:
        row = position - self.starts[series]
        if not 0 <= row < self.lengths[series] or row in self.missing[series]:
            return None
        return 100.0 * (series + 1) + row

    def covariates(self, group: int, position: int) -> tuple[float, float]:
        """One known ahead and one known up to now; joint series share them."""
        rows = [
            series
            for series in range(len(self.lengths))
            if 0 <= position - self.starts[series] < self.lengths[series]
        ]
        if self.joint:
            return (1000.0 + position, -1000.0 - position) if rows else (0.0, 0.0)
        series = self.groups[group][0]
        return 1000.0 * (series + 1) + position, -1000.0 * (series + 1) - position

    def span(self, group: int) -> tuple[int, int]:
        members = self.groups[group]
        return (
            min(self.starts[series] for series in members),
            max(self.starts[series] + self.lengths[series] for series in members),
        )

    def windows(self) -> list[tuple[int, int]]:
        """Group and first target position of every window, in order."""
        found = []
        for group in range(len(self.groups)):
            start, stop = self.span(group)
            stop = min(stop, self.end)
            context = min(self.context_length, stop - start - self.horizon)
            origins = [
                origin
                for origin in range(self.begin, stop - self.horizon + 1)
                if context >= 1 and origin - context >= start
            ]
            if group not in self.leave_out:
                found += [(group, origin) for origin in origins[:: self.stride]]
        return found

    def store(self) -> SeriesStore:
        ids = [f"s{i}" for i in range(len(self.lengths))]
        values, covariates = {}, {}
        for series, (id, start) in enumerate(zip(ids, self.starts, strict=True)):
            positions = range(start, start + self.lengths[series])
            own = [self.value(series, position) for position in positions]
            values[id] = [np.nan if value is None else value for value in own]
            group = next(g for g, members in enumerate(self.groups) if series in members)
            covariates[id] = [self.covariates(group, position) for position in positions]
        store = store_of(
            values,
            dict(zip(ids, self.starts, strict=True)),
            covariates=covariates,
            static=[[series + 0.25, -series] for series in range(len(ids))],
            length=GRID,
        )
        return shared_covariates(store) if self.joint else store

    def dataset(self, store: SeriesStore | None = None) -> WindowDataset:
        store = store or self.store()
        index = WindowIndex.between(
            store,
            np.array(self.groups),
            begin=self.begin,
            end=self.end,
            context_length=self.context_length,
            horizon=self.horizon,
            stride=self.stride,
            leave_out=np.isin(np.arange(len(self.groups)), list(self.leave_out)),
        )
        return dataset_of(store, index, self.context_length, self.horizon)


def dataset_of(store, index, context_length, horizon, *, scaler=None, **settings) -> WindowDataset:
    return WindowDataset(
        store,
        index,
        scaler or unscaled(store),
        as_it_is(store.covariates.shape[1]),
        as_it_is(store.static.shape[1]),
        **{"calendar": CALENDAR, "num_future_covariates": 1, **settings},
        context_length=context_length,
        horizon=horizon,
    )


def alone(count: int) -> list[list[int]]:
    return [[series] for series in range(count)]


@st.composite
def cases(draw) -> Case:
    count = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(1, 25), min_size=count, max_size=count))
    starts = draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
    missing = [draw(st.sets(st.integers(0, length - 1))) for length in lengths]
    begin, end = sorted([draw(st.integers(0, 37)), draw(st.integers(0, 37))])
    order = draw(st.permutations(range(count)))
    groups = draw(
        st.sampled_from([alone(count), [order], [order[: count // 2], order[-count // 2 :]]])
    )
    if len({len(group) for group in groups}) > 1 or not groups[0]:
        groups = alone(count)
    return Case(
        lengths,
        starts,
        missing,
        draw(st.integers(1, 8)),
        draw(st.integers(1, 5)),
        begin,
        end,
        groups,
        draw(st.integers(1, 4)),
        draw(st.frozensets(st.integers(0, 3), max_size=1)),
    )


def check_window(case: Case, batch: WindowBatch, i: int, group: int, origin: int) -> None:
    """Compare window i of a batch, step by step."""
    length, horizon = case.context_length, case.horizon
    assert batch.series[i] == group
    first = case.groups[group][0]
    assert batch.static_features[i].tolist() == [first + 0.25, -first]
    start, stop = case.span(group)
    for step in range(-length, horizon):
        position = origin + step
        inside = start <= position < stop
        calendar = CALENDAR[position].tolist() if inside else [0.0, 0.0]
        ahead, past = case.covariates(group, position) if inside else (0.0, 0.0)
        if step < 0:
            at = (i, step + length)
            found = batch.context[at].tolist(), batch.observed[at].tolist()
            assert batch.past_features[at].tolist() == [*calendar, ahead, past]
        else:
            at = (i, step)
            found = batch.target[at].tolist(), batch.target_observed[at].tolist()
            assert batch.future_features[at].tolist() == [*calendar, ahead]
        values = [case.value(series, position) for series in case.groups[group]]
        assert found == (
            [0.0 if value is None else value for value in values],
            [value is not None for value in values],
        )


@given(cases())
def test_every_window_is_there_once_and_equals_a_slice_of_its_series(case):
    dataset, expected = case.dataset(), case.windows()
    assert len(dataset) == len(expected)
    if not expected:
        return
    batch = dataset[np.arange(len(expected))]
    sizes = {len(x) for x in batch}
    assert sizes == {len(expected)}
    for i, (group, origin) in enumerate(expected):
        check_window(case, batch, i, group, origin)


@given(cases(), st.randoms(use_true_random=False))
def test_a_window_does_not_depend_on_the_others_of_its_batch(case, random):
    dataset, expected = case.dataset(), case.windows()
    if not expected:
        return
    picked = np.array([random.randrange(len(expected)) for _ in range(7)])
    batch, every = dataset[picked], dataset[np.arange(len(expected))]
    for i, window in enumerate(picked):
        single = dataset[np.array([window])]
        for part, one, whole in zip(batch, single, every, strict=True):
            assert torch.equal(part[i], one[0])
            assert torch.equal(part[i], whole[window])


@given(cases())
def test_a_store_on_disk_gives_the_batches_of_one_in_memory(tmp_path_factory, case):
    folder, store = tmp_path_factory.mktemp("store"), case.store()
    mapped = {}
    for name in ("target", "covariates", "static", "offsets", "starts"):
        np.save(folder / name, getattr(store, name))
        mapped[name] = np.load(folder / f"{name}.npy", mmap_mode="r")
    windows = np.arange(len(case.windows()))
    if not len(windows):
        return
    expected = case.dataset(store)[windows]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = case.dataset(replace(store, **mapped))
        for x, y in zip(dataset[windows], expected, strict=True):
            assert torch.equal(x, y)
            x.zero_()  # a batch is memory of its own
        assert torch.equal(dataset[windows].context, expected.context)


def one_case(**changes) -> Case:
    case = Case([20, 9], [0, 4], [set(), {2}], 5, 3, 0, 20, alone(2))
    return replace(case, **changes)


@pytest.mark.parametrize("groups", [alone(2), [[1, 0]]])
def test_shapes_and_types(groups):
    batch = one_case(groups=groups).dataset()[np.arange(6)]
    channels = len(groups[0])
    assert {name: tuple(x.shape) for name, x in batch._asdict().items()} == {
        "context": (6, 5, channels),
        "observed": (6, 5, channels),
        "past_features": (6, 5, 4),
        "future_features": (6, 3, 3),
        "static_features": (6, 2),
        "target": (6, 3, channels),
        "target_observed": (6, 3, channels),
        "series": (6,),
    }
    numbers = ("context", "past_features", "future_features", "static_features", "target")
    assert {getattr(batch, name).dtype for name in numbers} == {torch.float32}
    assert batch.observed.dtype == batch.target_observed.dtype == torch.bool
    assert [id(x) for x in batch.inputs] == [id(x) for x in batch[:5]]


def test_short_series_gives_one_window_padded_on_the_left():
    dataset = Case([6], [2], [set()], 8, 2, 0, 8, alone(1)).dataset()
    assert len(dataset) == 1
    batch = dataset[np.array([0])]
    assert batch.context[0, :, 0].tolist() == [0, 0, 0, 0, 100, 101, 102, 103]
    assert batch.observed[0, :, 0].tolist() == [False] * 4 + [True] * 4
    assert not batch.past_features[0, :4].any()
    assert batch.target[0, :, 0].tolist() == [104, 105]


def test_padding_never_shows_the_series_before():
    dataset = Case([10, 6], [0, 0], [set(), set()], 8, 2, 0, 10, alone(2)).dataset()
    batch = dataset[np.array([len(dataset) - 1])]
    assert batch.series.tolist() == [1]
    assert batch.context[0, :, 0].tolist() == [0, 0, 0, 0, 200, 201, 202, 203]


@pytest.mark.parametrize(("lengths", "starts"), [([10, 9], [1, 1]), ([10, 9], [1, 2])])
def test_windows_one_step_beyond_a_series_of_their_group(lengths, starts):
    case = Case(lengths, starts, [set(), set()], 6, 4, 0, 11, [[0, 1]])
    dataset = case.dataset()
    assert case.windows() == [(0, 7)]
    check_window(case, dataset[np.array([0])], 0, 0, 7)


@pytest.mark.parametrize("length", [1, 2])
def test_series_without_a_context_step_gives_no_window(length):
    assert len(Case([length], [0], [set()], 8, 2, 0, 10, alone(1)).dataset()) == 0


# Scaling and encoding


def check_scaled(store: SeriesStore, scaler: Scaler, **tolerance) -> None:
    """Compare all windows with values that are scaled in double precision."""
    groups = np.arange(len(store.ids))[:, None]
    index = WindowIndex.between(
        store, groups, begin=0, end=len(store.grid), context_length=6, horizon=2
    )
    windows = np.arange(len(index))
    batch = dataset_of(store, index, 6, 2, scaler=scaler, num_future_covariates=0)[windows]
    found = torch.cat([batch.context, batch.target], dim=1)[..., 0].numpy()
    series, origin = index.locate(windows)
    spans = zip(series, origin - 6, origin + 2, strict=True)
    values = np.stack([store.values(*span) for span in spans])
    expected = np.nan_to_num(scaler.scale(values, series))
    assert np.isnan(values).any()
    assert_allclose(found, expected, **tolerance)


@pytest.mark.parametrize("transform", ["none", "log1p", "asinh"])
@pytest.mark.parametrize("per", ["series", "dataset", "none"])
def test_windows_are_in_the_scalers_units(per, transform):
    random = np.random.default_rng(0)
    values = {"a": random.exponential(50, 30), "b": random.exponential(0.1, 5)}
    values["a"][[4, 17]] = np.nan
    store = store_of(values, {"b": 9}, centers={"a": 30.0})
    scaler = Scaler.fit(store, 25, per=per, transform=transform)
    check_scaled(store, scaler, rtol=1e-5, atol=1e-5)


def test_small_steps_far_from_0_keep_their_digits():
    steps = np.random.default_rng(0).normal(0, 0.01, 30)
    store = store_of({"a": 1e9 + steps}, centers={"a": 1e9})
    scaler = Scaler.fit(store, 25)
    index = WindowIndex.between(
        store, np.array([[0]]), begin=29, end=30, context_length=29, horizon=1
    )
    batch = dataset_of(store, index, 29, 1, scaler=scaler)[np.array([0])]
    expected = (steps - steps[:25].mean()) / steps[:25].std()
    # Double precision holds 1e9 to 1.2e-7, a ten-thousandth of these steps.
    assert_allclose(batch.context[0, :, 0], expected[:29], atol=1e-4)


def test_covariates_are_encoded_with_the_stores_own_codes():
    store = store_of(
        {"a": np.zeros(6)},
        covariates={"a": [[0, 5], [1, 7], [np.nan, np.nan], [1, 9], [2, 5], [0, 5]]},
        static=[[1]],
        categories={"kind": ("eel", "dog", "cat"), "town": ("Bonn", "Ulm")},
    )
    columns = columns_of(future=["kind"], past=["n"], static=["town"], categorical=["kind", "town"])
    covariates = CovariateEncoder(
        columns.covariates, np.array([0.0, 5]), np.array([1.0, 2]), {"kind": ("cat", "dog")}
    )
    static = CovariateEncoder(("town",), np.zeros(1), np.ones(1), {"town": ("Kiel", "Ulm")})
    index = WindowIndex.between(store, np.array([[0]]), begin=0, end=6, context_length=4, horizon=2)
    batch = WindowDataset(
        store, index, unscaled(store), covariates, static, np.zeros((6, 0), np.float32),
        context_length=4, horizon=2, num_future_covariates=1,
    )[np.array([0])]  # fmt: skip
    assert batch.past_features[0].tolist() == [[0, 0], [2, 1], [0, 0], [2, 2]]
    assert batch.future_features[0].tolist() == [[1], [0]]
    assert batch.static_features[0].tolist() == [2]


# Prediction


def ahead(store: SeriesStore, groups: np.ndarray) -> WindowIndex:
    """One window a group, whose targets lie behind the group's end."""
    return WindowIndex(groups, store.ends[groups].max(axis=1), np.arange(len(groups) + 1))


@pytest.mark.parametrize("groups", [alone(2), [[1, 0]]])
def test_prediction_follows_the_end_of_each_group(groups):
    case = one_case(groups=groups, lengths=[20, 9], context_length=12)
    store = case.store()
    index = ahead(store, np.array(groups))
    assert len(index) == len(groups)
    future = 5000.0 + np.arange(len(groups) * 3, dtype=np.float32).reshape(-1, 3, 1)
    batch = dataset_of(store, index, 12, 3, future=future)[np.arange(len(groups))]
    assert not batch.target.any()
    assert not batch.target_observed.any()
    for group, members in enumerate(groups):
        start, end = case.span(group)
        for step in range(12):
            position = end - 12 + step
            values = [case.value(series, position) for series in members]
            assert batch.observed[group, step].tolist() == [value is not None for value in values]
            assert batch.context[group, step].tolist() == [value or 0.0 for value in values]
            expected = [0.0] * 4
            if position >= start:
                expected = [*CALENDAR[position].tolist(), *case.covariates(group, position)]
            assert batch.past_features[group, step].tolist() == expected
        for step in range(3):
            expected = [*CALENDAR[end + step].tolist(), future[group, step, 0]]
            assert batch.future_features[group, step].tolist() == expected


def test_prediction_without_future_covariates_shows_nothing_of_the_next_series():
    case = one_case()
    store = case.store()
    batch = dataset_of(store, ahead(store, np.array(alone(2))), 5, 3)[np.arange(2)]
    assert not batch.future_features[..., 2].any()
    assert batch.future_features[..., :2].all()


def test_the_inputs_of_a_series_do_not_depend_on_the_others():
    b = {"b": np.arange(50.0, 59.0)}
    settings = {"starts": {"b": 4}, "length": GRID}
    other = store_of(
        {"a": np.arange(30.0), **b, "c": np.arange(12.0)},
        covariates={"a": np.ones((30, 2)), "b": np.full((9, 2), 2.0), "c": np.ones((12, 2))},
        **settings,
    )
    single = store_of(b, covariates={"b": np.full((9, 2), 2.0)}, **settings)
    batches = []
    for store in (other, single):
        index = ahead(store, np.arange(len(store.ids))[:, None])
        scaler = replace(unscaled(store), ids=("b",), mean=np.zeros(1), std=np.ones(1))
        dataset = dataset_of(store, index, 12, 3, scaler=scaler.adapt(store))
        batches.append(dataset[np.array([store.ids.index("b")])])
    assert batches[0].context.any()
    for x, y in zip(batches[0].inputs, batches[1].inputs, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("over", ["windows", "series"])
def test_batches_do_not_depend_on_the_number_of_workers(over):
    dataset = one_case().dataset()
    epochs = []
    for num_workers in (0, 2):
        sampler = BatchSampler(dataset.index, 4, shuffle=True, seed=3, over=over)
        sampler.set_epoch(1)
        loader = DataLoader(dataset, sampler=sampler, batch_size=None, num_workers=num_workers)
        epochs.append(list(loader))
    assert len(epochs[0]) > 2
    for one, other in zip(*epochs, strict=True):
        assert isinstance(other, WindowBatch)
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))
