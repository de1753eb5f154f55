"""Context length, horizon and patch length that suit a step."""

import pandas as pd

from tsformer.config import Lengths
from tsformer.data.calendar import DAY, YEAR, step_of

_WEEK = 7 * DAY

# Steps from the shortest on, the season they are told in (None: the step itself), and horizon,
# context and patch in seasons. They follow what planning asks for: the next day, fortnight,
# quarter or year, seen from enough seasons to average out the chance of one. Below ten minutes a
# day has too many steps for that, and lengths are fixed.
_RULES = (
    (pd.Timedelta(0), None, 60, 480, 30),  # minutes: an hour; eight hours; half an hour
    (pd.Timedelta(minutes=10), DAY, 1, 3.5, 1 / 2),
    (pd.Timedelta(minutes=15), DAY, 1, 7, 1 / 2),
    (pd.Timedelta(hours=1), DAY, 1, 14, 1),
    (DAY, _WEEK, 2, 8, 1),
    (_WEEK / 2, YEAR, 1 / 4, 2, 1 / 13),  # weeks: 13; 104; 4
    (28 * DAY, YEAR, 1, 3, 1 / 2),  # months: 12; 36; 6
    (80 * DAY, YEAR, 1, 4, 1),  # quarters: 4; 16; 4
    (300 * DAY, None, 3, 12, 3),  # years
)


def suggest_lengths(freq: str, ends: tuple[int, int, int]) -> Lengths:
    """Return lengths for tables of a step: hourly 336, 24 and 24; monthly 36, 12 and 6.

    Short tables get shorter ones: the horizon fits into each part of the split, and the context
    into half of the train rows that are left, so that training has windows to choose from. No
    length is below 1, also where a part has no room for it.

    Args:
        freq: step, a pandas offset alias.
        ends: where train, validation and test end on the grid; see `split_ends`.
    """
    step = step_of(freq)
    _, season, *seasons = next(rule for rule in reversed(_RULES) if rule[0] <= step)
    steps = max(round(season / step), 1) if season else 1
    horizon, context, patch_len = (max(round(number * steps), 1) for number in seasons)

    train_end, validation_end, test_end = ends
    held_out = min(validation_end - train_end, test_end - validation_end)
    horizon = max(min(horizon, held_out, train_end // 2), 1)
    context = max(min(context, (train_end - horizon) // 2), 1)
    # The longest part of a patch that leaves four of them: parts of a day still align with days.
    parts = [part for part in range(1, patch_len + 1) if patch_len % part == 0]
    patch_len = max(part for part in parts if part <= max(context // 4, 1))
    return Lengths(context // patch_len * patch_len, horizon, patch_len)
