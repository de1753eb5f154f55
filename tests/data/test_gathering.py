"""Rows gathered by id: every value and type as it was, in its order."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tsformer.data import gathering
from tsformer.data.gathering import gather, hash_ids, open_gathered
from tsformer.data.sources import open_source, read_frame
from tsformer.errors import DataError


def test_hashes_never_change() -> None:
    """Forecasts that go on with another version would else part the series otherwise."""
    hashes, codes = hash_ids(pd.Series(["a", "a", None, "ü"]), "id")
    assert hashes.tolist() == [13950350942979735504, 6689755093696353227, 0]
    assert codes.tolist() == [0, 0, -1, 1]


def test_numbers_and_their_text_have_one_hash() -> None:
    assert hash_ids(pd.Series([7, 8]), "id")[0].tolist() == (
        hash_ids(pd.Series(["7", "8"]), "id")[0].tolist()
    )


@pytest.mark.parametrize("most_bytes", [1, 1 << 20])
def test_values_and_types_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr(gathering, "_MOST_BYTES", most_bytes)
    count = 50
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "unique_id": rng.integers(0, 9, count),
            "ds": pd.date_range("2024-01-01", periods=count, freq="h", tz="Europe/Berlin"),
            "y": np.where(rng.random(count) < 0.2, np.nan, rng.normal(size=count)),
            "kind": pd.Series(rng.choice(["a", "b"], count)).where(rng.random(count) < 0.8),
            "flag": rng.random(count) < 0.5,
            "left out": 1,
        }
    )
    frame.to_parquet(tmp_path / "table.parquet", row_group_size=7, index=False)
    source = open_source(tmp_path / "table.parquet", ["kind"], chunk_values=40)
    names = ["unique_id", "ds", "y", "kind", "flag"]
    even = hash_ids(pd.Series([0, 2, 4, 6, 8]), "unique_id")[0]
    gather(
        source,
        names,
        "unique_id",
        lambda hashes: np.where(np.isin(hashes, even), 0, -1),
        lambda number: tmp_path / f"{number}.arrows",
    )
    assert not (tmp_path / "-1.arrows").exists()
    back = read_frame(open_gathered(tmp_path / "0.arrows", ["kind"]))
    whole = read_frame(source)[names]
    expected = whole[whole["unique_id"] % 2 == 0].reset_index(drop=True)
    pd.testing.assert_frame_equal(back, expected)


def test_a_missing_or_damaged_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing or damaged"):
        open_gathered(tmp_path / "none.arrows")
    (tmp_path / "bad.arrows").write_bytes(b"\xff" * 100)
    with pytest.raises(DataError, match="resume=false"):
        open_gathered(tmp_path / "bad.arrows")
