"""Covariates as numbers that a network can take: scores of numbers, indices of categories."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tsformer.data.columns import Columns
from tsformer.data.moments import nonzero_spread, pooled
from tsformer.data.store import BLOCK_ROWS, SeriesStore
from tsformer.data.types import BoolArray, Float32Array, FloatArray, IntArray
from tsformer.errors import DataError


@dataclass(frozen=True)
class CovariateEncoder:
    """How F covariates become numbers for a network, by what the train rows hold.

    Numbers become (v - mean) / std, and 0 where missing. Categories become 1, 2, ..., n, and 0
    where missing or not seen in training; they are for the network to embed.

    Attributes:
        names: columns, F.
        mean: of each column, (F,); 0 of a categorical one.
        std: standard deviation (ddof=0), (F,); 1 where it is 0, and of a categorical column.
        vocabularies: texts seen in training, in alphabetical order, by categorical column.
    """

    names: tuple[str, ...]
    mean: FloatArray
    std: FloatArray
    vocabularies: Mapping[str, tuple[str, ...]]

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """Different indices of each categorical column, n + 1; 0 of a numeric one."""
        return tuple(
            len(self.vocabularies[name]) + 1 if name in self.vocabularies else 0
            for name in self.names
        )

    @classmethod
    def fit(cls, store: SeriesStore, columns: Columns, end: int) -> "CovariateEncoder":
        """Fit on the covariates in rows before position `end` of the grid, each row once."""
        begin = store.covariate_base + store.starts
        stop = store.covariate_base + np.minimum(store.ends, end)
        spans = begin, np.maximum(begin, stop)
        names, texts = columns.covariates, columns.categorical
        return cls._fit(store.covariates, spans, names, texts, store.categories)

    @classmethod
    def fit_static(cls, store: SeriesStore, columns: Columns, end: int) -> "CovariateEncoder":
        """Fit on the static covariates of the ids that have a row before `end`, each id once."""
        begun = (store.starts < end) & (store.lengths > 0)
        first = np.flatnonzero(begun.reshape(-1, store.num_targets).any(axis=1))
        rows = first * store.num_targets
        names, texts = columns.static_covariates, columns.categorical
        return cls._fit(store.static, (rows, rows + 1), names, texts, store.categories)

    @classmethod
    def _fit(
        cls,
        values: FloatArray,
        spans: tuple[IntArray, IntArray],
        names: Sequence[str],
        categorical: Sequence[str],
        categories: Mapping[str, tuple[str, ...]],
    ) -> "CovariateEncoder":
        texts = {name: categories.get(name, ()) for name in names if name in categorical}
        seen = {name: np.zeros(len(texts[name]), dtype=bool) for name in texts}
        parts = []  # count, mean and variance of each column, (3, F) a block
        block = max(BLOCK_ROWS // max(len(names), 1), 1)
        for begin in range(0, len(values) if names else 0, block):
            rows = values[begin : begin + block]
            rows = rows[_covered(*spans, begin, begin + len(rows))]
            part = np.zeros((3, len(names)))
            for column, name in enumerate(names):
                x = rows[:, column]
                x = x[~np.isnan(x)].astype(np.float64)
                if name in texts:
                    seen[name][x.astype(np.int64)] = True
                elif len(x):
                    part[:, column] = len(x), x.mean(), x.var()
            parts.append(part)
        mean, std = np.zeros(len(names)), np.ones(len(names))
        if parts:
            mean, variance = pooled(*np.stack(parts, axis=1))
            std = nonzero_spread(mean, np.sqrt(variance))
        vocabularies = {
            name: tuple(sorted(texts[name][code] for code in np.flatnonzero(seen[name])))
            for name in texts
        }
        return cls(tuple(names), mean, std, vocabularies)

    def lookups(self, categories: Mapping[str, Sequence[str]]) -> dict[int, Float32Array]:
        """Return the index of each code of a store, by position of the categorical column.

        Args:
            categories: texts that the codes stand for, by column; see `SeriesStore`.

        Returns:
            Arrays as long as the column's categories and one more, 0, for what is missing.
        """
        lookups = {}
        for name, vocabulary in self.vocabularies.items():
            index = {text: place for place, text in enumerate(vocabulary, 1)}
            known = [index.get(text, 0) for text in categories.get(name, ())]
            lookups[self.names.index(name)] = np.array([*known, 0], dtype=np.float32)
        return lookups

    def encode(self, values: FloatArray, lookups: Mapping[int, Float32Array]) -> Float32Array:
        """Return covariates as a network takes them.

        Args:
            values: as a store holds them, (..., F).
            lookups: of the store's categories.

        Returns:
            A new array, (..., F).
        """
        # NumPy is slow at rows as short as F, so all axes but the first are worked on as one.
        repeats = math.prod(values.shape[1:-1])
        mean, std = (np.tile(x, repeats) for x in (self.mean, self.std))
        with np.errstate(over="ignore"):
            scores = (values.reshape(len(values), repeats * len(self.names)) - mean) / std
            encoded = scores.astype(np.float32)
        np.copyto(encoded, 0.0, where=np.isnan(encoded))
        encoded = encoded.reshape(values.shape)
        for column, lookup in lookups.items():
            codes = values[..., column]
            codes = np.where(np.isnan(codes), len(lookup) - 1, codes).astype(np.int64)
            encoded[..., column] = lookup[codes]
        return encoded


def shared_covariates(store: SeriesStore) -> SeriesStore:
    """Return the store with one block of covariates on the whole grid, which all series share.

    Raises:
        DataError: the covariates of two series differ where both have a row.
    """
    shared = np.full((len(store.grid), store.covariates.shape[1]), np.nan)
    filled = np.zeros(len(store.grid), dtype=bool)
    spans = np.stack([store.covariate_base, store.starts, store.ends], axis=1)
    _, firsts = np.unique(spans, axis=0, return_index=True)  # many series may share their rows
    for series in np.sort(firsts):
        base, start, end = spans[series]
        rows, twice = store.covariates[base + start : base + end], filled[start:end]
        before = shared[start:end]
        same = (rows == before) | (np.isnan(rows) & np.isnan(before))
        different = np.flatnonzero(twice & ~same.all(axis=1))
        if len(different):
            stamp = store.stamps(start + different[:1])[0]
            raise DataError(
                "model.channels=joint puts all series into one sample, so they must share their "
                f"covariates, but these differ between series: {store.ids[series]!r} has other "
                f"values at {stamp} than a series before it. Drop the covariates, or set "
                "model.channels=independent."
            )
        shared[start:end], filled[start:end] = rows, True
    base = np.zeros(len(store.ids), dtype=np.int64)
    return replace(store, covariates=shared, covariate_base=base)


def _covered(first: IntArray, last: IntArray, begin: int, end: int) -> BoolArray:
    """Tell which rows begin <= r < end lie in a span first <= r < last; spans may overlap."""
    opened, closed = (
        np.bincount(np.clip(bound, begin, end) - begin, minlength=end - begin + 1)
        for bound in (first, last)
    )
    return np.cumsum(opened - closed)[: end - begin] > 0
