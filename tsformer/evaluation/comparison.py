"""Whether a model is better than baselines by more than chance."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr
from scipy.stats import t as student_t

from tsformer.data.types import FloatArray, IntArray
from tsformer.errors import ConfigError, DataError
from tsformer.evaluation.frames import (
    is_number,
    point_columns,
    read_forecasts,
    require_columns,
)

LOSSES: dict[str, Callable[[FloatArray], FloatArray]] = {"mae": np.abs, "mse": np.square}
_FEWEST = 8  # cutoffs whose windows do not overlap, or series, that say something of others
_DRAWS = 2000
_LEVEL = 0.95  # of intervals
_COLUMNS = (
    *("baseline", "loss", "baseline_loss", "improvement", "low", "high", "method"),
    *("statistic", "p_value", "num_cutoffs", "num_series", "note"),
)


def compare(
    frame: Any,
    baselines: str | Sequence[str] | None = None,
    *,
    model: str = "tsformer",
    loss: str = "mae",
    ids: Sequence[str] = ("unique_id",),
    scales: "pd.Series[float] | None" = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare a model with baselines on the same windows.

    Rows count that have truth and both forecasts. Windows of one cutoff depend on each other, as
    do windows that overlap, and neither test nor interval takes them for independent: both see a
    series over cutoffs. Each p-value stands alone; among many baselines some are below 5 % by
    chance.

    Args:
        frame: `unique_id, ds, cutoff, y`, and point forecasts in a column a method, as
            `Forecaster.cross_validate` returns them, of pandas, Polars or pyarrow.
        baselines: columns to compare with; None: all other point forecasts.
        model: column of the model.
        loss: `mae` or `mse`.
        ids: columns that tell the series.
        scales: divides the errors of each series, by its id (by the values of `ids` if they are
            several), such as the unit of MASE; rows without a positive one do not count. None:
            errors in units of the table, of which series of large values make up the most.
        seed: of the bootstrap.

    Returns:
        A row a baseline: `baseline`; `loss` and `baseline_loss`, means over rows; `improvement`,
        the share of the baseline's loss that the model saves; `low` and `high`, the 95 % bootstrap
        interval of it, and `method`, what was drawn for it: blocks of successive cutoffs, or series
        where there are too few cutoffs for blocks (then it tells nothing of other times);
        `statistic` and two-sided `p_value` of `diebold_mariano`, negative where the model is
        better; `num_cutoffs`, `num_series`; and `note`, why a figure is NaN.

    Raises:
        ConfigError: a column is missing, or the loss unknown.
        DataError: `scales` holds an id twice, or see `read_forecasts`.
    """
    if loss not in LOSSES:
        raise ConfigError(f"loss={loss!r}: choose from {', '.join(LOSSES)}.")
    frame = read_forecasts(frame)
    if baselines is None:
        baselines = [name for name in point_columns(frame, ids) if name != model]
    elif isinstance(baselines, str):
        baselines = [baselines]
    require_columns(frame, (*ids, "ds", "cutoff", "y", model, *baselines))
    if texts := [name for name in (model, *baselines) if not is_number(frame[name])]:
        raise ConfigError(f"column {texts[0]!r} holds no forecasts, which are numbers.")
    truth = frame["y"].to_numpy(np.float64)
    scale = np.ones(len(frame)) if scales is None else _scale_of_rows(frame, ids, scales)
    usable = ~np.isnan(truth) & (scale > 0) & np.isfinite(scale)
    cutoff, horizon = _cutoffs(frame)
    series = frame.groupby(list(ids), dropna=False).ngroup().to_numpy()

    def losses(column: str) -> FloatArray:
        """Return the loss of each row, (R,); NaN where it does not count."""
        error = frame[column].to_numpy(np.float64) - truth
        return LOSSES[loss](np.divide(error, scale, out=np.full_like(error, np.nan), where=usable))

    ours = losses(model)
    return pd.DataFrame(
        [
            {
                "baseline": name,
                "note": "",
                **_compare(ours, losses(name), cutoff, horizon, series, seed),
            }
            for name in baselines
        ],
        columns=_COLUMNS,
    )


def _scale_of_rows(frame: pd.DataFrame, ids: Sequence[str], scales: Any) -> FloatArray:
    """Return the scale of each row, (R,); NaN where its series has none."""
    if scales.index.has_duplicates:
        raise DataError("scales: a series has more than one. Give each id once.")
    several = len(ids) > 1
    rows = pd.MultiIndex.from_frame(frame[list(ids)]) if several else pd.Index(frame[ids[0]])
    found: FloatArray = scales.reindex(rows).to_numpy(np.float64)
    return found


def _cutoffs(frame: pd.DataFrame) -> tuple[IntArray, int]:
    """Return the cutoff of each row as a position in time, (R,), and the steps of a window, H.

    Positions count the stamps that there are, which are all steps between cutoffs that are less
    than a window apart.
    """
    codes, _ = pd.factorize(pd.concat([frame["ds"], frame["cutoff"]]), sort=True)
    at, cutoff = codes[: len(frame)], codes[len(frame) :]
    return cutoff, int((at - cutoff).max(initial=0))


def _compare(
    ours: FloatArray,
    theirs: FloatArray,
    cutoff: IntArray,
    horizon: int,
    series: IntArray,
    seed: int,
) -> dict[str, Any]:
    """Return the figures of one baseline from losses by row, (R,), NaN where one is missing."""
    rows = ~np.isnan(ours) & ~np.isnan(theirs)
    if not rows.any():
        return {"num_cutoffs": 0, "num_series": 0, "note": "no row has truth and both forecasts"}
    ours, theirs = ours[rows], theirs[rows]
    cutoffs, by_cutoff = np.unique(cutoff[rows], return_inverse=True)
    members, by_series = np.unique(series[rows], return_inverse=True)
    pairs = np.stack([ours, theirs])
    figures: dict[str, Any] = {
        "loss": ours.mean(),
        "baseline_loss": theirs.mean(),
        "improvement": float(_improvement(pairs.sum(axis=1))),
        "num_cutoffs": len(cutoffs),
        "num_series": len(members),
    }
    overlap = _overlap(cutoffs, horizon)
    needed = _FEWEST * (overlap + 1)
    if len(cutoffs) < needed:
        reason = f", because each window overlaps the next {overlap}" if overlap else ""
        figures["note"] = (
            f"the test needs at least {needed} cutoffs{reason}; there are {len(cutoffs)}"
        )
        if len(members) >= _FEWEST:
            figures["low"], figures["high"] = block_bootstrap(_sums(pairs, by_series), 1, seed)
            figures["method"] = "series"
        return figures
    sums = _sums(pairs, by_cutoff)
    differences = (sums[0] - sums[1]) / np.bincount(by_cutoff)
    figures["statistic"], figures["p_value"] = diebold_mariano(differences, overlap)
    if np.isnan(figures["p_value"]):
        figures["note"] = "the difference is the same at all cutoffs"
    length = max(overlap + 1, round(len(cutoffs) ** (1 / 3)))
    figures["low"], figures["high"] = block_bootstrap(sums, length, seed)
    figures["method"] = f"blocks of {length} cutoffs"
    return figures


def _overlap(cutoffs: IntArray, horizon: int) -> int:
    """Return how many later cutoffs lie within a window, at most; ceil(H / step) - 1."""
    later = np.searchsorted(cutoffs, cutoffs + horizon) - np.arange(len(cutoffs)) - 1
    return int(later.max(initial=0))


def _sums(losses: FloatArray, part: IntArray) -> FloatArray:
    """Return losses (2, R) summed by part, (2, T)."""
    return np.stack([np.bincount(part, weights=each) for each in losses])


def _improvement(sums: FloatArray) -> FloatArray:
    """Return the share that the model's sum lies below the baseline's, (2, ...) -> (...)."""
    ours, theirs = sums
    return 1 - np.divide(ours, theirs, out=np.full_like(ours, np.nan), where=theirs > 0)


def diebold_mariano(differences: FloatArray, lags: int) -> tuple[float, float]:
    """Return statistic and two-sided p-value of mean differences of loss being 0.

    The test of Diebold & Mariano (1995) as Harvey, Leybourne & Newbold (1997) correct it for few
    cutoffs. The variance sums plain autocovariances, as in both papers: Bartlett's weights make it
    too small where windows overlap. They are used where that sum is not positive. With windows
    that overlap heavily it rejects equal forecasts in 8 to 13 % of cases rather than in 5 %.

    Args:
        differences: by cutoff, in the order of time, (T,).
        lags: later cutoffs that a window overlaps, below T.

    Returns:
        Both NaN if all differences are equal.
    """
    num = len(differences)
    steps = lags + 1
    rest = differences - differences.mean()
    if np.allclose(rest, 0, atol=1e-12 * np.abs(differences).max(initial=0)):
        return np.nan, np.nan
    covariances = np.array([rest[lag:] @ rest[: num - lag] / num for lag in range(steps)])
    variance = 2 * covariances.sum() - covariances[0]
    if variance <= 0:
        weights = 1 - np.arange(steps) / steps
        variance = 2 * (weights * covariances).sum() - covariances[0]
    correction = (num + 1 - 2 * steps + steps * (steps - 1) / num) / num
    statistic = float(differences.mean() * np.sqrt(num * correction / variance))
    return statistic, float(2 * student_t.sf(abs(statistic), num - 1))


def block_bootstrap(sums: FloatArray, length: int, seed: int) -> tuple[float, float]:
    """Return the 95 % interval of the improvement by moving blocks (Künsch 1989).

    Its percentiles are expanded for the number of blocks, as Hesterberg (2015) does: the plain
    ones hold the truth in 80 % of cases where there are few, and these in about 90 %.

    Args:
        sums: losses of model and baseline by cutoff, in the order of time, or by series, (2, T).
        length: successive entries that are drawn together, at most T / 2.
        seed: of the draws.
    """
    before = np.concatenate([np.zeros((2, 1)), np.cumsum(sums, axis=1)], axis=1)
    blocks = before[:, length:] - before[:, :-length]  # (2, T - length + 1)
    size = max(round(sums.shape[1] / length), 2)
    rng = np.random.default_rng(seed)
    drawn = np.zeros((2, _DRAWS))
    for _ in range(size):  # not at once, as there may be many blocks
        drawn += blocks[:, rng.integers(blocks.shape[1], size=_DRAWS)]
    tail = ndtr(np.sqrt(size / (size - 1)) * student_t.ppf((1 - _LEVEL) / 2, size - 1))
    low, high = np.quantile(_improvement(drawn), [tail, 1 - tail])
    return float(low), float(high)
