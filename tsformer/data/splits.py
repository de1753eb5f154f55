"""Where train, validation and test rows end."""

from collections.abc import Sequence


def split_ends(split: Sequence[float], length: int) -> tuple[int, int, int]:
    """Return where train, validation and test rows end on a grid of `length` steps.

    Args:
        split: three fractions that sum to 1, or three numbers of steps; steps after them are
            unused.
        length: steps of the grid.
    """
    train, validation, test = split
    if sum(split) <= 1 + 1e-9:
        train_end = int(length * train)
        validation_end = length - int(length * test)
        return train_end, validation_end, length
    return int(train), int(train + validation), int(min(train + validation + test, length))
