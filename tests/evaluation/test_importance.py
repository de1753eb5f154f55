"""Importance of covariates: against predict on tables that are swapped by hand."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.evaluation.test_backtest import COVARIATES, VOCABULARIES, wide, with_covariates
from tests.forecasters import H, L, make_forecaster, make_long
from tsformer.data.columns import Columns
from tsformer.data.windows import WindowIndex
from tsformer.errors import ConfigError, DataError
from tsformer.evaluation.importance import Lenders, covariates_of, draw_lenders
from tsformer.forecaster import Forecaster

NAMES = [*COVARIATES.covariates, *COVARIATES.static_covariates]


def forecaster_with_covariates(**settings: Any) -> Forecaster:
    return make_forecaster(columns=COVARIATES, vocabularies=VOCABULARIES, **settings)


def index_of(starts: list[int], lengths: list[int]) -> WindowIndex:
    """Return the complete windows of series of some lengths, each by itself."""
    first = np.array(starts) + L
    counts = np.array(lengths) - L - H + 1
    return WindowIndex(
        np.arange(len(starts))[:, None], first, np.concatenate([[0], np.cumsum(counts)])
    )


def lenders_of(lengths: list[int], n_windows: int, step: int, seed: list[int]) -> Lenders:
    group = np.tile(np.arange(len(lengths)), n_windows)
    behind = np.repeat(H + step * np.arange(n_windows)[::-1], len(lengths))
    every = index_of([0] * len(lengths), lengths)
    ids = np.arange(len(lengths))
    return draw_lenders(every, group, np.array(lengths)[group] - behind, ids, seed)


@pytest.mark.parametrize("second", ["b", "new"])  # which the model does not know
@pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])
def test_the_rise_is_that_of_predict_with_swapped_rows(decoding: str, second: str) -> None:
    lengths = {second: 50, "a": 34}  # ids in another order than that by which windows are counted
    forecaster = forecaster_with_covariates(decoding=decoding)
    frame = with_covariates(make_long(lengths)).assign(
        region=lambda x: x["unique_id"].map({"a": "north", second: "south"}),
        wind=lambda x: 10 * x["wind"],
        price=lambda x: 10 * x["price"],
    )
    parts = {id: frame[frame["unique_id"] == id].reset_index(drop=True) for id in ("a", second)}
    ids, sizes, n_windows, step, repeats = ["a", second], [34, 50], 3, 4, 2
    found = forecaster.covariate_importance(frame, n_windows, step, repeats=repeats, seed=5)

    def error(own: pd.DataFrame, origin: int) -> float:
        rows, ahead = own[:origin], own[origin : origin + H]
        forecast = forecaster.predict(rows, ahead.drop(columns="y"))["tsformer"]
        known = own["unique_id"][0] != "new"
        std = 2.0 if known else rows["y"].std(ddof=0)  # 2 is what the model knows of each series
        return float(np.abs(forecast.to_numpy() - ahead["y"].to_numpy()).mean() / std)

    windows = [(g, sizes[g] - H - step * w) for w in reversed(range(n_windows)) for g in (0, 1)]
    base = np.mean([error(parts[ids[g]], origin) for g, origin in windows])
    rises: dict[str, list[float]] = {name: [] for name in ["calendar", *NAMES]}
    for repeat in range(repeats):
        lenders = lenders_of(sizes, n_windows, step, [5, repeat])
        for name in rises:
            errors = []
            for number, (g, origin) in enumerate(windows):
                own = parts[ids[g]].copy()
                lender = parts[ids[lenders.groups[number]]]
                first = lenders.origins[number]
                here = own.index[max(origin - L, 0) : origin + H]
                lent = lender[: first + H].tail(len(here))
                if name == "calendar":  # as if all of this were at another time
                    own["ds"] += lender["ds"][first] - own["ds"][origin]
                elif name == "region":
                    own[name] = parts[ids[lenders.static[number]]][name].iloc[0]
                else:
                    own.loc[here, name] = lent[name].to_numpy()
                errors.append(error(own, origin))
            rises[name].append(np.mean(errors) - base)
    assert found["importance"].is_monotonic_decreasing
    assert sorted(found["covariate"]) == sorted(rises)
    for row in found.itertuples():
        rise = np.array(rises[row.covariate])
        assert abs(rise).max() > 3e-5  # a random network draws on everything
        np.testing.assert_allclose(row.importance, rise.mean(), rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(row.std, rise.std(), rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(row.mae, base + rise.mean(), rtol=1e-4)
        np.testing.assert_allclose(row.ratio, 1 + rise.mean() / base, rtol=1e-4)
    kinds = dict(zip(found["covariate"], found["kind"], strict=True))
    assert kinds == {
        **{"calendar": "calendar", "wind": "past", "price": "future", "promo": "future"},
        "region": "static",
    }


def listening_to(forecaster: Forecaster, name: str) -> Forecaster:
    """Return a forecaster whose network forecasts the sum of one feature, and nothing else."""
    (covariate,) = (each for each in covariates_of(forecaster.config) if each.name == name)
    network = forecaster.network

    def forward(
        context: torch.Tensor,
        observed: torch.Tensor,
        past: torch.Tensor,
        future: torch.Tensor,
        static: torch.Tensor,
    ) -> torch.Tensor:
        source = static[:, None] if covariate.kind == "static" else past
        said = source[..., covariate.features].sum(dim=(1, 2))
        shape = len(context), network.horizon, network.num_channels, 1
        return said[:, None, None, None].expand(shape)

    network.forward = forward
    return forecaster


@pytest.mark.parametrize("name", ["calendar", *NAMES])
@pytest.mark.parametrize("channels", ["independent", "joint"])
def test_what_is_ignored_has_exactly_no_importance(name: str, channels: str) -> None:
    columns, frame = COVARIATES, with_covariates(make_long({"new": 50, "a": 60, "b": 48}))
    settings: dict[str, Any] = {}
    if channels == "joint":  # two target columns of each id
        columns = Columns("unique_id", "ds", ("y", "z"), *vars_of(COVARIATES))
        frame["z"] = frame["y"] + 1
        settings = {"channels": "joint", "ids": ("y", "z")}
    forecaster = make_forecaster(columns=columns, vocabularies=VOCABULARIES, **settings)
    found = listening_to(forecaster, name).covariate_importance(frame, 3, 4, repeats=2)
    rise = found.set_index("covariate")["importance"]
    assert rise[name] != 0
    assert (rise.drop(name) == 0).all()
    assert len(rise) == 5
    others = found[found["covariate"] != name]
    assert (others["ratio"] == 1).all()
    assert (others["std"] == 0).all()


def vars_of(columns: Columns) -> tuple[tuple[str, ...], ...]:
    """Return the covariates of columns, in the order of the arguments of `Columns`."""
    return (
        columns.past_covariates,
        columns.future_covariates,
        columns.static_covariates,
        columns.categorical,
    )


def test_a_covariate_that_the_truth_follows_is_the_first() -> None:
    columns = Columns("unique_id", "ds", ("y",), (), ("price", "noise"))
    forecaster = make_forecaster(columns=columns)
    frame = make_long({"a": 90, "b": 90})
    rng = np.random.default_rng(3)
    frame["price"], frame["noise"] = rng.normal(size=(2, len(frame)))
    frame["y"] = (frame["ds"].dt.hour * 0 + 5 + np.repeat([0, 1], 90)).astype(float)
    network = forecaster.network
    frame["y"] += 2 * (frame["price"] - 1) / 3  # which is the scaled price, scaled back

    def forward(*inputs: torch.Tensor) -> torch.Tensor:
        *_, future, _ = inputs
        return future[:, :, covariates_of(forecaster.config)[1].features, None]

    network.forward = forward
    found = forecaster.covariate_importance(frame)
    assert found["covariate"][0] == "price"
    assert found["importance"][0] > 0.1
    assert (found["importance"][1:] == 0).all()
    assert found["mae"][1:].max() < 1e-5  # the forecast is the truth


def test_the_seed_decides_and_neither_batches_nor_the_order_of_rows_do() -> None:
    forecaster = forecaster_with_covariates()
    frame = with_covariates(make_long({"new": 50, "a": 60, "b": 48})).assign(
        region=lambda x: x["unique_id"].map({"a": "north", "new": "south", "b": "nowhere"})
    )
    first = forecaster.covariate_importance(frame, 3, 4, seed=1)
    pd.testing.assert_frame_equal(
        forecaster.covariate_importance(frame, 3, 4, seed=1), first, check_exact=True
    )
    shuffled = frame.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(
        forecaster.covariate_importance(shuffled, 3, 4, seed=1), first, check_exact=True
    )
    small = forecaster.covariate_importance(frame, 3, 4, seed=1, batch_size=2)
    pd.testing.assert_frame_equal(small, first, rtol=1e-4, atol=1e-6)
    other = forecaster.covariate_importance(frame, 3, 4, seed=2)
    assert not np.allclose(other.sort_values("covariate")["importance"], first["importance"])


def test_memory_holds_one_batch_of_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    forecaster = forecaster_with_covariates()
    sizes = []
    forward = forecaster.network.forward

    def counting(context: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        sizes.append(len(context))
        return forward(context, *others)

    monkeypatch.setattr(forecaster.network, "forward", counting)
    frame = with_covariates(make_long({"a": 60, "b": 60}))
    forecaster.covariate_importance(frame, 5, 2, batch_size=4, repeats=2)
    assert max(sizes) == 4
    assert sum(sizes) == 10 * (1 + 2 * 5)


@pytest.mark.parametrize(
    ("make", "frame"),
    [
        (lambda: make_forecaster(columns=Columns(None, "ds", ("a", "b"))), wide),
        (lambda: make_forecaster(columns=Columns(None, "ds", ("a", "b")), regular=False), wide),
        (lambda: make_forecaster(channels="joint"), lambda frame: frame),
    ],
)
def test_the_calendar_alone_is_judged(make: Any, frame: Any) -> None:
    table = frame(make_long({"a": 60, "b": 60}))
    found = make().covariate_importance(table, n_windows=1)  # all windows at the same time
    assert found["covariate"].tolist() == ["calendar"]
    assert abs(found["importance"][0]) > 1e-4


def test_windows_borrow_from_any_but_themselves() -> None:
    lengths, n_windows = [L + H, L + H + 1, L + H + 4], 3
    group = np.tile(np.arange(3), n_windows)
    origins = np.array(lengths)[group] - np.repeat(H + np.arange(n_windows)[::-1], 3)
    lent: set[tuple[int, int]] = set()
    for seed in range(60):
        lenders = lenders_of(lengths, n_windows, 1, [seed, 0])
        pairs = list(zip(lenders.groups.tolist(), lenders.origins.tolist(), strict=True))
        is_own = (lenders.groups == group) & (lenders.origins == origins)
        assert not is_own.any()
        lent |= set(pairs)
        assert (lenders.static != group).all()
        assert sorted(set(lenders.static.tolist())) == [0, 1, 2]
    complete = [(g, origin) for g, n in enumerate(lengths) for origin in range(L, n - H + 1)]
    assert sorted(lent) == complete


def test_what_no_swap_changes_cannot_be_judged() -> None:
    frame = with_covariates(make_long({"a": 60})).assign(price=2.0)
    found = forecaster_with_covariates().covariate_importance(frame, 7).set_index("covariate")
    unknown = found.index[found["importance"].isna()]
    assert sorted(unknown) == ["price", "region"]  # a constant, and static of a single series
    assert list(found.index[-2:]) == list(unknown)


def test_holidays_are_judged_beside_the_calendar() -> None:
    pytest.importorskip("holidays")
    forecaster = make_forecaster()
    config = forecaster.config.model_copy(update={"holidays": "DE"})
    names = [(each.name, each.features) for each in covariates_of(config)]
    assert names == [("calendar", slice(0, 6)), ("holidays", slice(6, 7))]


def test_a_model_without_covariates_and_a_table_without_truth_are_told() -> None:
    forecaster = make_forecaster()
    frame = make_long({"a": 60})
    with pytest.raises(DataError, match="the table needs the columns"):
        forecaster.covariate_importance(frame.drop(columns="y"))
    unknown = frame.assign(y=frame["y"].where(frame.index < 60 - H))
    with pytest.raises(DataError, match="the last windows of 6 steps have no observed values"):
        forecaster.covariate_importance(unknown, n_windows=1)
    with pytest.raises(DataError, match="one window of 24 and 6 steps, and no other"):
        forecaster.covariate_importance(frame[: L + H], n_windows=1)
    with pytest.raises(DataError, match="too large to forecast from"):
        forecaster.covariate_importance(frame.assign(y=np.r_[[1e38] * 30, frame["y"][30:]]), 2)
    with pytest.raises(ConfigError, match="repeats=0: give a whole number from 1 up"):
        forecaster.covariate_importance(frame, repeats=0)
    config = forecaster.config.model_copy(update={"calendar": False})
    bare = Forecaster(forecaster.network, config)
    with pytest.raises(ConfigError, match="neither covariates nor calendar features"):
        bare.covariate_importance(frame)
