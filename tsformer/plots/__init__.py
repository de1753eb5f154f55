"""Figures: forecasts, errors by horizon step, calibration, training, attention, importances.

Each function returns a matplotlib `Figure`: a new one, or that of the axes it is given, `ax=`. A
notebook shows it as the value of a cell, and `figure.savefig("forecast.png")` writes it.
"""

from tsformer.plots.attention import plot_attention, plot_draws_on, plot_positions
from tsformer.plots.errors import plot_calibration, plot_error_by_horizon
from tsformer.plots.forecast import plot_forecast
from tsformer.plots.importance import plot_importance
from tsformer.plots.training import plot_lr_test, plot_training

__all__ = [
    "plot_attention",
    "plot_calibration",
    "plot_draws_on",
    "plot_error_by_horizon",
    "plot_forecast",
    "plot_importance",
    "plot_lr_test",
    "plot_positions",
    "plot_training",
]
