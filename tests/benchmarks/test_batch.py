"""`benchmark batch`: what it is asked for, and a small run."""

import pytest

from tsformer.benchmarks.batch import measure_batch
from tsformer.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("series=-1", "series=-1: give a number from 1 up"),
        ("steps=many", "steps=many: give a whole number"),
        ("ways=local,spark", "ways=spark"),
        ("size=3", "size: there is no such setting"),
    ],
)
def test_wrong_settings_are_told(setting, message):
    with pytest.raises(ConfigError, match=message):
        measure_batch([setting])


def test_each_way_is_a_row_beside_predict():
    table = measure_batch(["series=20", "steps=200", "ways=local"])
    assert list(table.columns[0].cells) == ["predict, in memory", "local"]
    peak = list(table.columns[-1].cells)[1]
    assert float(peak.replace(",", "")) > 50
