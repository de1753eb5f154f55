"""Figures carry the data they are given, in its units and times."""

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from tests.reference.transformer import sinusoidal_positions
from tsformer.attention_maps import AttentionMaps
from tsformer.errors import ConfigError
from tsformer.plots import (
    plot_attention,
    plot_calibration,
    plot_draws_on,
    plot_error_by_horizon,
    plot_forecast,
    plot_positions,
    plot_training,
)


def test_a_forecast_shows_context_truth_and_forecast_in_local_time() -> None:
    ax = Figure().subplots()
    index = pd.date_range("2024-01-01", periods=30, freq="h", tz="Asia/Tokyo")
    values = pd.Series(np.arange(30.0), index=index)
    plot_forecast(ax, context=values[:24], truth=values[24:], forecast=values[24:] + 1, unit="MW")
    lines = {line.get_label(): line for line in ax.get_lines()}
    np.testing.assert_array_equal(lines["tsformer"].get_ydata(), values[24:] + 1)
    np.testing.assert_array_equal(lines["truth"].get_ydata(), values[24:])
    assert len(lines["context"].get_ydata()) == 24
    assert ax.get_ylabel() == "MW"
    assert "Asia/Tokyo" in ax.get_xlabel()
    midnight = mdates.date2num(pd.Timestamp("2024-01-02", tz="Asia/Tokyo"))
    assert any(np.isclose(tick, midnight) for tick in ax.get_xticks())


def test_errors_by_horizon_count_hours_or_days() -> None:
    for step, unit, last in (
        (pd.Timedelta("30min"), "hours", 24),
        (pd.Timedelta(days=1), "days", 48),
    ):
        ax = Figure().subplots()
        errors = {"tsformer": np.linspace(1, 2, 48), "naive": np.full(48, 3.0)}
        plot_error_by_horizon(ax, errors, step=step, unit="MW")
        assert ax.get_xlabel() == f"{unit} ahead"
        assert "MW" in ax.get_ylabel()
        assert [line.get_label() for line in ax.get_lines()] == ["tsformer", "naive"]
        assert ax.get_lines()[0].get_xdata()[-1] == last
        assert ax.get_ylim()[0] == 0


def test_training_curves_show_the_chosen_checkpoint() -> None:
    nan = float("nan")
    curves = pd.DataFrame(
        {
            "step": [1, 2, 2, 4],
            "train/loss": [3.0, 2.0, nan, 1.0],
            "val/mae": [nan, nan, 0.5, nan],
            "lr-AdamW": [0.1, 0.2, nan, 0.1],
        }
    )
    top, bottom = plot_training(curves, best_step=2).axes
    lines = {line.get_label(): line for line in top.get_lines()}
    assert list(lines["training loss"].get_ydata()) == [3.0, 2.0, 1.0]
    assert list(lines["validation MAE"].get_xdata()) == [2]
    assert list(lines["best checkpoint"].get_xdata()) == [2, 2]
    assert bottom.get_ylabel() == "learning rate"


def test_intervals_are_bands_behind_the_forecast_the_narrowest_on_top() -> None:
    ax = Figure().subplots()
    index = pd.date_range("2024-01-01", periods=30, freq="h")
    values = pd.Series(np.arange(30.0), index=index)
    ahead = values[24:]
    ends = {nominal: (ahead - 9 * nominal, ahead + 9 * nominal) for nominal in (0.5, 0.95, 0.8)}
    plot_forecast(ax, context=values[:24], truth=ahead, forecast=ahead, intervals=ends)
    bands = ax.collections
    assert [band.get_label() for band in bands] == ["95 %", "80 %", "50 %"]
    assert max(band.get_zorder() for band in bands) < min(x.get_zorder() for x in ax.get_lines())
    for band, nominal in zip(bands, (0.95, 0.8, 0.5), strict=True):
        corners = band.get_paths()[0].vertices
        for stamp, *pair in zip(index[24:], *ends[nominal], strict=True):
            for y in pair:
                assert np.isclose(corners, [mdates.date2num(stamp), y]).all(axis=1).any()
    darkness = [-band.get_facecolor()[0, :3].sum() for band in bands]
    assert darkness == sorted(set(darkness))


def test_without_intervals_there_are_no_bands() -> None:
    ax = Figure().subplots()
    values = pd.Series(np.arange(3.0), index=pd.date_range("2024-01-01", periods=3, freq="h"))
    plot_forecast(ax, context=values, truth=values, forecast=values)
    assert not ax.collections


def test_calibration_is_drawn_against_the_diagonal() -> None:
    ax = Figure().subplots()
    levels = (0.1, 0.5, 0.9)
    fractions = {"tsformer": np.array([0.2, 0.5, 0.8]), "calibrated after all": [0.1, 0.5, 0.9]}
    plot_calibration(ax, levels, fractions)
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert list(lines) == ["calibrated", *fractions]
    assert list(lines["calibrated"].get_xdata()) == list(lines["calibrated"].get_ydata())
    for name, fraction in fractions.items():
        assert tuple(lines[name].get_xdata()) == levels
        np.testing.assert_array_equal(lines[name].get_ydata(), fraction)
    assert len({line.get_color() for line in lines.values()}) == 3
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (0, 1))


def random_maps(zone: str | None = None) -> AttentionMaps:
    """Return maps of two encoder layers and one decoder layer, of 6 and 3 tokens of 4 hours."""
    rng = np.random.default_rng(0)
    parts = []
    for shape in ((2, 3, 6, 6), (1, 3, 3, 3), (1, 3, 3, 6)):
        weights = rng.random(shape)
        parts.append(weights / weights.sum(axis=-1, keepdims=True))
    steps = pd.date_range("2024-01-01", periods=34, freq="h", tz=zone)
    return AttentionMaps(("a",), *parts, steps[:24], steps[24:], 4)  # the last token is cut short


def mesh_of(ax: Axes) -> QuadMesh:
    (mesh,) = (part for part in ax.collections if isinstance(part, QuadMesh))
    return mesh


CONTEXT_EDGES = pd.date_range("2024-01-01", "2024-01-02", freq="4h")
HORIZON_EDGES = pd.DatetimeIndex(
    [*pd.date_range("2024-01-02", periods=3, freq="4h"), "2024-01-02 10:00"]
)


@pytest.mark.parametrize("zone", [None, "Asia/Tokyo"])
@pytest.mark.parametrize(
    ("kind", "rows", "columns"),
    [
        ("encoder", CONTEXT_EDGES, CONTEXT_EDGES),
        ("decoder", HORIZON_EDGES, HORIZON_EDGES),
        ("cross", HORIZON_EDGES, CONTEXT_EDGES),
    ],
)
def test_attention_is_drawn_where_its_tokens_lie_in_time(
    kind: str, rows: pd.DatetimeIndex, columns: pd.DatetimeIndex, zone: str | None
) -> None:
    maps = random_maps(zone)
    ax = Figure().subplots()
    plot_attention(ax, maps, kind, layer=0, head=2)
    mesh = mesh_of(ax)
    np.testing.assert_array_equal(mesh.get_array(), getattr(maps, kind)[0, 2])
    corners = mesh.get_coordinates()  # (R+1, C+1, 2)
    places = [mdates.date2num(edges.tz_localize(zone)) for edges in (rows, columns)]
    np.testing.assert_allclose(corners[:, 0, 1], places[0])
    np.testing.assert_allclose(corners[0, :, 0], places[1])
    assert ax.yaxis_inverted()
    assert ax.get_xlabel().endswith(f"time ({zone})" if zone else "time")
    assert f"from {rows[0]:%Y-%m-%d}" in ax.get_ylabel()
    assert "layer 0, head 2" in ax.get_title()
    assert mesh.colorbar.ax.get_ylabel() == "attention weight"
    assert mesh.norm.vmin == 0


def test_attention_of_all_layers_and_heads_is_their_mean() -> None:
    maps = random_maps()
    ax = Figure().subplots()
    plot_attention(ax, maps, "encoder")
    np.testing.assert_allclose(mesh_of(ax).get_array(), maps.encoder.mean(axis=(0, 1)))
    assert ax.get_title() == "encoder self-attention, mean of 2 layers, mean of 3 heads"
    ax = Figure().subplots()
    plot_attention(ax, maps, "encoder", head=1)
    np.testing.assert_allclose(mesh_of(ax).get_array(), maps.encoder[:, 1].mean(axis=0))
    ax = Figure().subplots()
    plot_attention(ax, maps)
    assert ax.get_title() == "cross-attention, layer 0, mean of 3 heads"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "both"}, "kind='both': give one of encoder, decoder, cross"),
        ({"layer": 1}, "layer=1: the cross maps have 1, counted from 0"),
        ({"kind": "encoder", "head": -1}, "head=-1: the encoder maps have 3"),
    ],
)
def test_attention_that_is_not_there_is_refused(arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plot_attention(Figure().subplots(), random_maps(), **arguments)


def test_what_the_horizon_draws_on_is_drawn_by_steps_in_percent() -> None:
    maps = random_maps()
    ax = Figure().subplots()
    plot_draws_on(ax, maps)
    mesh = mesh_of(ax)
    np.testing.assert_allclose(mesh.get_array(), 100 * maps.draws_on())
    corners = mesh.get_coordinates()
    assert corners.shape == (11, 25, 2)
    ends = mdates.date2num(pd.DatetimeIndex(["2024-01-02", "2024-01-02 10:00"]))
    np.testing.assert_allclose(corners[[0, -1], 0, 1], ends)
    assert "%" in mesh.colorbar.ax.get_ylabel()


def test_positions_are_drawn_one_a_row() -> None:
    ax = Figure().subplots()
    plot_positions(ax, d_model=9, length=20)
    (image,) = ax.get_images()
    np.testing.assert_allclose(image.get_array(), sinusoidal_positions(20, 9), atol=1e-5)
    assert ax.yaxis_inverted()  # the first one on top
    assert (image.norm.vmin, image.norm.vmax) == (-1, 1)
