"""The model card: what a folder's forecaster forecasts, how well, and how to use it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tsformer.model.config import ForecasterConfig

_FRONT_MATTER = """---
library_name: tsformer
pipeline_tag: time-series-forecasting
---"""
_MAX_NAMES = 8
_MAX_NAME = 60

_HEADS = {
    "point": "points",
    "quantile": "quantiles",
    "normal": "a normal distribution",
    "student_t": "a Student t distribution",
    "negative_binomial": "a negative binomial distribution of counts",
}


def model_card(
    config: ForecasterConfig,
    *,
    data: str | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> str:
    """Return a model card in Markdown, with the front matter of the Hugging Face Hub.

    Args:
        config: of the forecaster.
        data: name of what it was fitted to.
        metrics: what `metrics.json` of its fit holds.
    """
    title = f"# Forecasts of {_names(config.columns.target)}, {config.horizon} steps ahead"
    parts = [_FRONT_MATTER, title, _table(("", ""), _facts(config, data))]
    if metrics:
        parts += ["## Test", *_test(metrics)]
    parts += ["## Use", _usage(config), "A table of these columns goes in, in any order of rows:"]
    parts.append(_table(("column", "part", "values"), _columns(config)))
    columns = config.columns
    if (columns.id, columns.time, columns.target) != ("unique_id", "ds", ("y",)) and (
        columns.id is None or len(columns.target) == 1
    ):
        parts.append("Or a long table that calls series, time and target `unique_id, ds, y`.")
    return "\n\n".join(parts) + "\n"


def _facts(config: ForecasterConfig, data: str | None) -> Iterator[tuple[str, str]]:
    model = config.model
    if data:
        yield "fitted to", _code(data)
    yield "step (freq)", _code(config.freq)
    yield "context", f"{config.context_length} steps"
    yield "horizon", f"{config.horizon} steps"
    yield "forecasts", _HEADS[model.head] + (", with conformal intervals" * config.conformal)
    if model.quantiles and (model.head == "quantile" or config.conformal):
        yield "levels", ", ".join(f"{level:g}" for level in model.quantiles[:50])
    yield (
        "network",
        f"d_model {model.d_model}, patches of {model.patch_len} steps, {model.decoding}",
    )
    if model.channels == "joint":
        yield "channels", f"{config.num_channels}, forecast together"
    if config.holidays:
        yield "holidays", _code(config.holidays)
    versions = [f"{name} {version}" for name, version in list(config.versions.items())[:10]]
    if versions:
        yield "versions", _code(", ".join(versions), 200)


def _test(metrics: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{metrics['test_windows']:,} windows that were not trained on; MAE and RMSE in units of "
        "the table, (z) in scaled ones."
    )
    names = {
        "mae": "MAE",
        "rmse": "RMSE",
        "mase": "MASE",
        "scaled_mae": "MAE (z)",
        "scaled_mse": "MSE (z)",
    }
    rows = [
        (method, *(_number(figures.get(name)) for name in names))
        for method, figures in metrics["test"].items()
    ]
    yield _table(("", *names.values()), rows)
    for figures in metrics.get("test_quantiles", {}).values():
        coverage = [
            (f"{100 * float(nominal):g} %", "" if held is None else f"{100 * held:.1f} %")
            for nominal, held in figures["coverage"].items()
        ]
        yield _table(("interval", "held the truth"), coverage)
        yield f"Scaled CRPS {_number(figures['scaled_crps'])}."


def _usage(config: ForecasterConfig) -> str:
    tables = '"history.csv"' + ', "future.csv"' * bool(config.columns.future_covariates)
    is_probabilistic = config.conformal or config.model.head != "point"
    level = ", level=[80, 90]" * is_probabilistic
    return f"""```python
from tsformer import Forecaster

forecaster = Forecaster.load("model")  # this folder
forecast = forecaster.predict({tables}{level})
```"""


def _columns(config: ForecasterConfig) -> Iterator[tuple[str, str, str]]:
    columns = config.columns
    kinds = dict.fromkeys(columns.categorical, "names of categories")
    if columns.id:
        yield _code(columns.id), "series", "text"
    yield _code(columns.time), "time", f"every {_code(config.freq)}"
    yield _names(columns.target), "target", "numbers, or empty where missing"
    for part, names in (
        ("future covariate, over the horizon too", columns.future_covariates),
        ("past covariate", columns.past_covariates),
        ("static covariate", columns.static_covariates),
    ):
        for name in names:
            yield _code(name), part, kinds.get(name, "numbers")


def _table(head: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(map(_code, names[:_MAX_NAMES])) + more


def _code(text: str, longest: int = _MAX_NAME) -> str:
    """Return text that Markdown leaves as it is, in a table too."""
    plain = " ".join(text.split()).replace("`", "'").replace("|", "/")
    return f"`{plain[:longest]}`"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.4g}"
