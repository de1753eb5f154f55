"""Command lines of sweeps, and the spaces among the configs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from tsformer.errors import ConfigError
from tsformer.sweep.plan import Compose, make_plan
from tsformer.sweep.space import Choice, Interval

PARSER = OverridesParser.create()
SPACES = [path.stem for path in (Path(__file__).parents[2] / "conf/sweep/space").glob("*.yaml")]


@pytest.fixture(scope="module")
def composed(compose: Callable[..., dict[str, Any]]) -> Compose:
    """Give a function from overrides to the settings of a job."""
    return lambda overrides: compose(*overrides)


@pytest.mark.parametrize("space", SPACES)
def test_each_space_among_the_configs_can_be_fitted(space: str, composed: Compose) -> None:
    tried: list[list[str]] = []

    def compose(overrides: Any) -> dict[str, Any]:
        tried.append(list(overrides))
        return composed(overrides)

    plan = make_plan(["sweep=tpe", f"sweep/space={space}"], PARSER, compose)
    assert len(plan.space) > 2
    assert len(tried) == 2  # to find the space, and its first point, which is no mistake
    assert plan.search is not None
    assert plan.search.sampler == "tpe"
    assert plan.monitor == "val/mae"


def test_the_command_line_joins_and_fixes(composed: Compose) -> None:
    given = ["sweep=random", "sweep/space=training", "seed=1", "batch_size=8"]
    plan = make_plan([*given, "optimizer.lr=interval(1,2)", "model.d_ff=8,16"], PARSER, composed)
    assert plan.fixed == given
    assert "batch_size" not in plan.space
    assert plan.space["optimizer.lr"] == Interval(1.0, 2.0)
    assert plan.space["model.d_ff"] == Choice(("8", "16"))
    assert "model.dropout" in plan.space


def test_a_grid_without_a_sweep_is_one_job(composed: Compose) -> None:
    plan = make_plan(["seed=1"], PARSER, composed)
    assert (plan.space, plan.search) == ({}, None)


def test_one_value_that_fits_is_enough(composed: Compose) -> None:
    plan = make_plan(["model.num_heads=3,5,7,8"], PARSER, composed)
    assert plan.settings["model"]["num_heads"] == 8
    with pytest.raises(ConfigError, match="not divisible by num_heads"):
        make_plan(["model.num_heads=3,5,7"], PARSER, composed)
