"""Figures carry the data they are given, in its units and times."""

import matplotlib.dates as mdates
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from tsformer.plots import plot_error_by_horizon, plot_forecast, plot_training


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
