"""Figures carry the data they are given, in its units and times."""

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsformer.plots import (
    plot_calibration,
    plot_error_by_horizon,
    plot_forecast,
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
