"""Figures carry the data they are given, in its units and times."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
import polars
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from tests.forecasters import H, make_forecaster, make_long
from tests.reference.transformer import sinusoidal_positions
from tsformer.errors import ConfigError, DataError
from tsformer.plots import (
    plot_attention,
    plot_calibration,
    plot_draws_on,
    plot_error_by_horizon,
    plot_forecast,
    plot_importance,
    plot_positions,
    plot_training,
)
from tsformer.plots.style import FORECAST
from tsformer.prediction.attention_maps import AttentionMaps


def forecast_frame(
    ids: Sequence[object] = ("a",), windows: int = 1, zone: str | None = None, steps: int = 6
) -> pd.DataFrame:
    """Return forecasts as `cross_validate` does, 100 apart by series, from hour 24 on."""
    begin = pd.Timestamp("2024-01-02", tz=zone)
    parts = []
    for number, id in enumerate(ids):
        for window in range(windows):
            first = begin + pd.Timedelta(hours=steps * window)
            y = 100.0 * number + 24 + steps * window + np.arange(steps)
            rows = {"unique_id": id, "ds": pd.date_range(first, periods=steps, freq="h")}
            rows |= {"cutoff": first - pd.Timedelta(hours=1), "y": y, "tsformer": y + 1}
            parts.append(pd.DataFrame(rows))
    return pd.concat(parts, ignore_index=True)


def history_frame(
    ids: Sequence[object] = ("a",), zone: str | None = None, length: int = 60
) -> pd.DataFrame:
    """Return the history of `forecast_frame`, in which the value is the hour."""
    stamps = pd.date_range("2024-01-01", periods=length, freq="h", tz=zone)
    parts = [
        pd.DataFrame({"unique_id": id, "ds": stamps, "y": 100.0 * number + np.arange(length)})
        for number, id in enumerate(ids)
    ]
    return pd.concat(parts, ignore_index=True)


def lines_of(ax: Axes) -> dict[str, Line2D]:
    return {line.get_label(): line for line in ax.get_lines()}


def legend_of(owner: Axes | Figure) -> list[str]:
    (legend,) = owner.legends if isinstance(owner, Figure) else [owner.get_legend()]
    assert not any(text.get_parse_math() for text in legend.get_texts())
    return [text.get_text() for text in legend.get_texts()]


def test_a_forecast_shows_context_truth_and_forecast_in_local_time() -> None:
    zone = "Asia/Tokyo"
    figure = plot_forecast(forecast_frame(zone=zone), history_frame(zone=zone), unit="$ / MWh")
    assert isinstance(figure, Figure)
    (ax,) = figure.axes
    lines = lines_of(ax)
    np.testing.assert_array_equal(lines["tsformer"].get_ydata(), np.arange(25.0, 31))
    np.testing.assert_array_equal(lines["truth"].get_ydata(), np.arange(24.0, 30))
    # Three horizons, up to the cutoff.
    np.testing.assert_array_equal(lines["context"].get_ydata(), np.arange(6.0, 24))
    assert ax.get_ylabel() == "$ / MWh"
    assert not ax.yaxis.label.get_parse_math()
    assert ax.get_xlabel() == "time (Asia/Tokyo)"
    midnight = mdates.date2num(pd.Timestamp("2024-01-02", tz=zone))
    assert any(np.isclose(tick, midnight) for tick in ax.get_xticks())
    assert legend_of(figure) == ["context", "truth", "tsformer"]


def test_a_forecast_as_predict_returns_it_needs_nothing_else() -> None:
    forecast = forecast_frame().drop(columns=["cutoff", "y"])
    (ax,) = plot_forecast(forecast).axes
    assert {"context", "truth"}.isdisjoint(lines_of(ax))
    (ax,) = plot_forecast(forecast, history_frame(length=24)).axes
    assert "truth" not in lines_of(ax)
    (ax,) = plot_forecast(forecast, history_frame(length=27), context=2).axes
    assert list(lines_of(ax)["context"].get_ydata()) == [22, 23]
    assert list(lines_of(ax)["truth"].get_ydata()) == [24, 25, 26]


@pytest.mark.parametrize("step", [1, -1])
def test_rows_may_stand_in_any_order(step: int) -> None:
    forecast, history = forecast_frame()[::step], history_frame()[::step]
    (ax,) = plot_forecast(forecast, history).axes
    assert list(lines_of(ax)["context"].get_ydata()) == list(range(6, 24))
    assert list(lines_of(ax)["tsformer"].get_ydata()) == list(range(25, 31))


def test_axes_are_drawn_on_and_their_figure_returned() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert plot_forecast(forecast_frame(), ax=right) is figure
    assert not left.lines
    assert legend_of(right) == ["truth", "tsformer"]
    part = Figure().subfigures(1, 2)[1]
    assert plot_forecast(forecast_frame(), ax=part.subplots()) is part.figure


def test_figures_show_themselves_in_notebooks() -> None:
    for figure in (plot_forecast(forecast_frame()), plot_positions(4, 4)):
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_each_window_has_a_panel_and_of_many_four_are_spread_evenly() -> None:
    ids = ["$a$", "b_1"]
    figure = plot_forecast(forecast_frame(ids), history_frame(ids))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ids
    for number, ax in enumerate(figure.axes):
        assert lines_of(ax)["context"].get_ydata()[0] == 100 * number + 6
        assert list(lines_of(ax)["tsformer"].get_ydata()) == list(100 * number + np.arange(25, 31))
    figure = plot_forecast(forecast_frame(["a", "b"], windows=5))
    first = [lines_of(ax)["truth"].get_ydata()[0] for ax in figure.axes]
    assert first == [24, 42, 130, 148]  # the first, fourth, seventh and last of ten
    assert legend_of(figure) == ["truth", "tsformer"]


def test_a_window_is_chosen_by_series_and_cutoff() -> None:
    frame = forecast_frame([7, 8], windows=2, zone="Europe/Berlin")
    history = history_frame(["7", "8"], zone="UTC")  # other types of id, and another zone
    history["ds"] += pd.Timedelta(hours=-1)  # midnight in Berlin
    for cutoff in ("2024-01-02 05:00", pd.Timestamp("2024-01-02 04:00", tz="UTC")):
        (ax,) = plot_forecast(frame, history, unique_id="8", cutoff=cutoff).axes
        assert list(lines_of(ax)["truth"].get_ydata()) == list(range(130, 136))
        assert list(lines_of(ax)["context"].get_ydata()) == list(range(112, 130))
    assert len(plot_forecast(frame, unique_id=7).axes) == 2
    (ax,) = plot_forecast(frame, unique_id=7.0, cutoff="2024-01-01 23:00").axes
    assert ax.get_title(loc="left") == "7"


def test_several_target_columns_are_told_apart() -> None:
    frame = forecast_frame(windows=1)
    both = pd.concat([frame.assign(target="units"), frame.assign(target="sales", y=0.0)])
    history = history_frame().rename(columns={"y": "units", "unique_id": "shop", "ds": "day"})
    history["sales"] = -history["units"]
    columns = {"id_column": "shop", "time_column": "day"}
    figure = plot_forecast(both, history, **columns)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["a/units", "a/sales"]
    (ax,) = plot_forecast(both, history, target="sales", **columns).axes
    assert list(lines_of(ax)["context"].get_ydata()) == list(range(-6, -24, -1))


def test_a_wide_history_and_tables_of_other_kinds_are_taken(tmp_path: Path) -> None:
    wide = history_frame().pivot(index="ds", columns="unique_id", values="y").reset_index()
    wide.to_csv(tmp_path / "history.csv", index=False)
    for history in (wide, polars.from_pandas(history_frame()), tmp_path / "history.csv"):
        (ax,) = plot_forecast(polars.from_pandas(forecast_frame()), history).axes
        assert list(lines_of(ax)["context"].get_ydata()) == list(range(6, 24))


def test_months_and_a_change_of_the_clock_lie_where_they_are() -> None:
    index = pd.date_range("2024-01-31", periods=24, freq="ME")
    frame = pd.DataFrame({"unique_id": "a", "ds": index, "tsformer": np.arange(24.0)})
    (ax,) = plot_forecast(frame).axes
    np.testing.assert_array_equal(lines_of(ax)["tsformer"].get_xdata(), index)
    index = pd.date_range("2024-10-27", periods=30, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"unique_id": "a", "ds": index, "tsformer": np.arange(30.0)})
    figure = plot_forecast(frame)
    hours = lines_of(figure.axes[0])["tsformer"].get_xdata(orig=False) * 24
    np.testing.assert_allclose(np.diff(hours), 1, rtol=1e-6)
    figure.canvas.draw()
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert "Oct-28" in labels or "28" in labels


def test_a_value_between_missing_ones_is_seen() -> None:
    frame = forecast_frame()
    frame["y"] = [1.0, np.nan, 3.0, np.nan, 5.0, 6.0]
    (ax,) = plot_forecast(frame).axes
    np.testing.assert_array_equal(lines_of(ax)["truth"].get_ydata(), frame["y"])
    (dots,) = (line for line in ax.get_lines() if line.get_marker() == ".")
    assert list(dots.get_ydata()) == [1, 3]
    (ax,) = plot_forecast(frame.assign(y=np.nan)).axes
    assert "truth" not in lines_of(ax)
    frame = forecast_frame(steps=1)  # a step has no length that a line or a band could have
    frame = frame.assign(**{"tsformer-lo-90": 20.0, "tsformer-hi-90": 30.0})
    (ax,) = plot_forecast(frame).axes
    dots = [line for line in ax.get_lines() if line.get_marker() == "."]
    assert {line.get_ydata()[0] for line in dots} == {24, 25}
    (band,) = ax.collections
    assert band.get_segments()[0][:, 1].tolist() == [20, 30]


def test_intervals_are_bands_behind_the_forecast_the_narrowest_on_top() -> None:
    frame = forecast_frame()
    ahead = frame["tsformer"]
    ends = {50: ("q-0.25", "q-0.75"), 95: ("lo-95", "hi-95"), 80: ("q-0.1", "q-0.9")}
    for percent, (lower, upper) in ends.items():
        frame[f"tsformer-{lower}"] = ahead - percent
        frame[f"tsformer-{upper}"] = ahead + percent
    frame["tsformer-lo-80"], frame["tsformer-hi-80"] = ahead - 80, ahead + 80  # told twice
    frame["tsformer-q-0.5"], frame["tsformer-q-0.99"] = ahead, ahead  # without a counterpart
    frame["tsformer-sample-1"] = ahead
    frame["naive"] = frame["naive-lo-90"] = frame["naive-hi-90"] = 0.0
    figure = plot_forecast(frame)
    assert legend_of(figure) == ["truth", "tsformer", "naive", "95 %", "80 %", "50 %"]
    (ax,) = figure.axes
    bands = ax.collections
    assert [band.get_label() for band in bands] == ["95 %", "80 %", "50 %"]
    assert max(band.get_zorder() for band in bands) < min(x.get_zorder() for x in ax.get_lines())
    for band, percent in zip(bands, (95, 80, 50), strict=True):
        corners = band.get_paths()[0].vertices
        for stamp, value in zip(frame["ds"], ahead, strict=True):
            for y in (value - percent, value + percent):
                assert np.isclose(corners, [mdates.date2num(stamp), y]).all(axis=1).any()
    darkness = [-band.get_facecolor()[0, :3].sum() for band in bands]
    assert darkness == sorted(set(darkness))
    (ax,) = plot_forecast(frame, methods="naive").axes
    assert [band.get_label() for band in ax.collections] == ["90 %"]
    assert "tsformer" not in lines_of(ax)


def test_methods_have_colours_of_their_own_and_the_first_is_on_top() -> None:
    frame = forecast_frame().assign(NHITS=1.0, naive=2, promo=True, region="north")
    (ax,) = plot_forecast(frame).axes
    lines = lines_of(ax)
    assert [name for name in lines if name[0] != "_"] == ["truth", "tsformer", "NHITS", "naive"]
    assert len({lines[name].get_color() for name in ("tsformer", "NHITS", "naive")}) == 3
    assert lines["tsformer"].get_zorder() > lines["NHITS"].get_zorder()
    (ax,) = plot_forecast(frame, methods=["naive", "tsformer"]).axes
    assert lines_of(ax)["naive"].get_zorder() > lines_of(ax)["tsformer"].get_zorder()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"unique_id": "c"}, "unique_id='c': the forecast has 'a', 'b'"),
        ({"cutoff": "2024-05-01"}, "cutoff='2024-05-01': the forecast has '2024-01-01 23:00:00'"),
        ({"target": "y"}, "target='y': the forecast has no column 'target'"),
        ({"methods": ["tsformer", "NHITS"]}, "the forecast has tsformer"),
        ({"methods": []}, "the forecast has tsformer"),
        ({"context": -1}, "context=-1: give a whole number from 0 up"),
        (
            {"ax": Figure().subplots()},
            "takes one window, and the forecast has 4, of series 'a', 'b'",
        ),
    ],
)
def test_what_a_forecast_has_not_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plot_forecast(forecast_frame(["a", "b"], windows=2), **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.assign(unique_id="z"), "history: no row of series 'a', but of series 'z'"),
        (lambda x: x.rename(columns={"y": "units"}), "no column 'y', but .*target_column"),
        (lambda x: x.rename(columns={"ds": "day"}), "no column 'ds', but"),
        (lambda x: x.drop(columns="unique_id").rename(columns={"y": "units"}), "no column 'y'"),
        (lambda x: x.assign(ds=x["ds"].dt.tz_localize("UTC")), "has a time zone, unlike the"),
        (lambda x: x.assign(y="many"), "history: .*'many' is not a number"),
        (lambda x: x.assign(ds="soon"), "history: .*does not hold times.*soon"),
    ],
)
def test_a_history_that_does_not_fit_is_told(
    change: Callable[[pd.DataFrame], pd.DataFrame], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        plot_forecast(forecast_frame(), change(history_frame()))


def test_a_frame_without_forecasts_is_told() -> None:
    with pytest.raises(DataError, match="forecast: no column 'ds', but"):
        plot_forecast(forecast_frame().drop(columns="ds"))
    with pytest.raises(DataError, match="forecast: no column of forecasts beside"):
        plot_forecast(forecast_frame().drop(columns="tsformer"))


def test_what_a_joint_model_returns_is_drawn() -> None:
    frame = make_long({"b": 60, "a": 57})
    forecaster = make_forecaster(channels="joint")
    found = forecaster.cross_validate(frame, 2)
    figure = plot_forecast(found, frame)
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["b", "b", "a", "a"]
    last = frame[frame["unique_id"] == "b"].tail(3 * H + H)["y"].head(3 * H)
    np.testing.assert_array_equal(lines_of(figure.axes[1])["context"].get_ydata(), last)


def test_errors_by_horizon_count_hours_or_days() -> None:
    errors = {"tsformer": np.linspace(1, 2, 48), "naive": np.full(48, 3.0)}
    frame = pd.DataFrame(errors, index=range(1, 49))
    ahead = frame.set_index(pd.to_timedelta(frame.index * 30, unit="min"))
    for given, step, name, last in (
        (errors, pd.Timedelta("30min"), "hours ahead", 24),
        (frame, "30min", "hours ahead", 24),
        (ahead, None, "hours ahead", 24),
        (frame, pd.Timedelta(days=1), "days ahead", 48),
        (errors, None, "steps ahead", 48),
        (frame, None, "steps ahead", 48),
    ):
        figure = plot_error_by_horizon(given, step=step, unit="$")
        (ax,) = figure.axes
        assert ax.get_xlabel() == name
        assert ax.get_ylabel() == "mean absolute error ($)"
        assert legend_of(ax) == ["tsformer", "naive"]
        assert ax.get_lines()[0].get_xdata()[-1] == last
        np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), errors["tsformer"])
        assert ax.get_ylim()[0] == 0
    ax = Figure().subplots()
    assert plot_error_by_horizon(frame, ax=ax) is ax.figure
    assert len(ax.lines) == 2


def test_the_model_has_its_colour_whatever_the_order_of_methods() -> None:
    columns = {"AutoETS": [1.0, 2.0], "tsformer": [0.5, 0.6]}
    for figure in (
        plot_error_by_horizon(pd.DataFrame(columns, index=[1, 2])),
        plot_calibration(pd.DataFrame(columns, index=[0.1, 0.9])),
    ):
        lines = {line.get_label(): line for line in figure.axes[0].get_lines()}
        assert lines["tsformer"].get_color() == FORECAST
        assert lines["AutoETS"].get_color() != FORECAST


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


def test_calibration_is_drawn_against_the_diagonal() -> None:
    levels = [0.1, 0.5, 0.9]
    fractions = {"tsformer": [0.2, 0.5, 0.8], "calibrated after all": [0.1, 0.5, 0.9]}
    (ax,) = plot_calibration(pd.DataFrame(fractions, index=levels)).axes
    lines = lines_of(ax)
    assert legend_of(ax) == list(lines) == ["calibrated", *fractions]
    assert list(lines["calibrated"].get_xdata()) == list(lines["calibrated"].get_ydata())
    for name, fraction in fractions.items():
        np.testing.assert_array_equal(lines[name].get_xdata(), levels)
        np.testing.assert_array_equal(lines[name].get_ydata(), fraction)
    assert len({line.get_color() for line in lines.values()}) == 3
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 1), (0, 1))


def test_importances_are_bars_from_the_top_down() -> None:
    importance = pd.DataFrame(
        {
            "covariate": ["$wind$", "calendar", "region"],
            "kind": ["past", "calendar", "static"],
            "importance": [0.2, -0.01, np.nan],
            "std": [0.05, 0.02, np.nan],
        }
    )
    (ax,) = plot_importance(importance).axes
    assert [bar.get_width() for bar in ax.patches] == [0.2, -0.01]
    names = ax.get_yticklabels()
    assert [name.get_text() for name in names] == ["$wind$ (past)", "calendar"]
    assert not any(name.get_parse_math() for name in names)
    assert ax.yaxis_inverted()
    (whiskers,) = (part for part in ax.collections if isinstance(part, LineCollection))
    ends = [segment[:, 0] for segment in whiskers.get_segments()]
    np.testing.assert_allclose(ends, [(0.15, 0.25), (-0.03, 0.01)])


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
    figure = plot_attention(maps, kind, layer=0, head=2)
    ax = figure.axes[0]
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
    ax = plot_attention(maps, "encoder").axes[0]
    np.testing.assert_allclose(mesh_of(ax).get_array(), maps.encoder.mean(axis=(0, 1)))
    assert ax.get_title() == "encoder self-attention, mean of 2 layers, mean of 3 heads"
    ax = Figure().subplots()
    assert plot_attention(maps, "encoder", head=1, ax=ax) is ax.figure
    np.testing.assert_allclose(mesh_of(ax).get_array(), maps.encoder[:, 1].mean(axis=0))
    ax = plot_attention(maps).axes[0]
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
        plot_attention(random_maps(), **arguments)


def test_what_the_horizon_draws_on_is_drawn_by_steps_in_percent() -> None:
    maps = random_maps()
    ax = plot_draws_on(maps).axes[0]
    mesh = mesh_of(ax)
    np.testing.assert_allclose(mesh.get_array(), 100 * maps.draws_on())
    corners = mesh.get_coordinates()
    assert corners.shape == (11, 25, 2)
    ends = mdates.date2num(pd.DatetimeIndex(["2024-01-02", "2024-01-02 10:00"]))
    np.testing.assert_allclose(corners[[0, -1], 0, 1], ends)
    assert "%" in mesh.colorbar.ax.get_ylabel()


def test_positions_are_drawn_one_a_row() -> None:
    ax = plot_positions(d_model=9, length=20).axes[0]
    (image,) = ax.get_images()
    np.testing.assert_allclose(image.get_array(), sinusoidal_positions(20, 9), atol=1e-5)
    assert ax.yaxis_inverted()  # the first one on top
    assert (image.norm.vmin, image.norm.vmax) == (-1, 1)
