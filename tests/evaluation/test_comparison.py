import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student_t

from tsformer.errors import ConfigError, DataError
from tsformer.evaluation.comparison import block_bootstrap, compare, diebold_mariano
from tsformer.evaluation.frames import point_columns

NAN = np.nan


def forecasts(
    errors: dict[str, np.ndarray], *, step: int = 1, freq: str = "h", ids: str = "abcdefghijkl"
) -> pd.DataFrame:
    """Return forecasts of a truth of 0 from errors by method, (series, cutoffs, H)."""
    num_series, num_cutoffs, horizon = next(iter(errors.values())).shape
    grid = pd.date_range("2024-01-31", periods=num_cutoffs * step + horizon + 1, freq=freq)
    origin = step * np.arange(num_cutoffs)
    at = origin[:, None] + 1 + np.arange(horizon)
    size = num_cutoffs * horizon
    return pd.DataFrame(
        {
            "unique_id": np.repeat(list(ids[:num_series]), size),
            "ds": grid[np.tile(at.ravel(), num_series)],
            "cutoff": grid[np.tile(np.repeat(origin, horizon), num_series)],
            "y": 0.0,
            **{name: each.ravel() for name, each in errors.items()},
        }
    )


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def only(frame: pd.DataFrame) -> pd.Series:
    assert len(frame) == 1
    return frame.iloc[0]


def slow_test(d: list[float], steps: int) -> tuple[float, float]:
    """Return statistic and p-value as the papers write them, with plain loops."""
    num, mean = len(d), sum(d) / len(d)
    gamma = [
        sum((d[t] - mean) * (d[t - k] - mean) for t in range(k, num)) / num for k in range(steps)
    ]
    variance = (gamma[0] + 2 * sum(gamma[1:])) / num
    s1 = mean / variance**0.5
    s = ((num + 1 - 2 * steps + steps * (steps - 1) / num) / num) ** 0.5 * s1
    return s, 2 * (1 - student_t.cdf(abs(s), num - 1))


def test_by_hand_on_four_differences():
    # Mean 2; deviations -1, 1, 1, -1; variance 1, first autocovariance -1/4.
    statistic, p = diebold_mariano(np.array([1.0, 3, 3, 1]), 0)
    assert statistic == pytest.approx(2 * np.sqrt(3))  # 2 / sqrt(1 / 4) * sqrt(3 / 4)
    assert p == pytest.approx(0.0405, abs=1e-4)  # of Student's t with 3 degrees
    statistic, _ = diebold_mariano(np.array([1.0, 3, 3, 1]), 1)
    assert statistic == pytest.approx(2 / np.sqrt(0.5 / 4) * np.sqrt((5 - 4 + 2 / 4) / 4))


@pytest.mark.parametrize("lags", [0, 1, 4])
def test_equals_plain_loops(lags):
    d = np.convolve(normal(44), np.ones(5), "valid") + 0.5
    assert diebold_mariano(d, lags) == pytest.approx(slow_test(d.tolist(), lags + 1))


def test_weights_where_the_plain_variance_is_negative():
    d = np.array([1.0, -1] * 10) + 0.1
    statistic, p = diebold_mariano(d, 1)
    assert slow_variance_is_negative(d)
    # Autocovariances 1 and -19/20, the latter halved.
    wanted = 0.1 / np.sqrt((1 - 19 / 20) / 20) * np.sqrt((21 - 4 + 2 / 20) / 20)
    assert statistic == pytest.approx(wanted)
    assert 0 < p < 1


def slow_variance_is_negative(d: np.ndarray) -> bool:
    rest = d - d.mean()
    return rest @ rest + 2 * rest[1:] @ rest[:-1] < 0


@pytest.mark.parametrize(("num", "horizon", "most"), [(8, 1, 0.08), (40, 1, 0.08), (96, 6, 0.13)])
def test_equal_forecasts_are_rejected_about_as_often_as_the_level_says(num, horizon, most):
    rng, rejected = np.random.default_rng(0), 0
    for _ in range(400):
        errors = rng.normal(size=(2, num + horizon - 1))  # of a step; windows sum up some of them
        windows = np.abs(np.lib.stride_tricks.sliding_window_view(errors, horizon, axis=1))
        ours, theirs = windows.mean(axis=-1)
        rejected += diebold_mariano(ours - theirs, horizon - 1)[1] < 0.05
    assert 0.02 < rejected / 400 < most


def test_overlap_that_is_not_counted_rejects_too_often():
    rng, rejected = np.random.default_rng(0), 0
    for _ in range(400):
        d = np.convolve(rng.normal(size=100), np.ones(5), "valid")
        rejected += diebold_mariano(d, 0)[1] < 0.05
    assert rejected / 400 > 0.25


def test_a_better_model_is_found_better():
    ours = normal(3, 40, 4)
    row = only(compare(forecasts({"tsformer": ours, "AutoETS": 1.5 * normal(3, 40, 4, seed=1)})))
    assert row["statistic"] < 0
    assert row["p_value"] < 0.01
    assert 0 < row["low"] < row["improvement"] < row["high"] < 1


def test_figures_are_means_over_rows():
    errors = {"tsformer": normal(2, 9, 3), "AutoETS": normal(2, 9, 3, seed=1)}
    frame = forecasts(errors, step=3)
    for loss, of in {"mae": np.abs, "mse": np.square}.items():
        row = only(compare(frame, loss=loss))
        ours, theirs = (of(each) for each in errors.values())
        assert row["loss"] == pytest.approx(ours.mean())
        assert row["baseline_loss"] == pytest.approx(theirs.mean())
        assert row["improvement"] == pytest.approx(1 - ours.sum() / theirs.sum())
        wanted = slow_test((ours - theirs).mean(axis=(0, 2)).tolist(), 1)
        assert (row["statistic"], row["p_value"]) == pytest.approx(wanted)
        assert (row["num_cutoffs"], row["num_series"]) == (9, 2)
        assert row["method"] == "blocks of 2 cutoffs"
        assert row["note"] == ""


@pytest.mark.parametrize("freq", ["h", "ME", "B"])
@pytest.mark.parametrize(("step", "lags"), [(1, 3), (2, 1), (3, 1), (4, 0), (5, 0), (9, 0)])
def test_overlap_is_read_from_the_frame(freq, step, lags):
    errors = {"tsformer": normal(1, 40, 4), "AutoETS": normal(1, 40, 4, seed=1)}
    row = only(compare(forecasts(errors, step=step, freq=freq)))
    d = (np.abs(errors["tsformer"]) - np.abs(errors["AutoETS"])).mean(axis=(0, 2))
    assert row["statistic"] == pytest.approx(slow_test(d.tolist(), lags + 1)[0])


@pytest.mark.parametrize(("num", "horizon", "length"), [(8, 1, 2), (20, 1, 3), (80, 4, 4)])
def test_intervals_hold_the_truth_about_as_often_as_they_say(num, horizon, length):
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):
        drawn = np.abs(rng.normal(size=(2, num + horizon - 1)) * [[0.8], [1.0]])
        sums = np.lib.stride_tricks.sliding_window_view(drawn, horizon, axis=1).sum(axis=-1)
        low, high = block_bootstrap(sums, length, seed=0)
        held += low <= 0.2 <= high
    assert 0.87 < held / 300 < 0.99


def test_blocks_that_follow_each_other_are_drawn_together():
    sums = np.stack([np.arange(12.0) % 2, np.ones(12)])  # 0, 1, 0, 1: alike in any pair
    assert block_bootstrap(sums, 2, seed=0) == pytest.approx((0.5, 0.5))
    low, high = block_bootstrap(sums, 1, seed=0)
    assert low < 0.3 < 0.7 < high


def test_few_cutoffs_of_many_series_are_resampled_by_series():
    errors = {"tsformer": normal(10, 2, 3), "AutoETS": 3 * normal(10, 2, 3, seed=1)}
    row = only(compare(forecasts(errors, step=3)))
    assert row["method"] == "series"
    assert 0 < row["low"] < row["improvement"] < row["high"]
    assert np.isnan(row["p_value"])
    assert row["note"] == "the test needs at least 8 cutoffs; there are 2"


def test_overlapping_windows_take_more_cutoffs():
    errors = {"tsformer": normal(1, 15, 2), "AutoETS": normal(1, 15, 2, seed=1)}
    row = only(compare(forecasts(errors)))
    assert row["note"] == (
        "the test needs at least 16 cutoffs, because each window overlaps the next 1; there are 15"
    )


@pytest.mark.parametrize(("num_series", "num_cutoffs"), [(1, 1), (1, 7), (7, 1)])
def test_one_cutoff_or_series_says_nothing_of_others(num_series, num_cutoffs):
    shape = num_series, num_cutoffs, 3
    row = only(compare(forecasts({"tsformer": normal(*shape), "a": 2 + normal(*shape)}, step=3)))
    assert np.isfinite([row["loss"], row["baseline_loss"], row["improvement"]]).all()
    assert row[["low", "high", "method", "statistic", "p_value"]].isna().all()


def test_a_model_is_not_better_than_itself():
    ours = normal(2, 12, 3)
    row = only(compare(forecasts({"tsformer": ours, "copy": ours}, step=3)))
    assert (row["improvement"], row["low"], row["high"]) == (0, 0, 0)
    assert np.isnan(row["p_value"])
    assert row["note"] == "the difference is the same at all cutoffs"


def test_a_baseline_without_error_has_no_share_to_save():
    row = only(compare(forecasts({"tsformer": normal(1, 12, 3), "oracle": np.zeros((1, 12, 3))})))
    assert np.isnan(row["improvement"])
    assert row["baseline_loss"] == 0


def test_rows_count_that_have_truth_and_both_forecasts():
    errors = {name: normal(2, 12, 3, seed=n) for n, name in enumerate(["tsformer", "a", "b"])}
    frame = forecasts(errors, step=3)
    frame.loc[3, "y"] = frame.loc[8, "tsformer"] = frame.loc[11, "a"] = NAN
    found = compare(frame).set_index("baseline")
    for name, rows in {"a": [3, 8, 11], "b": [3, 8]}.items():
        wanted = only(compare(frame.drop(index=rows), [name]))
        pd.testing.assert_series_equal(
            found.loc[name].astype(object), wanted.drop("baseline"), check_names=False
        )
    frame["a"] = NAN
    row = only(compare(frame, ["a"]))
    assert row["note"] == "no row has truth and both forecasts"
    assert (row["num_cutoffs"], row["num_series"]) == (0, 0)
    assert np.isnan(row["improvement"])


@pytest.mark.parametrize("shape", [(3, 24, 3), (10, 2, 3)])  # blocks of cutoffs, and series
def test_order_of_rows_changes_nothing(shape):
    frame = forecasts({"tsformer": normal(*shape), "a": normal(*shape, seed=1)})
    assert np.isfinite(only(compare(frame))["low"])
    mixed = frame.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(compare(mixed), compare(frame))


def test_seed_moves_the_interval_alone():
    frame = forecasts({"tsformer": normal(3, 20, 2), "a": normal(3, 20, 2, seed=1)})
    first, other = only(compare(frame)), only(compare(frame, seed=1))
    pd.testing.assert_frame_equal(compare(frame), compare(frame, seed=0))
    assert first["low"] != other["low"]
    pd.testing.assert_series_equal(
        first.drop(["low", "high"]), other.drop(["low", "high"]), check_names=False
    )


def test_scales_make_series_count_alike():
    errors = {name: normal(3, 12, 3, seed=n) for n, name in enumerate(["tsformer", "a"])}
    plain = only(compare(forecasts(errors, step=3)))
    factor = np.array([1.0, 1000, 0.01])
    large = {name: each * factor[:, None, None] for name, each in errors.items()}
    frame = forecasts(large, step=3)
    scaled = only(compare(frame, scales=pd.Series(factor, list("abc"))))
    for name in ("loss", "improvement", "low", "p_value"):
        assert scaled[name] == pytest.approx(plain[name])
    assert only(compare(frame))["improvement"] != pytest.approx(plain["improvement"])


def test_series_without_a_scale_do_not_count():
    frame = forecasts({"tsformer": normal(5, 12, 3), "a": normal(5, 12, 3, seed=1)}, step=3)
    found = only(compare(frame, scales=pd.Series([2.0, 0, NAN, np.inf], list("abcd"))))
    wanted = only(compare(frame[frame["unique_id"] == "a"]))
    assert found["loss"] == pytest.approx(wanted["loss"] / 2)
    assert (found["num_series"], found["p_value"]) == (1, pytest.approx(wanted["p_value"]))
    with pytest.raises(DataError, match="scales: a series has more than one"):
        compare(frame, scales=pd.Series([1.0, 2.0], ["a", "a"]))


def test_several_columns_tell_series_apart():
    frame = forecasts({"tsformer": normal(2, 12, 3), "a": normal(2, 12, 3, seed=1)}, step=3)
    frame.insert(1, "target", frame["unique_id"].map({"a": "y", "b": "z"}))
    frame["unique_id"] = 7
    assert only(compare(frame))["num_series"] == 1
    ids = ("unique_id", "target")
    assert only(compare(frame, ids=ids))["num_series"] == 2
    index = pd.MultiIndex.from_tuples([(7, "y"), (7, "z")])
    scaled = only(compare(frame, ids=ids, scales=pd.Series([2.0, 2.0], index)))
    assert scaled["loss"] == pytest.approx(only(compare(frame))["loss"] / 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "rmse"}, "loss='rmse': choose from mae, mse"),
        ({"baselines": ["b"]}, r"lack the columns \['b'\]; they have \['unique_id', 'ds'"),
        ({"model": "ours"}, r"lack the columns \['ours'\]"),
    ],
)
def test_mistakes_are_told(arguments, message):
    with pytest.raises(ConfigError, match=message):
        compare(forecasts({"tsformer": normal(1, 2, 3), "a": normal(1, 2, 3)}), **arguments)


def test_an_empty_frame_and_no_baseline_are_no_trouble():
    frame = forecasts({"tsformer": normal(1, 2, 3), "a": normal(1, 2, 3)})
    assert only(compare(frame[:0]))["num_cutoffs"] == 0
    assert len(compare(frame, [])) == 0
    assert list(compare(frame, [])) == list(compare(frame))


def test_points_are_told_from_what_stands_beside_them():
    methods = ["tsformer", "seasonal naive (daily)", "AutoETS", "own-q-1", "x-lo-fi"]
    beside = ["tsformer-lo-90", "tsformer-hi-99.5", "AutoETS-q-0.1", "tsformer-sample-12"]
    names = ["unique_id", "target", "ds", "cutoff", "y", *methods, *beside]
    assert point_columns(pd.DataFrame(columns=names, dtype=float)) == methods
    assert point_columns(pd.DataFrame(columns=[*names, "shop"], dtype=float), ["shop"]) == methods


def test_remarks_and_flags_are_no_methods_and_a_method_of_text_is_refused():
    frame = forecasts({"tsformer": normal(1, 2, 3), "a": normal(1, 2, 3)})
    marked = frame.assign(remark="x", flag=True, seen=frame["ds"])
    pd.testing.assert_frame_equal(compare(marked), compare(frame))
    pd.testing.assert_frame_equal(compare(frame, "a"), compare(frame))
    with pytest.raises(ConfigError, match="'remark' holds no forecasts, which are numbers"):
        compare(marked, "remark")


def test_a_zone_of_one_of_the_times_alone_is_refused():
    frame = forecasts({"tsformer": normal(1, 2, 3), "a": normal(1, 2, 3)})
    with pytest.raises(DataError, match="one of ds and cutoff has a time zone"):
        compare(frame.assign(ds=pd.to_datetime(frame["ds"]).dt.tz_localize("UTC")))
