"""Fixtures that any test may use: settings, and where data lie."""

import os
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tsformer.config import FitConfig, parse

REPO = Path(__file__).resolve().parents[1]

# The same examples in every run: a red test stays red until the code is mended.
hypothesis.settings.register_profile(
    "tsformer", max_examples=25, deadline=None, derandomize=True, database=None
)
hypothesis.settings.load_profile("tsformer")

SETTINGS: dict[str, Any] = {
    "seed": 0,
    "context_length": 8,
    "horizon": 4,
    "batch_size": 16,
    "eval_batch_size": 32,
    "loss": "l1",
    "dataset": {"name": "test", "path": "test.csv", "split": [0.7, 0.1, 0.2]},
    "model": {
        "d_model": 16,
        "num_heads": 2,
        "d_ff": 32,
        "num_layers": 1,
        "num_decoder_layers": 1,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "patch_len": 4,
        "decoding": "parallel",
        "channels": "independent",
        "instance_norm": True,
        "linear_skip": True,
    },
    "optimizer": {"name": "adamw", "lr": 0.001, "weight_decay": 0.01, "betas": [0.9, 0.999]},
    "scheduler": {"name": "constant", "warmup_fraction": 0.0, "min_lr_ratio": 1.0},
    "trainer": {
        "max_epochs": 1,
        "max_steps": -1,
        "accelerator": "cpu",
        "devices": 1,
        "precision": "32-true",
        "gradient_clip_val": None,
        "log_every_n_steps": 1,
        "progress_bar": False,
    },
    "callbacks": {"monitor": "val/mae", "early_stopping_patience": None},
    "logger": {"tensorboard": False, "csv": True},
    "paths": {"data": "datasets", "runs": "runs", "run": "runs/test"},
}


def make_settings(overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the settings of a tiny fit as a plain dict, changed at dotted keys."""
    settings = deepcopy(SETTINGS)
    for key, value in (overrides or {}).items():
        *groups, name = key.split(".")
        place = settings
        for group in groups:
            place = place[group]
        place[name] = value
    return settings


@pytest.fixture
def fit_settings() -> Callable[..., dict[str, Any]]:
    """Give `make_settings`."""
    return make_settings


@pytest.fixture
def fit_config() -> Callable[..., FitConfig]:
    """Give a function from overrides at dotted keys to a `FitConfig`."""
    return lambda overrides=None: parse(FitConfig, make_settings(overrides))


@pytest.fixture(scope="session")
def repo() -> Path:
    """Give the root of the source tree."""
    return REPO


@pytest.fixture(scope="session")
def compose() -> Callable[..., dict[str, Any]]:
    """Give a function from Hydra overrides to the plain settings that `conf/` yields."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from omegaconf import OmegaConf

    def plain(*overrides: str) -> dict[str, Any]:
        with initialize_config_dir(str(REPO / "conf"), version_base="1.3"):
            config = hydra_compose("fit", [*overrides, "paths.run=run", "paths.data=datasets"])
        return OmegaConf.to_container(config, resolve=True, throw_on_missing=True)

    return plain


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Give the folder of the public benchmark files, which are not part of the source tree."""
    given = os.environ.get("TSFORMER_DATA")
    for folder in ([Path(given)] if given else []) + [REPO.parent / "shared" / "data"]:
        if (folder / "ETT-small").is_dir():
            return folder
    pytest.skip("no benchmark data; set TSFORMER_DATA to their folder")
