"""A tiny model folder, tables to forecast, and the settings of a batch forecast."""

from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from tests.conftest import REPO
from tests.forecasters import H, make_forecaster, make_long
from tsformer.batch.run import Summary, forecast_files
from tsformer.data.columns import Columns

__all__ = ["H", "make_long"]


@cache
def _defaults() -> dict[str, Any]:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(REPO / "conf" / "fitted"), version_base="1.3"):
        config = compose("forecast", ["model=m", "input=i", "output=o"])
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def batch_settings(**changed: Any) -> dict[str, Any]:
    unknown = set(changed) - set(_defaults())
    assert not unknown, unknown
    return {**_defaults(), **{k: str(v) if isinstance(v, Path) else v for k, v in changed.items()}}


def write_model(folder: Path, **options: Any) -> Path:
    make_forecaster(**options).save(folder)
    return folder


def with_covariate() -> Columns:
    return Columns("unique_id", "ds", ("y",), future_covariates=("price",))


def run(model: Path, table: Path, output: Path, **changed: Any) -> Summary:
    summary = forecast_files(batch_settings(model=model, input=table, output=output, **changed))
    assert summary is not None
    return summary


def read_parts(output: Path) -> list[pd.DataFrame]:
    return [pd.read_parquet(file) for file in sorted(output.glob("forecasts/part-*.parquet"))]


def forecasts(output: Path) -> pd.DataFrame:
    return pd.read_parquet(output / "forecasts")


def contents(output: Path) -> dict[str, bytes]:
    """Return what a folder holds, but for the manifest, in which files have times."""
    files = {
        str(file.relative_to(output)): file.read_bytes()
        for file in output.rglob("*")
        if file.is_file()
    }
    assert files.pop("manifest.json")
    return files
