"""A report of half-hourly demand, made up."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from tsformer.report.content import Figures, Report, WindowView

METHODS = ("tsformer", "seasonal naive (daily)", "seasonal naive (weekly)")
_ERRORS = dict(zip(METHODS, (105.0, 321.0, 243.0), strict=True))
_HORIZON, _CONTEXT = 48, 336


def demand(index: pd.DatetimeIndex, level: float = 4800.0) -> np.ndarray:
    """Return demand that is high in the evening and low at the weekend."""
    hour = index.hour + index.minute / 60
    daily = np.sin((hour - 9) / 24 * 2 * np.pi) + 0.45 * np.sin((hour - 5) / 12 * 2 * np.pi)
    weekend = np.where(index.day_of_week >= 5, 0.9, 1.0)
    return level * weekend * (1 + 0.16 * daily)


def window_view(
    series: str = "Victoria",
    start: str = "2014-06-01",
    *,
    zone: str | None = "Australia/Melbourne",
    context: int = _CONTEXT,
    horizon: int = _HORIZON,
    seed: int = 0,
) -> WindowView:
    """Return a window of half-hourly demand."""
    rng = np.random.default_rng(seed)
    index = pd.date_range(start, periods=context + horizon, freq="30min", tz=zone)
    noise = np.convolve(rng.normal(0, 45, len(index) + 9), np.ones(10) / 3, mode="valid")
    values = pd.Series(demand(index, 4000 + 800 * rng.random()) + noise, index=index)
    truth, ahead = values.iloc[context:], index[context:]
    forecasts = {
        name: truth + np.cumsum(rng.normal(0, error / 9, horizon))
        for name, error in _ERRORS.items()
    }
    spread = np.sqrt(np.arange(1, horizon + 1)) * 18 + 30
    point = forecasts["tsformer"]
    intervals = {
        nominal: (point - factor * spread, point + factor * spread)
        for nominal, factor in ((0.9, 1.9), (0.5, 0.8))
    }
    return WindowView(
        series=series,
        cutoff=index[context - 1],
        context=values.iloc[:context],
        truth=pd.Series(truth, index=ahead),
        forecasts=forecasts,
        intervals=intervals,
    )


def small_report(windows: Sequence[WindowView] = ()) -> Report:
    """Return a report of forecasts alone."""
    return Report(title="Demand", subtitle="", headline=(), windows=windows)


def demand_report() -> Report:
    """Return a report with all its parts."""
    regions = ("Victoria", "New South Wales", "Queensland", "South Australia", "Tasmania")
    starts = pd.date_range("2014-06-01", periods=8, freq="9D")
    windows = [
        window_view(region, f"{start:%Y-%m-%d}", seed=10 * number + place)
        for number, region in enumerate(regions)
        for place, start in enumerate(starts)
    ]
    return replace(
        small_report(windows),
        title="Electricity demand, one day ahead",
        subtitle="5 regions, half-hourly: 48 steps from a context of 336, quantile head",
        headline=_headline(),
        error_by=_error_by(),
        calibration=_calibration(),
        series=_series(regions),
        curves=_curves(),
        best_step=1800,
        data={
            "Series": 5.0,
            "Rows": 262_992.0,
            "Step": "30min",
            "From": "2012-01-01 00:00",
            "To": "2014-12-31 23:30",
            "Time zone": "Australia/Melbourne",
            "Missing": "0.02 %",
            "Split": "70 % train, 10 % validation, 20 % test",
        },
        settings=_SETTINGS,
        how_to_load=_HOW_TO_LOAD,
        notes=("The forecasts use the temperature of the day ahead as it was measured.",),
        unit="MW",
    )


def _headline() -> list[Figures]:
    errors = Figures(
        title="Test: 10,474 windows of 48 steps",
        columns=("", "MAE", "RMSE", "MASE", "MAE (z)", "MAE cut"),
        rows=(
            ("tsformer", 105.1, 148.2, 0.2743, 0.1165, None),
            ("seasonal naive (daily)", 321.4, 484.0, 0.8383, 0.356, "67.3%"),
            ("seasonal naive (weekly)", 242.8, 344.6, 0.6335, 0.269, "56.7%"),
        ),
        note="MAE and RMSE in MW; (z): in scaled units. The cut is of the model over the other.",
    )
    intervals = Figures(
        title="Intervals",
        columns=("", "nominal", "covered", "width", "CRPS"),
        rows=(
            ("tsformer", "90%", "89.1%", 431.2, 0.0171),
            ("", "50%", "48.7%", 167.9, None),
        ),
        note="How many truths lie within; width in MW.",
    )
    return [errors, intervals]


def _error_by() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(1)

    def table(groups: Sequence[object], shape: np.ndarray) -> pd.DataFrame:
        columns = {
            name: error * shape * rng.normal(1, 0.02, len(shape)) for name, error in _ERRORS.items()
        }
        return pd.DataFrame(columns, index=pd.Index(groups))

    hours = np.arange(24)
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    return {
        "horizon step": table(range(1, 49), 0.6 + 0.8 * np.sqrt(np.arange(1, 49) / 48)),
        "hour": table(range(24), 1 + 0.4 * np.sin((hours - 9) / 24 * 2 * np.pi)),
        "weekday": table(
            ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"],
            np.array([1.2, 1.0, 0.95, 0.95, 1.0, 1.1, 1.0]),
        ),
        "month": table(months, 1 + 0.3 * np.cos(np.arange(12) / 6 * np.pi)),
    }


def _calibration() -> pd.DataFrame:
    levels = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
    return pd.DataFrame({"tsformer": levels + 0.05 * np.sin(2 * np.pi * levels)}, index=levels)


def _series(names: Sequence[str]) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    columns = {name: error * rng.lognormal(0, 0.4, len(names)) for name, error in _ERRORS.items()}
    return pd.DataFrame(columns, index=pd.Index(names))


def _curves() -> pd.DataFrame:
    steps = np.arange(0, 2400, 10)
    rng = np.random.default_rng(3)
    loss = 0.12 + 0.5 * np.exp(-steps / 300) + rng.normal(0, 0.012, len(steps))
    rate = 1e-3 * np.where(steps < 100, steps / 100, 0.5 * (1 + np.cos(np.pi * steps / 2400)))
    trained = pd.DataFrame({"step": steps, "train/loss": loss, "lr-AdamW": rate})
    validated = np.arange(300, 2401, 300)
    error = 0.14 + 0.2 * np.exp(-validated / 400) + 0.02 * (validated / 2400) ** 4
    return pd.concat([trained, pd.DataFrame({"step": validated, "val/mae": error})])


_SETTINGS = """\
context_length: 336
horizon: 48
dataset:
  name: electricity
  freq: 30min
model:
  d_model: 64
  num_heads: 4
  patch_len: 24
"""

_HOW_TO_LOAD = """\
import pandas as pd
from tsformer import Forecaster

history = pd.read_parquet("electricity.parquet")
forecaster = Forecaster.load("runs/electricity/2026-01-01/model")
print(forecaster.predict(history, level=[50, 90]))
"""
