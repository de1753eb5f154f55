"""Attention of a table's forecasts: whose it is, of which times, and what it draws on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from tests.forecasters import H, L, make_forecaster, make_long
from tsformer.data.columns import Columns
from tsformer.errors import ConfigError, DataError
from tsformer.forecaster import Forecaster
from tsformer.prediction.attention_maps import AttentionMaps

each_decoding = pytest.mark.parametrize("decoding", ["parallel", "autoregressive"])


@each_decoding
def test_each_series_has_its_maps_and_times(decoding: str) -> None:
    frame = make_long({"b": 40, "new": 31, "a": 24})
    maps = make_forecaster(decoding=decoding).attention(frame)
    assert [each.series for each in maps] == [("b",), ("new",), ("a",)]
    for each in maps:
        assert each.encoder.shape == (1, 2, 4, 4)
        assert each.decoder.shape == (1, 2, 1, 1)
        assert each.cross.shape == (1, 2, 1, 4)
        last = frame.loc[frame["unique_id"] == each.series[0], "ds"].max()
        assert list(each.context) == list(pd.date_range(end=last, periods=L, freq="h"))
        assert list(each.horizon) == list(pd.date_range(last, periods=H + 1, freq="h")[1:])
        assert list(each.context_tokens) == list(each.context[::6])
        assert list(each.horizon_tokens) == [each.horizon[0]]
        for weights in (each.encoder, each.decoder, each.cross):
            np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-5)


def test_the_maps_are_those_of_the_forecast() -> None:
    """What each module was given while `predict` ran has the weights that `attention` tells."""
    forecaster = make_forecaster()
    frame = make_long({"a": 40, "b": 31})
    transformer = forecaster.network.transformer
    modules = {
        "encoder": transformer.encoder_layers[0].attention,
        "decoder": transformer.decoder_layers[0].attention,
        "cross": transformer.decoder_layers[0].cross_attention,
    }
    given: dict[nn.Module, Any] = {}

    def keep(module: nn.Module, args: Any, kwargs: Any) -> None:
        given[module] = args, kwargs

    hooks = [
        module.register_forward_pre_hook(keep, with_kwargs=True) for module in modules.values()
    ]
    forecaster.predict(frame)
    for hook in hooks:
        hook.remove()
    maps = forecaster.attention(frame)
    for name, module in modules.items():
        args, kwargs = given[module]
        with torch.inference_mode():
            expected = module.weights(*args, **kwargs)  # (B, N, T, S)
        found = np.stack([getattr(each, name)[0] for each in maps])
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-6)


@each_decoding
def test_looking_does_not_change_forecasts(decoding: str) -> None:
    forecaster = make_forecaster(decoding=decoding)
    frame = make_long({"a": 40, "b": 31})
    before = forecaster.predict(frame)
    forecaster.attention(frame)
    pd.testing.assert_frame_equal(forecaster.predict(frame), before, check_exact=True)


@pytest.mark.parametrize("freq", ["h", "ME"])
@pytest.mark.parametrize("length", [1, 13, 23])
def test_times_before_a_short_series_have_no_weight(length: int, freq: str) -> None:
    frame = make_long({"b": length}, freq=freq)
    (maps,) = make_forecaster(freq=freq).attention(frame)
    last = frame["ds"].max()
    assert list(maps.context) == list(pd.date_range(end=last, periods=L, freq=freq))
    absent = 4 - -(-length // 6)
    assert not maps.encoder[..., :absent].any()
    assert not maps.cross[..., :absent].any()
    assert (maps.cross[..., absent:] > 0).all()
    draws = maps.draws_on().to_numpy()
    assert not draws[:, : absent * 6].any()
    np.testing.assert_allclose(draws.sum(axis=1), 1)


def test_zoned_times_stay_in_their_zone() -> None:
    frame = make_long({"b": 9})
    frame["ds"] = frame["ds"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    (maps,) = make_forecaster(time_zone="Asia/Tokyo").attention(frame)
    assert str(maps.context.tz) == str(maps.horizon.tz) == "Asia/Tokyo"
    assert maps.context[-1] == frame["ds"].max()
    assert maps.context[0] == frame["ds"].max() - pd.Timedelta(hours=L - 1)


def test_series_forecast_together_have_one_map() -> None:
    frame = make_long({"b": 30, "a": 26})
    forecaster = make_forecaster(channels="joint")
    (maps,) = forecaster.attention(frame)
    assert maps.series == ("a", "b")  # in the order of the channels
    (chosen,) = forecaster.attention(frame, ids="b")
    np.testing.assert_array_equal(chosen.cross, maps.cross)


def test_series_are_chosen_by_id() -> None:
    columns = Columns("shop", "ds", ("units", "revenue"))
    forecaster = make_forecaster(columns=columns, ids=("7/units", "7/revenue"))
    frame = make_long({"7": 30, "8": 26}).rename(columns={"unique_id": "shop", "y": "units"})
    frame = frame.astype({"shop": int}).assign(revenue=lambda x: x["units"] ** 2)
    every = {each.series: each for each in forecaster.attention(frame)}
    for ids, names in (
        (8, ["8/units", "8/revenue"]),
        ("8/units", ["8/units"]),
        ([8, "7/revenue"], ["7/revenue", "8/units", "8/revenue"]),
    ):
        chosen = forecaster.attention(frame, ids=ids)
        assert [each.series for each in chosen] == [(name,) for name in names]
        for each in chosen:  # alone and among others, up to rounding
            np.testing.assert_allclose(each.cross, every[each.series].cross, rtol=1e-5)
    with pytest.raises(ConfigError, match="ids: there is none"):
        forecaster.attention(frame, ids=[])
    with pytest.raises(DataError, match=r"no series 'c', but series '7/units', '7/revenue'"):
        forecaster.attention(frame, ids=["c", 8])


def test_future_covariates_belong_to_the_series_chosen() -> None:
    columns = Columns("unique_id", "ds", ("y",), (), ("price",))
    forecaster = make_forecaster(columns=columns)
    frame = make_long({"a": 30, "b": 30}).assign(price=1.0)
    times = pd.date_range("2024-03-02 06:00", periods=H, freq="h")
    future = pd.concat(
        pd.DataFrame({"unique_id": id, "ds": times, "price": price})
        for id, price in (("a", 2.0), ("b", 9.0))
    )
    _, both = forecaster.attention(frame, future)
    (alone,) = forecaster.attention(frame, future, ids="b")
    np.testing.assert_allclose(alone.cross, both.cross, rtol=1e-5)
    of_b = frame["unique_id"] == "b", future["unique_id"] == "b"
    (expected,) = forecaster.attention(frame[of_b[0]], future[of_b[1]])
    np.testing.assert_allclose(alone.cross, expected.cross, rtol=1e-5)


PRICED = Columns("unique_id", "ds", ("y",), (), ("price",))


@pytest.mark.parametrize(
    ("columns", "spoil", "message"),
    [
        (None, lambda x: x.drop(columns="y"), "needs the columns"),
        (None, lambda x: pd.concat([x, x.head(1)]), "series 'a'"),
        (None, lambda x: x.assign(y=x["y"].where(x["unique_id"] == "a")), "no observed value"),
        (None, lambda x: x.assign(y=x["y"] * 1e300), "too large"),
        (PRICED, lambda x: x.assign(price=1.0), r"future covariates \['price'\]"),
    ],
)
def test_what_predict_refuses_is_refused_alike(
    columns: Columns | None, spoil: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    forecaster: Forecaster = make_forecaster(columns=columns)
    frame = spoil(make_long({"a": 30, "b": 30}))
    with pytest.raises(DataError, match=message) as refused:
        forecaster.predict(frame)
    with pytest.raises(DataError) as found:
        forecaster.attention(frame)
    assert str(found.value) == str(refused.value)


def hours(count: int, start: str) -> pd.DatetimeIndex:
    return pd.date_range(start, periods=count, freq="h")


def make_maps(
    encoder: Any, decoder: Any, cross: Any, patch_len: int, horizon: int
) -> AttentionMaps:
    """Return the maps of one head and a layer each, (P, P), (T, T) and (T, P)."""
    parts = [np.array(part, dtype=np.float32)[None, None] for part in (encoder, decoder, cross)]
    context = hours(len(encoder) * patch_len, "2024-01-01")
    return AttentionMaps(
        ("a",), *parts, context, hours(horizon, str(context[-1] + pd.Timedelta("1h"))), patch_len
    )


def test_a_horizon_step_draws_on_what_its_token_reaches_by_either_way() -> None:
    maps = make_maps([[1, 0], [1, 0]], [[1, 0], [1, 0]], [[1, 0], [0, 1]], patch_len=2, horizon=3)
    draws = maps.draws_on()
    # The second context token is half itself, half the first; the second horizon token attends to
    # it alone. What the decoder's self-attention passes on has not seen the context yet.
    expected = [[0.5, 0.5, 0, 0]] * 2 + [[0.25, 0.25, 0.25, 0.25]]
    np.testing.assert_allclose(draws, expected)
    assert list(draws.index) == list(maps.horizon)
    assert list(draws.columns) == list(maps.context)


def test_later_layers_draw_on_what_earlier_ones_took_from_the_context() -> None:
    maps = make_maps(np.eye(2), [[1, 0], [1, 0]], [[1, 0], [0, 1]], patch_len=1, horizon=2)
    two = AttentionMaps(
        maps.series,
        maps.encoder,
        *(np.concatenate([part, part]) for part in (maps.decoder, maps.cross)),
        *(maps.context, maps.horizon, 1),
    )
    # Of the second token: 1/2 by the second cross-attention; 1/8 of its own from the first one,
    # and 1/8 that it took from the first token, which had drawn on the first context token.
    np.testing.assert_allclose(two.draws_on().iloc[1], [1 / 6, 5 / 6])


def test_heads_count_alike() -> None:
    maps = make_maps(np.eye(2), np.eye(1), [[1, 0]], patch_len=1, horizon=1)
    cross = np.concatenate([maps.cross, [[[[0, 1]]]]], axis=1)
    both = AttentionMaps(
        *(maps.series, maps.encoder, maps.decoder, cross), *(maps.context, maps.horizon, 1)
    )
    np.testing.assert_allclose(both.draws_on(), [[0.5, 0.5]])
