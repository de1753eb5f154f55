"""Encoded covariates against NumPy, and what their encoder must not see."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.data.stores import columns_of, store_of
from tsformer.data.covariates import CovariateEncoder, shared_covariates
from tsformer.data.store import SeriesStore
from tsformer.errors import DataError

END = 12  # train rows lie before it
KINDS = ("dog", "cat", "bird", "fish")
COLUMNS = columns_of(
    future=("f", "kind"), past=("p",), static=("area", "town"), categorical=("kind", "town")
)


def some_store(seed: int = 0) -> SeriesStore:
    """Three series of different parts of 20 hours; the last one has no train row."""
    random = np.random.default_rng(seed)

    def rows(count: int) -> np.ndarray:
        f, p = random.normal(1e3, 10, count), random.exponential(size=count)
        kind = random.integers(0, 3, count)  # `fish` only where a test puts it
        values = np.stack([f, kind, p], axis=1)
        values[random.random(values.shape) < 0.2] = np.nan
        return values

    return store_of(
        {"a": np.zeros(20), "b": np.zeros(9), "late": np.zeros(6)},
        {"b": 6, "late": 14},
        covariates={"a": rows(20), "b": rows(9), "late": rows(6)},
        static=[[100.0, 1], [np.nan, 0], [7e6, 2]],
        categories={"kind": KINDS, "town": ("Ulm", "Bonn", "Kiel")},
    )


def train_rows(store: SeriesStore, series: int, end: int = END) -> np.ndarray:
    base = store.covariate_base[series]
    first, last = store.starts[series], min(store.ends[series], end)
    return store.covariates[base + first : base + max(first, last)].astype(np.float64)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block", [4, 21, 1 << 22])
def test_statistics_and_vocabularies_are_those_of_the_train_rows(seed, block, monkeypatch):
    monkeypatch.setattr("tsformer.data.covariates.BLOCK_ROWS", block)
    store = some_store(seed)
    encoder = CovariateEncoder.fit(store, COLUMNS, END)
    x = np.concatenate([train_rows(store, series) for series in range(3)])
    assert encoder.names == ("f", "kind", "p")
    assert_allclose(encoder.mean, np.nanmean(x, axis=0) * [1, 0, 1], rtol=1e-12)
    assert_allclose(encoder.std[[0, 2]], np.nanstd(x, axis=0)[[0, 2]], rtol=1e-10)
    assert encoder.std[1] == 1
    seen = {KINDS[int(code)] for code in x[:, 1] if not np.isnan(code)}
    assert encoder.vocabularies == {"kind": tuple(sorted(seen))}
    assert encoder.cardinalities == (0, len(seen) + 1, 0)


def test_a_row_that_series_share_counts_once():
    shared = np.arange(20.0)[:, None] ** 2
    store = store_of({"a": np.zeros(20), "b": np.zeros(10)}, {"b": 5}, shared=shared)
    encoder = CovariateEncoder.fit(store, columns_of(past=["p"]), 9)
    assert_allclose(encoder.mean, shared[:9].mean(), rtol=1e-12)
    # Rows that no series has do not count.
    encoder = CovariateEncoder.fit(
        store_of({"b": np.zeros(10)}, {"b": 5}, shared=shared), columns_of(past=["p"]), 9
    )
    assert_allclose(encoder.mean, shared[5:9].mean(), rtol=1e-12)


def test_an_id_of_several_targets_counts_once():
    store = store_of(
        {"a/x": np.zeros(4), "a/y": np.zeros(4), "b/x": np.zeros(4), "b/y": np.zeros(4)},
        {"b/x": 9, "b/y": 9},
        covariates={"a/x": [[1], [2], [3], [4]], "b/x": [[9]] * 4},
        num_targets=2,
        static=[[10], [10], [30], [30]],
    )
    columns = columns_of(past=["p"], static=["area"])
    assert_allclose(CovariateEncoder.fit(store, columns, 10).mean, 19 / 5)
    assert_allclose(CovariateEncoder.fit_static(store, columns, 9).mean, 10)
    both = CovariateEncoder.fit_static(store, columns, 10)
    assert_allclose([both.mean, both.std], [[20], [10]])


def test_static_covariates_are_those_of_series_with_a_train_row():
    encoder = CovariateEncoder.fit_static(some_store(), COLUMNS, END)
    assert encoder.names == ("area", "town")
    assert_array_equal([encoder.mean, encoder.std], [[100, 0], [1, 1]])
    assert encoder.vocabularies == {"town": ("Bonn", "Ulm")}


def test_nothing_behind_the_train_rows_is_seen():
    store = some_store()
    covariates, static = store.covariates.copy(), store.static.copy()
    for series in range(3):
        first = store.covariate_base[series] + max(END, store.starts[series])
        last = store.covariate_base[series] + store.ends[series]
        covariates[first:last] = [1e9, KINDS.index("fish"), -1e9]
    static[2] = 1e9, 2
    spiked = replace(store, covariates=covariates, static=static)
    for fit in (CovariateEncoder.fit, CovariateEncoder.fit_static):
        before, after = fit(store, COLUMNS, END), fit(spiked, COLUMNS, END)
        assert_array_equal(after.mean, before.mean)
        assert_array_equal(after.std, before.std)
        assert after.vocabularies == before.vocabularies
    # One row more is.
    seen = CovariateEncoder.fit(spiked, COLUMNS, END + 1)
    assert "fish" in seen.vocabularies["kind"]
    assert seen.mean[0] > 1e6
    assert CovariateEncoder.fit_static(spiked, COLUMNS, 15).mean[0] > 1e6


def test_columns_without_a_value_keep_0_and_1_and_an_empty_vocabulary():
    store = store_of(
        {"a": [1.0, 2.0]}, covariates={"a": [[np.nan, np.nan]] * 2}, categories={"kind": ()}
    )
    columns = columns_of(past=["p", "kind"], categorical=["kind"])
    encoder = CovariateEncoder.fit(store, columns, 2)
    assert_array_equal([encoder.mean, encoder.std], [[0, 0], [1, 1]])
    assert encoder.cardinalities == (0, 1)
    encoded = encoder.encode(store.covariates, encoder.lookups(store.categories))
    assert_array_equal(encoded, np.zeros((2, 2)))


def test_no_covariates_encode_as_none():
    store = store_of({"a": [1.0, 2.0]})
    encoder = CovariateEncoder.fit(store, columns_of(), 2)
    assert encoder.cardinalities == ()
    assert encoder.encode(np.zeros((3, 5, 0), np.float32), {}).shape == (3, 5, 0)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (3, 1, 2)])
def test_encoded_values_are_scores_and_places_in_the_vocabulary(shape):
    encoder = CovariateEncoder(
        ("n", "kind"), np.array([5.0, 0]), np.array([2.0, 1]), {"kind": ("cat", "dog")}
    )
    # Another store has its own codes: one text is new, one is gone.
    lookups = encoder.lookups({"kind": ("eel", "dog"), "other": ("cat",)})
    values = np.array([[1, 0], [5, 1], [np.nan, np.nan], [6, 1], [7, 0], [9, np.nan]], np.float32)
    given = values.reshape(*shape, 2).copy()
    encoded = encoder.encode(given, lookups)
    assert encoded.dtype == np.float32
    assert_array_equal(encoded.reshape(6, 2), [[-2, 0], [0, 2], [0, 0], [0.5, 2], [1, 0], [2, 0]])
    assert_array_equal(given.reshape(6, 2), values)


def test_training_rows_encode_to_mean_0_and_std_1_and_known_texts():
    store = some_store()
    encoder = CovariateEncoder.fit(store, COLUMNS, END)
    rows = train_rows(store, 0).astype(np.float32)
    encoded = encoder.encode(rows, encoder.lookups(store.categories))
    assert_allclose(
        encoded[:, 0],
        np.nan_to_num((rows[:, 0].astype(np.float64) - encoder.mean[0]) / encoder.std[0]),
        atol=1e-4,
    )
    for code, index in zip(rows[:, 1], encoded[:, 1], strict=True):
        text = None if index == 0 else encoder.vocabularies["kind"][int(index) - 1]
        assert text == (None if np.isnan(code) else KINDS[int(code)])


# shared_covariates


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 6)), min_size=1, max_size=4),
    st.booleans(),
)
def test_series_that_agree_share_one_block(spans, wide):
    truth = np.random.default_rng(0).normal(size=(14, 2)).astype(np.float32)
    truth[3, 0] = np.nan
    ids = [f"s{i}" for i in range(len(spans))]
    store = store_of(
        {id: np.zeros(length) for id, (_, length) in zip(ids, spans, strict=True)},
        {id: start for id, (start, _) in zip(ids, spans, strict=True)},
        covariates=None
        if wide
        else {
            id: truth[start : start + length]
            for id, (start, length) in zip(ids, spans, strict=True)
        },
        shared=truth if wide else None,
        length=14,
    )
    shared = shared_covariates(store)
    covered = {t for start, length in spans for t in range(start, start + length)}
    expected = np.where(np.isin(np.arange(14), list(covered))[:, None], truth, np.nan)
    assert_array_equal(shared.covariates, expected)
    assert_array_equal(shared.covariate_base, np.zeros(len(ids)))
    assert_array_equal(shared.target, store.target)


@pytest.mark.parametrize("other", [7.0, np.nan])
def test_series_whose_covariates_differ_are_refused(other):
    b = np.arange(4.0, 9.0)[:, None]
    b[2] = other
    store = store_of(
        {"a": np.zeros(8), "b": np.zeros(5)},
        {"b": 4},
        covariates={"a": np.arange(8.0)[:, None], "b": b},
    )
    with pytest.raises(
        DataError,
        match=r"differ between series: 'b' has other values at 2024-01-01 06:00:00 than a series "
        r"before it\. Drop the covariates, or set model.channels=independent",
    ):
        shared_covariates(store)
