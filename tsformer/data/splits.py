"""Where train, validation and test rows end."""

from collections.abc import Sequence


def split_ends(split: Sequence[float], length: int) -> tuple[int, int, int]:
    """Return where train, validation and test rows end on a grid of `length` steps.

    Args:
        split: three fractions, or three numbers of steps; what is left at the end is unused.
            Fractions that sum to 1 follow the published benchmarks: train and test are rounded
            down, and validation is what lies between.
        length: steps of the grid.
    """
    total = sum(split)
    if abs(total - 1) < 1e-9:
        return int(length * split[0]), length - int(length * split[2]), length
    if total < 1:
        split = [part * length for part in split]
    ends = [min(round(sum(split[:parts])), length) for parts in (1, 2, 3)]
    return ends[0], ends[1], ends[2]
