import re
from pathlib import Path
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.conftest import REPO, make_settings
from tsformer.batch.config import BatchConfig
from tsformer.config import DatasetConfig, FitConfig, Lengths, ModelConfig, WandbConfig, parse_fit
from tsformer.errors import ConfigError
from tsformer.evaluation.config import EvaluateConfig
from tsformer.settings import parse


def problems(overrides: dict) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(FitConfig, make_settings(overrides))
    return str(error.value).splitlines()


def options(group: str) -> list[str]:
    names = sorted(path.stem for path in (REPO / "conf" / group).glob("*.yaml"))
    assert names
    return [name for name in names if (group, name) != ("dataset", "base")]  # base is not whole


# What conf/ yields


@pytest.mark.parametrize("dataset", options("dataset"))
def test_every_dataset_composes_to_valid_settings(compose, dataset):
    config = parse_fit(compose(f"dataset={dataset}"), Lengths(60, 5, 12))
    suggested = {name: length for name, length in config.dataset.suggested.items() if length}
    assert config.dataset.name == dataset
    assert config.horizon == suggested.get("horizon", 5)
    assert config.context_length == suggested.get("context_length", 60)
    assert config.model.patch_len == suggested.get("patch_len", 12)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (60, 5, 12)),
        ({"horizon": 7}, (60, 7, 12)),
        ({"context_length": 50}, (50, 5, 10)),
        ({"context_length": 7}, (7, 5, 7)),
        ({"model.patch_len": 7}, (56, 5, 7)),
        ({"model.patch_len": 100}, (100, 5, 100)),
        ({"context_length": 40, "model.patch_len": 8}, (40, 5, 8)),
    ],
)
def test_lengths_that_are_not_given_suit_those_that_are(given, expected):
    open_lengths = {"context_length": None, "horizon": None, "model.patch_len": None}
    config = parse_fit(make_settings({**open_lengths, **given}), Lengths(60, 5, 12))
    assert (config.context_length, config.horizon, config.model.patch_len) == expected


@pytest.mark.parametrize("split", [["2024-01-01", "2024-02-01"], ["2024", "2025", "2026"]])
def test_times_are_splits(fit_config, split):
    assert fit_config({"dataset.split": split}).dataset.split == split


def test_holidays_need_the_calendar(fit_config):
    with pytest.raises(ConfigError, match="holidays are a part of the calendar"):
        fit_config({"dataset.holidays": "AU", "dataset.calendar": False})


@pytest.mark.parametrize(
    ("group", "name"),
    [
        (group, name)
        for group in (
            "scaling",
            "sampling",
            "model",
            "optimizer",
            "scheduler",
            "trainer",
            "callbacks",
            "logger",
        )
        for name in options(group)
    ],
)
def test_every_other_option_composes_to_valid_settings(compose, group, name):
    parse(FitConfig, compose(f"{group}={name}"))


@pytest.mark.parametrize("experiment", options("experiment/accuracy"))
def test_every_experiment_composes_to_valid_settings(compose, experiment):
    parse(FitConfig, compose(f"experiment=accuracy/{experiment}"))


def test_every_card_that_a_dataset_names_is_there():
    for path in (REPO / "conf" / "dataset").glob("*.yaml"):
        for word in path.read_text(encoding="utf-8").replace(")", " ").split():
            if word.endswith("README.md"):
                assert (REPO / Path(word)).is_file(), path


# What is accepted


def test_settings_come_back_as_they_were():
    settings = make_settings()
    assert parse(FitConfig, settings).model_dump(mode="json") == settings


def test_settings_are_frozen(fit_config):
    with pytest.raises(ValueError, match="frozen"):
        fit_config().seed = 3


@pytest.mark.parametrize("key", ["target", "past_covariates", "future_covariates"])
def test_one_column_may_be_named_without_a_list(fit_config, key):
    assert getattr(fit_config({f"dataset.{key}": "load"}).dataset, key) == ["load"]


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        (ModelConfig, "quantiles", 0.5),
        (WandbConfig, "tags", "first"),
        (EvaluateConfig, "baselines", "seasonal_naive"),
        (EvaluateConfig, "quantiles", 0.9),
        (BatchConfig, "level", 90),
        (BatchConfig, "quantiles", 0.5),
    ],
)
def test_one_value_may_stand_without_a_list(kind, key, value):
    adapter = TypeAdapter(get_type_hints(kind, include_extras=True)[key])
    assert adapter.validate_python(value) == adapter.validate_python([value]) == [value]


@pytest.mark.parametrize(
    "split", [[0.7, 0.1, 0.2], [0.6, 0.3, 0.1], [0.5, 0.1, 0.1], [8640, 2880, 2880], [1, 1, 1]]
)
def test_fractions_and_lengths_are_splits(fit_config, split):
    assert fit_config({"dataset.split": split}).dataset.split == split


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Melbourne", None])
def test_time_zones(fit_config, zone):
    assert fit_config({"dataset.time_zone": zone}).dataset.time_zone == zone


# What is refused


def test_all_problems_are_told_at_once_with_their_keys():
    settings = make_settings(
        {
            "horizon": 0,
            "learning_rate": 1.0,
            "dataset.split": [0.7, 0.4, 0.2],
            "dataset.colour": "red",
            "model.d_model": 16.5,
            "model.decoding": "magic",
            "optimizer.lr": -1,
            "trainer.max_epochs": 0,
        }
    )
    del settings["seed"]
    del settings["model"]["dropout"]
    with pytest.raises(ConfigError) as error:
        parse(FitConfig, settings)
    lines = str(error.value).splitlines()
    for key in (
        "seed: a value is needed",
        "horizon=0: ",
        "learning_rate: there is no such setting",
        "dataset.colour: there is no such setting",
        "model.d_model=16.5: ",
        "model.decoding='magic': ",
        "model.dropout: a value is needed",
        "optimizer.lr=-1: ",
        "trainer: nothing ends the training",
    ):
        assert sum(line.startswith(key) for line in lines) == 1, key


def test_choices_are_listed():
    (line,) = problems({"loss": "l3"})
    assert line.startswith("loss='l3': ")
    for choice in ("l1", "huber", "mse"):
        assert f"'{choice}'" in line


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", -1),
        ("seed", 2**32),
        ("context_length", 0),
        ("batch_size", "many"),
        ("batch_size", 1.5),
        ("loss", None),
        ("dataset.path", 3),
        ("dataset.freq", 30),
        ("dataset.regular", "perhaps"),
        ("dataset.target", 5),
        ("dataset.split", [0.7, 0.3]),
        ("dataset.suggested", {"horizon": "long"}),
        ("model.num_layers", 0),
        ("model.dropout", 1.0),
        ("model.dropout", -0.1),
        ("model.channels", "mixed"),
        ("optimizer.lr", 0),
        ("optimizer.lr", float("nan")),
        ("optimizer.betas", [0.9]),
        ("scheduler.min_lr_ratio", 1.1),
        ("trainer.precision", "8"),
        ("callbacks.monitor", "train/loss"),
        ("callbacks.early_stopping_patience", 0),
    ],
)
def test_wrong_values_are_named_with_their_key(key, value):
    lines = problems({key: value})
    assert lines
    assert all(line.startswith(key) for line in lines)


@pytest.mark.parametrize(
    ("key", "meant"),
    {
        "model.d_modl": "model.d_model",
        "lr": "optimizer.lr",
        "batchsize": "batch_size",
        "trainer.warmup_fraction": "scheduler.warmup_fraction",
        "name": "dataset.name or optimizer.name or scheduler.name",
    }.items(),
)
def test_a_misspelt_key_is_told_with_the_right_one(key, meant):
    assert problems({key: 1}) == [f"{key}: there is no such setting. Is it {meant}?"]


@pytest.mark.parametrize("group", ["dataset", "model", "trainer", "paths"])
def test_unknown_keys_are_refused(group):
    assert problems({f"{group}.colour": 1}) == [f"{group}.colour: there is no such setting"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.head": "poisson"}, "model.head='poisson': .*'negative_binomial'"),
        ({"model.quantiles": [0.1, 0.1, 0.5]}, r"quantiles=\[0.1, 0.1, 0.5\] must rise"),
        ({"model.quantiles": [0.9, 0.1]}, "must rise by 0.0001"),
        ({"model.quantiles": [0.1, 1.0]}, r"model\.quantiles\.1=1\.0: "),
        ({"model.quantiles": [0.0, 0.5]}, r"model\.quantiles\.0=0\.0: "),
        ({"model.head": "quantile", "model.quantiles": [0.5]}, r"quantiles beside 0\.5"),
        ({"model.head": "normal", "model.quantiles": []}, "head=normal needs model.quantiles"),
        ({"conformal": True, "model.quantiles": [0.5]}, "conformal=true .* give at least two"),
        ({"callbacks.monitor": "val/crps"}, "callbacks.monitor='val/crps'"),
    ],
)
def test_distributions_that_make_no_sense_are_refused(overrides, message):
    (line,) = problems(overrides)
    assert re.search(message, line)


@pytest.mark.parametrize(
    "scaling", [{"scaling.per": "series"}, {"scaling.per": "none", "scaling.transform": "log1p"}]
)
def test_counts_are_not_scaled(fit_config, scaling):
    counts = {"model.head": "negative_binomial", "scaling.per": "none"}
    assert fit_config(counts).model.head == "negative_binomial"
    (line,) = problems({**counts, **scaling})
    assert "set scaling.per=none and scaling.transform=none" in line


def test_counts_are_not_calibrated():
    counts = {"model.head": "negative_binomial", "scaling.per": "none", "conformal": True}
    (line,) = problems(counts)
    assert "set model.head=quantile, or conformal=false" in line


def test_heads_have_to_divide_the_width():
    (line,) = problems({"model.d_model": 64, "model.num_heads": 5})
    assert line.startswith("model: ")
    assert "d_model=64" in line
    assert "num_heads=5" in line


@given(st.integers(1, 1000), st.integers(1, 100))
def test_context_has_to_be_whole_patches_and_the_nearest_is_suggested(length, patch_len):
    overrides = {"context_length": length, "model.patch_len": patch_len}
    if length % patch_len == 0:
        assert parse(FitConfig, make_settings(overrides)).context_length == length
        return
    (line,) = problems(overrides)
    assert f"context_length={length}" in line
    assert f"model.patch_len={patch_len}" in line
    suggestion = int(line.rsplit(": ", 1)[1])
    multiples = range(patch_len, length + patch_len + 1, patch_len)
    assert suggestion in multiples
    assert abs(suggestion - length) == min(abs(m - length) for m in multiples)


@pytest.mark.parametrize(
    "split",
    [
        [0.7, 0.2, 0.2],
        [-0.1, 0.5, 0.5],
        [0, 0, 0],
        [1, 1, 0.5],
        [100, -10, 20],
        [float("nan"), 0.1, 0.2],
        [float("inf"), 10, 20],
    ],
)
def test_other_splits_are_refused(split):
    (line,) = problems({"dataset.split": split})
    assert line.startswith("dataset")
    assert "split=" in line


@pytest.mark.parametrize("zone", ["Mars/Olympus", "Melbourne", "", "Europe", "../UTC", "a\0b"])
def test_unknown_time_zones_are_refused_with_examples(zone):
    (line,) = problems({"dataset.time_zone": zone})
    assert line.startswith("dataset.time_zone: ")
    assert repr(zone) in line
    assert "Europe/Berlin" in line


def test_training_without_an_end_is_refused():
    (line,) = problems({"trainer.max_epochs": -1, "trainer.max_steps": -1})
    assert "max_epochs" in line
    assert "max_steps" in line


def test_part_of_the_settings_is_checked_alone():
    with pytest.raises(ConfigError, match=r"^split: a value is needed$"):
        parse(DatasetConfig, {"name": "x", "path": "x.csv"})


@pytest.mark.parametrize("wrong", ["big", 3, True, float("nan"), ["d_model"], [1, 2], b"x"])
def test_a_group_that_is_none_is_named(wrong: object) -> None:
    with pytest.raises(ConfigError, match="model"):
        parse_fit({**make_settings(), "model": wrong})
