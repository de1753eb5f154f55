"""tsformer: forecasts of continuous time series with a causal encoder-decoder transformer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tsformer.errors import TsformerError
    from tsformer.forecaster import Forecaster
    from tsformer.training import fit

__version__ = "0.1.0"
__all__ = ["Forecaster", "TsformerError", "fit"]

_HOMES = {
    "Forecaster": "tsformer.forecaster",
    "TsformerError": "tsformer.errors",
    "fit": "tsformer.training",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import tsformer` loads no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tsformer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
