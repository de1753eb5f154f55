"""What importing the package costs, and offers."""

import subprocess
import sys
from pathlib import Path

import pytest

import tsformer
from tests.data.frames import long_frame, ramp
from tests.forecasters import make_forecaster
from tsformer.data.columns import Columns


def test_import_loads_no_torch() -> None:
    code = "import sys, tsformer; print('torch' in sys.modules, 'pandas' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert output.split() == ["False", "False"]


@pytest.mark.parametrize("head", ["point", "quantile"])
def test_forecasts_load_neither_lightning_nor_the_compiler(head: str, tmp_path: Path) -> None:
    """The compiler, torch._dynamo, takes as long to load as all of torch."""
    columns = Columns("unique_id", "ds", ("y",), static_covariates=("shop",), categorical=("shop",))
    forecaster = make_forecaster(
        columns=columns, vocabularies={"shop": ["a", "b"]}, head=head, quantiles=(0.1, 0.9)
    )
    forecaster.save(tmp_path / "model")
    long_frame({"a": ramp(40)}).assign(shop="a").to_csv(tmp_path / "history.csv", index=False)
    unwanted = "lightning", "torchmetrics", "matplotlib", "torch._dynamo", "scipy"
    code = (
        "import sys; from tsformer import Forecaster;"
        "Forecaster.load('model').predict('history.csv');"
        f"print([name for name in {unwanted} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_public_names_resolve() -> None:
    for name in tsformer.__all__:
        assert getattr(tsformer, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tsformer.nothing
