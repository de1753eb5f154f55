import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsformer.data.lengths import suggest_lengths

LONG = 1_000_000


def standard(num_steps: int) -> tuple[int, int, int]:
    return int(0.7 * num_steps), num_steps - int(0.2 * num_steps), num_steps


@pytest.mark.parametrize(
    ("freq", "context_length", "horizon", "patch_len"),
    [
        ("s", 480, 60, 30),
        ("min", 480, 60, 30),
        ("5min", 480, 60, 30),
        ("10min", 504, 144, 72),
        ("15min", 672, 96, 48),
        ("30min", 336, 48, 24),
        ("h", 336, 24, 24),
        ("2h", 168, 12, 12),
        ("6h", 56, 4, 4),
        ("D", 56, 14, 7),
        ("B", 40, 10, 5),
        ("W-SUN", 104, 13, 4),
        ("2W", 52, 6, 2),
        ("MS", 36, 12, 6),
        ("ME", 36, 12, 6),
        ("QS", 16, 4, 4),
        ("YS", 12, 3, 3),
        ("10YS", 12, 3, 3),
    ],
)
def test_lengths_of_long_tables(freq, context_length, horizon, patch_len):
    assert suggest_lengths(freq, standard(LONG)) == (context_length, horizon, patch_len)


@pytest.mark.parametrize(
    ("freq", "num_steps", "expected"),
    [
        ("h", 1000, (336, 24, 24)),  # 700 train rows
        ("h", 990, (312, 24, 24)),  # 693: half of what the horizon leaves is 334
        ("h", 100, (30, 10, 6)),  # 10 validation rows
        ("h", 30, (8, 3, 2)),
        ("D", 200, (56, 14, 7)),
        ("MS", 120, (36, 12, 6)),
        ("MS", 60, (18, 6, 3)),
        ("YS", 20, (6, 2, 1)),
        ("YS", 3, (1, 1, 1)),
    ],
)
def test_lengths_of_short_tables(freq, num_steps, expected):
    assert suggest_lengths(freq, standard(num_steps)) == expected


multiples = st.sampled_from(["s", "min", "h", "D", "B", "W", "MS", "QS", "YS"]).flatmap(
    lambda unit: st.integers(1, 50).map(lambda number: f"{number}{unit}")
)
ends = st.lists(st.integers(0, 3000), min_size=3, max_size=3).map(sorted).map(tuple)


@given(multiples, ends)
def test_lengths_are_positive_and_patches_divide_the_context(freq, ends):
    suggestion = suggest_lengths(freq, ends)
    assert min(suggestion) >= 1
    assert suggestion.context_length % suggestion.patch_len == 0
    assert suggestion.context_length <= 672


@given(multiples, ends)
def test_lengths_fit_into_the_parts_if_one_step_of_each_does(freq, ends):
    context_length, horizon, _ = suggest_lengths(freq, ends)
    train_end, validation_end, test_end = ends
    held_out = min(validation_end - train_end, test_end - validation_end)
    if train_end >= 2:
        assert context_length + horizon <= train_end
    if held_out >= 1:
        assert horizon <= held_out


@given(multiples, st.integers(1, 3000))
def test_a_short_table_shortens_lengths_and_never_the_other_way(freq, num_steps):
    short, long = (suggest_lengths(freq, standard(steps)) for steps in (num_steps, LONG))
    assert all(a <= b for a, b in zip(short, long, strict=True))
    assert long.patch_len % short.patch_len == 0


@given(multiples, st.integers(4, 3000))
def test_the_context_is_as_long_as_half_of_the_train_rows_allow(freq, num_steps):
    short, long = (suggest_lengths(freq, standard(steps)) for steps in (num_steps, LONG))
    room = standard(num_steps)[0] - short.horizon
    assert 2 * short.context_length <= max(room, 2)
    if short.context_length < long.context_length:
        assert 2 * (short.context_length + short.patch_len) > room
