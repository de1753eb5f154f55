"""What a sweep varies, as Hydra's overrides say it: `a,b`, `range`, `interval`, `tag(log, ...)`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from tsformer.errors import ConfigError


@dataclass(frozen=True)
class Choice:
    """One of several values, as overrides give them."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as an override says it."""
        return f"choice({','.join(self.values)})"

    def draw(self, random: Random) -> str:
        """Return any of its values."""
        return random.choice(self.values)


@dataclass(frozen=True)
class Interval:
    """Numbers from low to high, both of which can come.

    Attributes:
        low: the least.
        high: the largest.
        step: between neighbours; None: any number.
        log: whether factors count, not differences.
        whole: whether only whole numbers come.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        """Return it nearly as an override says it; both ends count."""
        ends = f"{self.low!r},{self.high!r}"
        text = f"range({ends},{self.step!r})" if self.step else f"interval({ends})"
        return f"tag(log,{text})" if self.log else text

    def draw(self, random: Random) -> str:
        """Return one of its ends."""
        return repr(random.choice((self.low, self.high)))


Dimension = Choice | Interval
Values = dict[str, str]  # of the swept settings, as overrides give them


def split(overrides: Sequence[Override]) -> tuple[list[str], dict[str, Override]]:
    """Return the overrides that all jobs share, and those that are swept, by key.

    Of several of one key the last counts, as in a single run.

    Raises:
        ConfigError: settings of the search itself are swept.
    """
    by_key = {override.get_key_element(): override for override in overrides}
    swept = {key: override for key, override in by_key.items() if override.is_sweep_override()}
    for key in swept:
        if key.split(".")[0].split("/")[0] in ("sweep", "trial"):
            raise ConfigError(f"{swept[key].input_line}: a sweep cannot vary its own settings")
    fixed = [str(override.input_line) for key, override in by_key.items() if key not in swept]
    return fixed, swept


def grid_space(swept: Mapping[str, Override]) -> dict[str, Choice]:
    """Return the values of a grid.

    Raises:
        ConfigError: a setting has endless values, none, or one twice.
    """
    for override in swept.values():
        if override.is_interval_sweep():
            raise ConfigError(
                f"{override.input_line}: a grid needs values, such as choice(1,2); to search an "
                "interval add sweep=tpe"
            )
    return {key: _choice(override) for key, override in swept.items()}


def search_space(swept: Mapping[str, Override]) -> dict[str, Dimension]:
    """Return what a search may vary.

    Raises:
        ConfigError: a setting has no values, one twice, or a tag that is not known.
    """
    return {key: _dimension(override) for key, override in swept.items()}


def configured(
    space: Mapping[str, str], given: Sequence[str], parser: OverridesParser
) -> dict[str, Override]:
    """Return the sweeps of a config's space, less the settings that the command line gives.

    Args:
        space: setting -> such as `choice(1,2)`.
        given: keys of overrides of the command line.
        parser: of overrides.

    Raises:
        ConfigError: one is no sweep.
    """
    overrides = {}
    for key, text in space.items():
        try:
            override = parser.parse_override(f"{key}={text}")
        except HydraException as error:
            raise ConfigError(f"sweep.space: {key}: {text}: {error}") from error
        if not override.is_sweep_override():
            raise ConfigError(
                f"sweep.space: {key}: {text}: give choice(1,2), range(1,9) or interval(0.1,1)"
            )
        if key not in given:
            overrides[key] = override
    return overrides


def grid(space: Mapping[str, Choice]) -> Iterator[Values]:
    """Give all combinations; the last setting varies fastest."""
    for values in product(*(choice.values for choice in space.values())):
        yield dict(zip(space, values, strict=True))


def probes(space: Mapping[str, Dimension], number: int = 12) -> Iterator[Values]:
    """Give a few points of a space, the same ones each time, to try whether any can be fitted."""
    random = Random(0)
    for _ in range(number):
        yield {key: dimension.draw(random) for key, dimension in space.items()}


def _dimension(override: Override) -> Dimension:
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        assert sweep.start is not None
        assert sweep.end is not None
        whole = isinstance(sweep.start, int) and isinstance(sweep.end, int)
        low, high = sweep.start, sweep.end
        log = _is_log(override, sweep.tags)
        if not low < high:
            raise ConfigError(f"{_line(override)}: the interval must rise")
        if log and low <= 0:
            raise ConfigError(f"{_line(override)}: tag(log, ...) needs an interval above 0")
        return Interval(low, high, log=log, whole=whole)
    if isinstance(sweep, RangeSweep):
        if _is_log(override, sweep.tags):
            raise ConfigError(f"{_line(override)}: tag(log, ...) works only with interval(...)")
        numbers = sorted(sweep.range())
        if not numbers:
            raise ConfigError(f"{_line(override)}: the range is empty")
        whole = all(isinstance(number, int) for number in numbers)
        return Interval(numbers[0], numbers[-1], step=abs(sweep.step), whole=whole)
    if _is_log(override, getattr(sweep, "tags", set())):
        raise ConfigError(f"{_line(override)}: tag(log, ...) works only with interval(...)")
    return _choice(override)


def _choice(override: Override) -> Choice:
    values = tuple(override.sweep_string_iterator())
    if not values:
        raise ConfigError(f"{_line(override)}: there is no such value")
    if len(set(values)) < len(values):
        raise ConfigError(f"{_line(override)}: lists a value twice")
    return Choice(values)


def _is_log(override: Override, tags: set[str]) -> bool:
    if unknown := sorted(tags - {"log"}):
        raise ConfigError(f"{_line(override)}: unknown tag {unknown[0]!r}; only log is supported")
    return "log" in tags


def _line(override: Override) -> str:
    return str(override.input_line)
