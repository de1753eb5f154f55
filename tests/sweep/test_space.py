"""Overrides as spaces: Hydra's own sweeper is the oracle of grids."""

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from tsformer.errors import ConfigError
from tsformer.sweep.config import PrunerConfig, SweepConfig
from tsformer.sweep.plan import lines
from tsformer.sweep.space import (
    Choice,
    Interval,
    configured,
    grid,
    grid_space,
    probes,
    search_space,
    split,
)
from tsformer.sweep.study import ask, open_study

PARSER = OverridesParser.create()

DIMENSIONS = {
    "d=32,64": Choice(("32", "64")),
    "d=a,'b c',null,[1,2]": Choice(("a", "'b c'", "null", "[1,2]")),
    "d=range(1,4)": Interval(1, 3, step=1, whole=True),
    "d=range(10,0,-5)": Interval(5, 10, step=5, whole=True),
    "d=range(0,0.3,0.1)": Interval(0.0, 0.2, step=0.1),
    "d=interval(0,0.5)": Interval(0.0, 0.5),
    "d=tag(log,interval(1e-4,1e-2))": Interval(1e-4, 1e-2, log=True),
    "d=int(interval(1,8))": Interval(1, 8, whole=True),
    "d=tag(log,int(interval(1,8)))": Interval(1, 8, log=True, whole=True),
}
MISTAKES = {
    "d=interval(2,1)": "must rise",
    "d=tag(log,interval(0,1))": "above 0",
    "d=tag(lin,interval(0,1))": "unknown tag 'lin'",
    "d=tag(log,choice(1,2))": r"tag\(log, ...\) works only with interval",
    "d=tag(log,range(1,9))": r"tag\(log, ...\) works only with interval",
    "d=range(3,3)": "empty",
    "d=1,2,1": "twice",
}


def parsed(*overrides: str):
    return PARSER.parse_overrides(list(overrides))


names = st.sampled_from(["a", "b.c", "model.d_model", "+new", "dataset@group"])
values = st.sampled_from(["1", "2,3", "x,y,z", "choice(7,8)", "range(0,3)", "null", "'a,b',c"])


@given(st.lists(st.builds("{}={}".format, names, values), max_size=5))
def test_a_grid_has_the_jobs_of_hydras_sweeper_in_its_order(overrides: list[str]) -> None:
    (expected,) = BasicSweeper.split_arguments(parsed(*overrides), None)
    fixed, swept = split(parsed(*overrides))
    jobs = [lines(fixed, values) for values in grid(grid_space(swept))]
    assert [sorted(job) for job in jobs] == [sorted(job) for job in expected]


@pytest.mark.parametrize(("text", "dimension"), DIMENSIONS.items())
def test_what_a_search_may_vary(text: str, dimension: Choice | Interval) -> None:
    assert search_space(split(parsed(text))[1]) == {"d": dimension}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_a_space_that_cannot_be_searched_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search_space(split(parsed(text))[1])


def test_an_interval_is_no_grid() -> None:
    with pytest.raises(ConfigError, match="add sweep=tpe"):
        grid_space(split(parsed("d=interval(0,1)"))[1])


@pytest.mark.parametrize("text", ["sweep.n_trials=1,2", "sweep=tpe,random", "trial=a,b"])
def test_a_search_does_not_vary_its_own_settings(text: str) -> None:
    with pytest.raises(ConfigError, match="its own settings"):
        split(parsed(text))


def test_the_command_line_goes_before_a_configured_space() -> None:
    space = {"optimizer.lr": "tag(log,interval(1e-4,1e-2))", "batch_size": "32,64"}
    assert set(configured(space, ["batch_size"], PARSER)) == {"optimizer.lr"}
    for text in ("0.1", "[1,2]"):
        with pytest.raises(ConfigError, match=r"sweep.space: d: .*: give choice"):
            configured({"d": text}, [], PARSER)
    with pytest.raises(ConfigError, match=r"sweep\.space: d: "):
        configured({"d": "interval(1"}, [], PARSER)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_trials_are_drawn_from_the_space_and_hydra_reads_them(sampler: str, tmp_path) -> None:
    space = {
        key: search_space(split(parsed(text))[1])["d"]
        for key, text in zip("abcdefghi", DIMENSIONS, strict=True)
    }
    config = SweepConfig(
        sampler=sampler,
        n_startup_trials=2,
        seed=0,
        n_trials=9,
        timeout=None,
        storage=None,
        pruner=PrunerConfig(name="none", n_startup_trials=0, n_warmup_steps=0),
    )
    study = open_study(str(tmp_path / "study.journal"), "sweep", config)
    drawn = [ask(study, space, config)[1] for _ in range(8)]
    for values in [*drawn, *probes(space)]:
        for key, text in values.items():
            dimension, value = space[key], PARSER.parse_override(f"{key}={text}").value()
            if isinstance(dimension, Choice):
                assert text in dimension.values
            else:
                assert isinstance(value, int) or not dimension.whole
                assert dimension.low - 1e-9 <= value <= dimension.high + 1e-9
    assert len({tuple(values.values()) for values in drawn}) == len(drawn)
