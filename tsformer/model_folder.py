"""The model folder: a forecaster as data, `model.safetensors` and `config.json`."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tsformer.config import parse
from tsformer.conformal import ConformalOffsets
from tsformer.errors import ConfigError, DataError, ModelFolderError
from tsformer.forecaster_config import ForecasterConfig, network_settings
from tsformer.nn import ForecastNetwork

SCHEMA_VERSION = 2
WEIGHTS = "model.safetensors"
CONFIG = "config.json"
OFFSETS = "conformal.offsets"  # beside the weights of the network


def write_folder(
    folder: Path,
    network: ForecastNetwork,
    config: ForecasterConfig,
    conformal: ConformalOffsets | None,
) -> None:
    """Write a model folder, all of it or nothing.

    Raises:
        ModelFolderError: the folder exists and is not a model folder.
    """
    if folder.exists() and {path.name for path in folder.iterdir()} != {CONFIG, WEIGHTS}:
        raise ModelFolderError(f"{folder}: exists and is not a model folder; not overwritten.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        fresh = Path(scratch) / "new"
        fresh.mkdir()
        weights = {name: x.contiguous() for name, x in network.state_dict().items()}
        if conformal is not None:
            weights[OFFSETS] = torch.from_numpy(conformal.offsets)
        (fresh / WEIGHTS).write_bytes(save(weights))
        (fresh / CONFIG).write_text(config.model_dump_json(indent=1), encoding="utf-8")
        if folder.exists():
            folder.replace(Path(scratch) / "old")
        fresh.replace(folder)


def read_folder(
    folder: Path,
) -> tuple[ForecastNetwork, ForecasterConfig, ConformalOffsets | None]:
    """Read a model folder.

    Raises:
        ModelFolderError: the folder is missing, incomplete, damaged or of another version.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ModelFolderError(f"{folder}: not a model folder, it has no {name}.")
    config = _read_config(folder / CONFIG)
    network, conformal = _read_weights(folder / WEIGHTS, config)
    return network, config, conformal


def _read_config(path: Path) -> ForecasterConfig:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.get("schema_version") != SCHEMA_VERSION:
            raise ModelFolderError(
                f"{path}: not of schema_version {SCHEMA_VERSION}; load it with the release of "
                "tsformer that wrote it."
            )
        return parse(ForecasterConfig, values)
    except (ValueError, RecursionError, ConfigError, DataError) as error:  # of JSON or a setting
        raise ModelFolderError(f"{path}: damaged ({error}).") from error


def _read_weights(
    path: Path, config: ForecasterConfig
) -> tuple[ForecastNetwork, ConformalOffsets | None]:
    settings = network_settings(config)
    try:
        # Shapes alone: nothing is allocated for sizes that do not fit.
        with torch.device("meta"), _Unfilled():
            expected = ForecastNetwork(**settings).state_dict()
            if config.conformal:
                rows = len(config.scaler.ids) // config.num_channels + 1
                levels = len(config.model.quantiles)
                size = (rows, config.horizon, config.num_channels, levels)
                expected[OFFSETS] = torch.empty(size)
        weights = load_file(path, device="cpu")
        if _shapes(weights) != _shapes(expected):
            raise ModelFolderError(
                f"{path}: its weights do not have the shapes that {CONFIG} says."
            )
        if not all(weight.isfinite().all() for weight in weights.values()):
            raise ModelFolderError(f"{path}: some weights are not finite numbers.")
        offsets = weights.pop(OFFSETS, None)
        network = ForecastNetwork(**settings)
        network.load_state_dict(weights)
    except (SafetensorError, ValueError, RuntimeError, OSError) as error:
        raise ModelFolderError(f"{path}: damaged, or not for this {CONFIG} ({error}).") from error
    if offsets is None:
        return network, None
    return network, ConformalOffsets(tuple(config.model.quantiles), offsets.numpy())


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


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()}
