"""How good forecasts are: the test of a fit, scores of backtests, and comparisons.

`score`, `compare` and `fraction_below` are for users; they are loaded on first use.
"""

from importlib import import_module
from typing import Any

_MODULES = {"score": "scores", "fraction_below": "scores", "compare": "comparison"}
__all__ = ["compare", "fraction_below", "score"]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
