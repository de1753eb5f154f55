"""The weights of a forecaster: checked by name and shape before anything of their size is made."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tsformer.model.config import ForecasterConfig, network_settings
from tsformer.nn import ForecastNetwork
from tsformer.strict_json import read_json

OFFSETS = "conformal.offsets"  # beside the weights of the network

Shape = tuple[int, ...]

MAX_HEADER_BYTES = 2**24  # a thousand layers of each kind take a quarter of it
_MAX_HEADER_PARTS = 2**19  # 7 a tensor
_LENGTH_BYTES = 8  # of the header's length, which stands first in the file


def read_weights(path: Path, config: ForecasterConfig) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, which are those that a configuration asks for.

    Raises:
        ValueError: they are others, or some number is not finite.
        SafetensorError, OSError: the file is damaged.
    """
    check_shapes(_read_shapes(path), config)
    weights = load_file(path, device="cpu")
    check_finite(weights)
    return weights


def check_finite(weights: Mapping[str, Tensor]) -> None:
    """Refuse NaN and infinity.

    Raises:
        ValueError: names the first tensor that holds one.
    """
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} holds numbers that are not finite")


def num_bytes(shapes: Mapping[str, Shape]) -> int:
    """Return what float32 tensors of some shapes take."""
    return sum(4 * math.prod(shape) for shape in shapes.values())


def check_shapes(found: Mapping[str, Shape], config: ForecasterConfig) -> None:
    """Refuse tensors that are not those of a configuration.

    Args:
        found: shapes by name.
        config: says what is expected.

    Raises:
        ValueError: names the first that is missing, unknown or of another shape.
    """
    expected = _expected_shapes(config)
    for name in [*expected, *found]:
        if name not in found:
            raise ValueError(f"{name[:80]!r} is missing")
        if name not in expected:
            raise ValueError(f"{name[:80]!r} is unknown")
        if found[name] != expected[name]:
            raise ValueError(
                f"{name!r} has the shape {found[name]}, where the configuration says "
                f"{expected[name]}"
            )


def build_network(config: ForecasterConfig, weights: Mapping[str, Tensor]) -> ForecastNetwork:
    """Return the network of a configuration, with weights that `check_shapes` has passed."""
    network = ForecastNetwork(**network_settings(config))
    network.load_state_dict(dict(weights))
    return network


def _expected_shapes(config: ForecasterConfig) -> dict[str, Shape]:
    """Return the shapes of all tensors of a model folder by their names.

    Layers are alike, so one of each kind is built, on a device that holds no numbers.
    """
    one_each = {"num_layers": 1, "num_decoder_layers": 1}
    try:
        with torch.device("meta"), _Unfilled():
            state = ForecastNetwork(**network_settings(config) | one_each).state_dict()
    except RuntimeError as error:  # a size that no integer holds
        raise ValueError(f"sizes too large for any machine ({error})") from error
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    for kind, number in (
        ("encoder", config.model.num_layers),
        ("decoder", config.model.num_decoder_layers),
    ):
        layers = f"transformer.{kind}_layers"
        first = {name: shape for name, shape in shapes.items() if name.startswith(f"{layers}.0.")}
        for layer in range(1, number):
            for name, shape in first.items():
                shapes[name.replace(f"{layers}.0.", f"{layers}.{layer}.")] = shape
    if config.conformal:
        rows = len(config.scaler.ids) // config.num_channels + 1
        levels = len(config.model.quantiles)
        shapes[OFFSETS] = (rows, config.horizon, config.num_channels, levels)
    return shapes


def _read_shapes(path: Path) -> dict[str, Shape]:
    """Return names and shapes in a safetensors file by its header alone.

    Raises:
        ValueError: it has no such header, or its size is not that of float32 tensors of the shapes.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if not 0 < length <= min(MAX_HEADER_BYTES, size):
            raise ValueError("not a safetensors file, or cut off in its header")
        header = read_json(file.read(length), max_parts=_MAX_HEADER_PARTS)
    if not isinstance(header, dict):
        raise ValueError("its header is not a JSON object")
    header.pop("__metadata__", None)
    shapes = {}
    for name, tensor in header.items():
        shape = tensor.get("shape") if isinstance(tensor, dict) else None
        if not isinstance(shape, list) or not all(type(x) is int and x >= 0 for x in shape):
            raise ValueError(f"{name[:80]!r} has no shape")
        if tensor.get("dtype") != "F32":
            raise ValueError(f"{name[:80]!r} does not hold float32 numbers")
        shapes[name] = tuple(shape)
    expected = _LENGTH_BYTES + length + num_bytes(shapes)
    if size != expected:
        raise ValueError(f"{size:,} bytes, where its header says {expected:,}")
    return shapes


class _Unfilled(TorchFunctionMode):
    """Leaves unfilled what has no values: to fill it, the meta device imports torch's compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.init.normal_:
            return kwargs["tensor"]
        if func is torch.randn:
            return torch.empty(*args)
        return func(*args, **kwargs)
