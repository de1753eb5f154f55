"""export(forecaster, output, format): the network as one file that runs without tsformer.

The graph holds the instance norm, the transformer, the linear skip and the head. Scaling, calendar
and covariates stay outside of it; what it takes and gives is told by the JSON that stands in it.
"""

import io
import json
import logging
import warnings
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from tsformer.data.calendar import num_calendar_features
from tsformer.data.types import Float32Array
from tsformer.data.writing import naming_full_disk
from tsformer.errors import ConfigError, TsformerError
from tsformer.forecaster import Forecaster
from tsformer.model.config import EncoderConfig, ForecasterConfig, network_settings
from tsformer.nn import ForecastNetwork

INPUTS = ("context", "observed", "past_features", "future_features", "static_features")
OUTPUT = "forecast"
METADATA = "tsformer"  # name of the JSON in the file

_TOLERANCE = 1e-4
_CHECKED_SIZES = (1, 3)  # batches; the graph is made from another
_TRACED_SIZE = 2
_MAX_ONNX_BYTES = 2**31

_PARAMETERS = {
    "point": ["point"],
    "normal": ["mean", "standard deviation"],
    "student_t": ["location", "scale", "degrees of freedom"],
    "negative_binomial": ["mean", "alpha"],
}


def export(forecaster: Forecaster, output: Path, format: Literal["onnx", "torch_export"]) -> None:
    """Write a forecaster's network as an ONNX or a torch.export file.

    Batches may have any size. Before the file is moved into its place, it has forecast two batches
    as the network does, to 1e-4.

    Args:
        forecaster: whose decoding is parallel, or whose head is `point`.
        output: the file; one that exists is replaced.
        format: `onnx` or `torch_export`.

    Raises:
        ConfigError: the forecaster cannot be exported, or a package is missing.
        TsformerError: the graph forecasts something else, and was not written.
    """
    config = forecaster.config
    if config.model.decoding == "autoregressive" and config.model.head != "point":
        raise ConfigError(
            f"model.decoding=autoregressive with model.head={config.model.head} takes its "
            "quantiles from sample paths, which cannot be exported. Export a model with "
            "model.decoding=parallel, or with model.head=point."
        )
    if output.is_dir():
        raise ConfigError(f"output={output}: is a folder. Name a file.")
    network = deepcopy(forecaster.network).to("cpu", torch.float32).requires_grad_(False)
    told = json.dumps(describe(forecaster), indent=1)
    output.parent.mkdir(parents=True, exist_ok=True)
    with (
        naming_full_disk(output),
        TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as scratch,
    ):
        path = Path(scratch) / output.name
        example = example_inputs(config, _TRACED_SIZE)
        write, run = {
            "onnx": (_write_onnx, _run_onnx),
            "torch_export": (_write_torch_export, _run_torch_export),
        }[format]
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of itself
            write(network, example, told, path)
            for size in _CHECKED_SIZES:
                inputs = example_inputs(config, size)
                _compare(run(path, inputs), network(*inputs.values()).numpy())
        path.replace(output)


def describe(forecaster: Forecaster) -> dict[str, Any]:
    """Return what an exported file says of its inputs and its output, as plain values."""
    config = forecaster.config
    shapes = {
        name: ["batch", *tensor.shape[1:]] for name, tensor in example_inputs(config, 1).items()
    }
    calendar = _calendar_features(config)
    columns = config.columns
    covariates = _encoded(columns.covariates, config.covariates)
    ahead = covariates[: len(columns.future_covariates)]
    what = {
        "context": "the target over the context, in scaled units; values at steps that were not "
        "observed are ignored",
        "observed": "true where the context is a measurement",
        "past_features": "over the context",
        "future_features": "over the horizon",
        "static_features": "of the series",
    }
    features = {
        "past_features": calendar + covariates,
        "future_features": calendar + ahead,
        "static_features": _encoded(columns.static_covariates, config.static),
    }
    scaler, parameters = config.scaler, _parameters(forecaster)
    return {
        "inputs": {
            name: {
                "shape": shapes[name],
                "type": "bool" if name == "observed" else "float32",
                "what": what[name],
                **({"features": features[name]} if name in features else {}),
            }
            for name in INPUTS
        },
        "outputs": {
            OUTPUT: {
                "shape": ["batch", config.horizon, config.num_channels, len(parameters)],
                "type": "float32",
                "what": "in scaled units; the last axis holds `parameters`",
                "parameters": parameters,
            }
        },
        "scaled units": {
            "formula": "(transform(y) - mean) / std; config.json has those of each series",
            "transform": scaler.transform,
            "of other series": {"mean": scaler.fallback_mean, "std": scaler.fallback_std},
        },
        "features": {
            "numbers": "(v - mean) / std, and 0 where missing",
            "categories": "the place in the list, from 1; 0 where missing or not in it",
        },
        "freq": config.freq,
        "time zone of the calendar": config.time_zone,
        "channels": config.channels,
        "versions": config.versions,
    }


def example_inputs(config: ForecasterConfig, size: int) -> dict[str, Tensor]:
    """Return random inputs of a forecaster's network by name, with values that are missing."""
    settings = network_settings(config)
    generator = torch.Generator().manual_seed(size)

    def features(steps: int, cardinalities: list[int]) -> Tensor:
        values = torch.randn(size, steps, len(cardinalities), generator=generator)
        for place, number in enumerate(cardinalities):
            if number:
                drawn = torch.randint(number, (size, steps), generator=generator)
                values[..., place] = drawn.float()
        return values

    cardinalities = settings["cardinalities"]
    window = (size, config.context_length, config.num_channels)
    tensors = (
        torch.randn(window, generator=generator),
        torch.rand(window, generator=generator) < 0.9,
        features(config.context_length, cardinalities),
        features(config.horizon, cardinalities[: settings["num_future_features"]]),
        features(1, settings["static_cardinalities"])[:, 0],
    )
    return dict(zip(INPUTS, tensors, strict=True))


def _write_onnx(
    network: ForecastNetwork, example: Mapping[str, Tensor], told: str, path: Path
) -> None:
    _import_onnx()
    if sum(4 * x.numel() for x in network.state_dict().values()) > _MAX_ONNX_BYTES - 2**24:
        raise ConfigError("format=onnx holds 2 GB at most. Set format=torch_export.")
    for name in ("torch.onnx", "onnxscript", "onnx_ir"):  # which tell each step
        logging.getLogger(name).setLevel(logging.ERROR)
    program = torch.onnx.export(
        network,
        tuple(example.values()),
        dynamo=True,
        external_data=False,
        verbose=False,
        input_names=list(INPUTS),
        output_names=[OUTPUT],
        dynamic_shapes=_dynamic_shapes(),
    )
    assert program is not None
    program.model.metadata_props[METADATA] = told
    program.save(path, external_data=False)


def _run_onnx(path: Path, inputs: Mapping[str, Tensor]) -> Float32Array:
    session = _import_onnx().InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run([OUTPUT], {name: x.numpy() for name, x in inputs.items()})[0]


def _write_torch_export(
    network: ForecastNetwork, example: Mapping[str, Tensor], told: str, path: Path
) -> None:
    program = torch.export.export(
        network, tuple(example.values()), dynamic_shapes=_dynamic_shapes()
    )
    buffer = io.BytesIO()  # as in CheckpointFiles
    torch.export.save(program, buffer, extra_files={f"{METADATA}.json": told})
    path.write_bytes(buffer.getbuffer())


def _run_torch_export(path: Path, inputs: Mapping[str, Tensor]) -> Float32Array:
    return torch.export.load(path).module()(*inputs.values()).numpy()


def _dynamic_shapes() -> dict[str, Any]:
    batch = torch.export.Dim("batch")
    return {name: {0: batch} for name in INPUTS}


def _import_onnx() -> Any:
    """Return onnxruntime."""
    try:
        import onnx
        import onnxruntime
        import onnxscript  # here, as they are an extra that few need
    except ImportError as error:
        raise ConfigError(
            f"format=onnx needs the package {error.name}: pip install 'tsformer[export]'"
        ) from error
    del onnx, onnxscript  # torch needs them
    return onnxruntime


def _compare(found: Float32Array, expected: Float32Array) -> None:
    if found.shape != expected.shape or not np.allclose(
        found, expected, rtol=_TOLERANCE, atol=_TOLERANCE
    ):
        raise TsformerError(
            "the exported graph does not forecast what the network does, so it was not written. "
            "Try another release of torch, onnxscript or onnxruntime, or the other format."
        )


def _parameters(forecaster: Forecaster) -> list[str]:
    """Return what the last axis of the output holds."""
    levels = forecaster.network.head.levels
    return [f"quantile {level:g}" for level in levels] or _PARAMETERS[forecaster.config.model.head]


def _calendar_features(config: ForecasterConfig) -> list[dict[str, Any]]:
    """Return what `calendar_features` gives, in its order."""
    if not config.calendar:
        return []
    number = num_calendar_features(config.freq, yearly=False) // 2
    cycles = ["hours / 24", "days since Monday / 7"][2 - number :]
    cycles += ["days since January 1 / 365.25"] if config.yearly else []
    names = [f"{wave}(2 pi {cycle})" for wave in ("sin", "cos") for cycle in cycles]
    names += [f"1 on public holidays of {config.holidays}, else 0"] if config.holidays else []
    return [{"name": name} for name in names]


def _encoded(names: tuple[str, ...], encoder: EncoderConfig) -> list[dict[str, Any]]:
    return [
        {"name": name, "categories": encoder.vocabularies[name]}
        if name in encoder.vocabularies
        else {"name": name, "mean": mean, "std": std}
        for name, mean, std in zip(names, encoder.mean, encoder.std, strict=True)
    ]
