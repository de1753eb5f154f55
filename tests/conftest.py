"""Fixtures that any test may use: settings, and where data lie."""

import os
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tsformer.config import FitConfig
from tsformer.settings import parse

REPO = Path(__file__).resolve().parents[1]

# The same examples in every run: a red test stays red until the code is mended.
hypothesis.settings.register_profile(
    "tsformer", max_examples=25, deadline=None, derandomize=True, database=None
)
hypothesis.settings.load_profile("tsformer")

TINY = {
    "context_length": 8,
    "horizon": 4,
    "batch_size": 16,
    "eval_batch_size": 32,
    "dataset.path": "test.csv",
    "model.d_model": 16,
    "model.num_heads": 2,
    "model.d_ff": 32,
    "model.num_layers": 1,
    "model.dropout": 0.0,
    "model.patch_len": 4,
    "trainer.max_epochs": 1,
    "trainer.progress_bar": False,
    "logger.tensorboard": False,
    "report": False,
}


def compose_settings(*overrides: str) -> dict[str, Any]:
    """Return the plain settings that `conf/fit.yaml` yields with Hydra overrides."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(REPO / "conf"), version_base="1.3"):
        config = compose("fit", [*overrides, "paths.run=run", "paths.data=datasets"])
    return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with slow tests first, so that no core waits for the last one of them."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@cache
def _custom_settings() -> dict[str, Any]:
    return compose_settings("dataset=custom")


def make_settings(overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings of a tiny fit of a table of one's own, changed at dotted keys."""
    settings = deepcopy(_custom_settings())
    for key, value in {**TINY, **(overrides or {})}.items():
        *groups, name = key.split(".")
        place = settings
        for group in groups:
            place = place[group]
        place[name] = value
    return settings


@pytest.fixture
def fit_config() -> Callable[..., FitConfig]:
    """Give a function from overrides at dotted keys to the `FitConfig` of a tiny fit."""
    return lambda overrides=None: parse(FitConfig, make_settings(overrides))


@pytest.fixture(scope="session")
def compose() -> Callable[..., dict[str, Any]]:
    """Give `compose_settings`."""
    return compose_settings


@pytest.fixture(scope="session")
def repo() -> Path:
    """Give the root of the source tree."""
    return REPO


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Give the folder of the public benchmark files, which are not part of the source tree."""
    given = os.environ.get("TSFORMER_DATA")
    for folder in ([Path(given)] if given else []) + [REPO.parent / "shared" / "data"]:
        if (folder / "ETT-small").is_dir():
            return folder
    pytest.skip("no benchmark data; set TSFORMER_DATA to their folder")
