"""Where parity fixtures lie, and how they are read."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.reference.transformer import FloatArray, Mask, Weights, within

_HERE = Path(__file__).resolve().parent
OWN_FILES = [_HERE / "parity_small.npz", _HERE / "parity_masked.npz"]
# Outputs of the original TFModel itself; they lie next to the repository, where there are any.
ORIGINAL_FILES = sorted((_HERE.parents[2] / "shared" / "seeds").glob("tfmodel_parity_*.npz"))

_ABSENT = pytest.param(None, id="original", marks=pytest.mark.skip("no ../shared/seeds here"))
parametrize_files = pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem) for path in OWN_FILES + ORIGINAL_FILES]
    + ([] if ORIGINAL_FILES else [_ABSENT]),
)


class Parity(NamedTuple):
    config: list[int]
    encoder_input: FloatArray
    decoder_input: FloatArray
    source_mask: Mask | None
    target_mask: Mask
    output: FloatArray
    weights: Weights


def read_parity(path: Path) -> Parity:
    with np.load(path) as file:
        arrays = dict(file)
    return Parity(
        config=arrays["config"].tolist(),
        encoder_input=arrays["encoder_input"],
        decoder_input=arrays["decoder_input"],
        source_mask=arrays.get("source_mask"),
        target_mask=arrays["target_mask"],
        output=arrays["output"],
        weights=within(arrays, "state/"),
    )
