"""Tables of any kind: forecasts, or an error that speaks to the user, and nothing else."""

import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forecasters import make_forecaster
from tsformer.errors import TsformerError

_FORECASTER = make_forecaster(ids=("other",))
_IDS: list[Any] = ["a", "b", "", " ", "ä", "\U0001f600", "1", "1.0", 1, 1.0, True, None, np.nan]
_IDS += ["nan", "007", 7, b"x", (1, 2), [1], "<script>", 2**70, "\ud800", Decimal(1), pd.NaT]
_VALUES = {
    "plain": lambda x: x,
    "whole": lambda x: (10 * x).astype(int),
    "single": lambda x: x.astype("float32"),
    "flags": lambda x: x > 5,
    "gaps": lambda x: x.astype("Float64").where(x.index % 4 != 1),
    "texts": lambda x: x.astype(str),
    "decimals": lambda x: x.map(lambda value: Decimal(f"{value:.3f}")),
    "categories": lambda x: x.round().astype("category"),
    "arrow": lambda x: x.astype("float64[pyarrow]"),
    "mixed": lambda x: x.astype(object).where(x.index % 3 != 0, x.astype(str)),
    "missing": lambda x: x * np.nan,
    "infinite": lambda x: x.where(x.index != 2, np.inf),
    "huge": lambda x: x * 1e308,
    "denormal": lambda x: x * 1e-310,
    "constant": lambda x: x * 0 + 3,
    "digits": lambda x: pd.Series([10**400] * len(x), dtype=object),
    "complex": lambda x: x + 1j,
    "lists": lambda x: x.map(lambda value: [value]),
    "times": lambda x: pd.Series(pd.date_range("2024", periods=len(x))),
    "words": lambda x: x.map(lambda _: "word"),
}
_TIMES = {
    "us": lambda t: pd.Series(t.as_unit("us")),
    "s": lambda t: pd.Series(t.as_unit("s")),
    "texts": lambda t: pd.Series(t.astype(str)),
    "zone": lambda t: pd.Series(t.tz_localize("UTC").tz_convert("Europe/Berlin")),
    "offsets": lambda t: pd.Series(map(str, t.tz_localize("UTC").tz_convert("Europe/Berlin"))),
    "dates": lambda t: pd.Series(list(t.date), dtype=object),
    "periods": lambda t: pd.Series(t.to_period("h")),
    "numbers": lambda t: pd.Series(range(len(t))),
    "mixed": lambda t: pd.Series([str(x) if n % 2 else x for n, x in enumerate(t)], dtype=object),
    "absent": lambda t: pd.Series(t.where(np.arange(len(t)) % 5 != 2)),
    "twice": lambda t: pd.Series(t[np.arange(len(t)) // 2]),
    "off the grid": lambda t: pd.Series(t + pd.to_timedelta(7 * (t == t[-1]), unit="min")),
    "long ago": lambda t: pd.Series(t.as_unit("us") - np.timedelta64(365 * 500, "D")),
    "year 9999": lambda t: pd.Series(t.as_unit("s") + np.timedelta64(365 * 7970, "D")),
    "clock": lambda t: pd.Series(t.strftime("%H:%M")),
    "ambiguous": lambda t: pd.Series(t.strftime("%d/%m/%Y %H:%M")),
    "lengths": lambda t: pd.Series(t - t[0]),
}


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """Return hourly series with at most a few oddities."""
    few = st.lists(st.sampled_from(_IDS), min_size=1, max_size=3)
    ids = draw(st.just(["a", "b"]) | few)
    rows = draw(st.sampled_from([1, 2, 8, 30]))
    times = draw(st.just("us") | st.sampled_from(list(_TIMES)))
    kind = draw(st.just("plain") | st.sampled_from(list(_VALUES)))
    walk = pd.Series(np.random.default_rng(rows).normal(size=rows).cumsum() + 5)
    stamps = _TIMES[times](pd.date_range("2024-03-30", periods=rows, freq="h"))
    one = pd.DataFrame({"ds": stamps, "y": _VALUES[kind](walk)})
    frame = pd.concat([one] * len(ids), ignore_index=True)
    frame["unique_id"] = pd.Series([id for id in ids for _ in range(rows)], dtype=object)
    return frame.sample(frac=1, random_state=draw(st.integers(0, 3)))


def outcome(table: Any) -> pd.DataFrame | None:
    """Return forecasts in the order of series and time; None where the table is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            forecast = _FORECASTER.predict(table)
        except TsformerError as error:
            str(error).encode()  # which a terminal can show
            return None
    assert np.isfinite(forecast["tsformer"]).all()
    forecast["unique_id"] = forecast["unique_id"].map(str)
    return forecast.sort_values(["unique_id", "ds"], ignore_index=True)


@settings(max_examples=60)
@given(tables())
def test_any_table_is_forecast_or_refused_whatever_the_order_of_its_rows(
    frame: pd.DataFrame,
) -> None:
    before = frame.copy(deep=True)
    found, again = outcome(frame), outcome(frame.sort_index())
    pd.testing.assert_frame_equal(frame, before)
    assert (found is None) == (again is None)
    if found is not None:
        pd.testing.assert_frame_equal(found, again, check_dtype=False, rtol=1e-4)


@pytest.mark.parametrize("kind", ["plain", "whole", "single", "gaps", "constant"])
def test_a_table_is_forecast_alike_in_every_form(kind: str, tmp_path: Path) -> None:
    times = pd.date_range("2024-03-30", periods=30, freq="h")
    values = _VALUES[kind](pd.Series(np.random.default_rng(1).normal(size=30).cumsum() + 5))
    parts = [pd.DataFrame({"unique_id": id, "ds": times, "y": values}) for id in ("b", "a", "ä")]
    frame = pd.concat(parts, ignore_index=True)
    frame.to_csv(tmp_path / "table.csv", index=False)
    frame.to_parquet(tmp_path / "table.parquet")
    expected = outcome(frame)
    assert expected is not None
    for form in (
        *(tmp_path / "table.csv", tmp_path / "table.parquet"),
        *(pa.Table.from_pandas(frame), polars.from_pandas(frame), polars.from_pandas(frame).lazy()),
        frame.astype({"unique_id": "category"}),
        frame.convert_dtypes(dtype_backend="pyarrow"),
    ):
        pd.testing.assert_frame_equal(outcome(form), expected, check_dtype=False, rtol=1e-5)
