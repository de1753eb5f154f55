"""Checkpoints of a fit that describe their forecaster, so that the file alone can forecast."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tsformer.errors import ModelFolderError
from tsformer.model.fitted import FittedModel
from tsformer.model.folder import parse_config
from tsformer.model.weights import build_network, check_finite, check_shapes, num_bytes

BEST, LAST = "best.ckpt", "last.ckpt"
# Where in a checkpoint `config_text` stands, and of its training the settings and number of ranks.
CONFIG_KEY, SETTINGS_KEY = "tsformer_config", "tsformer_settings"
WORLD_KEY = "tsformer_world_size"


def read_checkpoint(path: Path) -> FittedModel:
    """Read what a checkpoint forecasts with.

    Raises:
        ModelFolderError: the file is missing, damaged, or not a checkpoint of a fit.
    """
    if not path.is_file():
        raise ModelFolderError(f"{path}: there is no such checkpoint.")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a damaged pickle may raise anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelFolderError(
            f"{path}: damaged, or not a checkpoint of plain data, and so not read ({reason[:300]})."
        ) from error
    text = checkpoint.get(CONFIG_KEY) if isinstance(checkpoint, dict) else None
    state = checkpoint.get("state_dict") if isinstance(checkpoint, dict) else None
    if not isinstance(text, str) or not isinstance(state, dict):
        raise ModelFolderError(f"{path}: not a checkpoint of a fit of tsformer.")
    config = parse_config(text.encode(errors="replace"), str(path))
    try:
        weights = forecasting_weights(state)
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        if num_bytes(shapes) > path.stat().st_size:  # a tensor may repeat one number for ever
            raise ValueError("tensors larger than the file")
        check_shapes(shapes, config.model_copy(update={"conformal": False}))
        check_finite(weights)
        return FittedModel(build_network(config, weights), config)
    except (ValueError, RuntimeError) as error:
        raise ModelFolderError(f"{path}: damaged ({str(error)[:1000]}).") from error


def forecasting_weights(state: dict[Any, Any]) -> dict[str, Tensor]:
    """Return the averaged weights, or those of the network if it has no average."""
    names = [name for name in state if isinstance(name, str)]
    averaged = any(name.startswith("averaged.") for name in names)
    prefix = "averaged." if averaged else "network."
    weights = {name.removeprefix(prefix): state[name] for name in names if name.startswith(prefix)}
    for name, tensor in weights.items():
        if type(tensor) is not Tensor or tensor.layout != torch.strided:
            raise ValueError(f"{name[:80]!r} is not a tensor")
        if tensor.dtype != torch.float32 or tensor.is_meta:
            raise ValueError(f"{name[:80]!r} does not hold float32 numbers")
    return weights
