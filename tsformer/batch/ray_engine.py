"""The Ray engine: parts are forecast by actors of Ray Data, on this machine or on a cluster."""

import importlib.util
import logging
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tsformer.batch.config import RayConfig
from tsformer.batch.part import Done, Job, forecast_part, read_part
from tsformer.errors import BatchError, ConfigError, DataError, TsformerError
from tsformer.forecaster import Forecaster

_STORE_BYTES = 200_000_000  # of Ray's object store on this machine; only numbers of parts pass
# Set before Ray is imported, unless the user has: no reports of use, no notes of its own.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


def check_ray() -> None:
    """Tell at once that Ray is not there.

    Raises:
        ConfigError: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise ConfigError("engine=ray needs Ray Data: pip install 'tsformer[ray]'.")


def forecast_by_ray(
    job: Job, numbers: Sequence[int], num_workers: int, config: RayConfig
) -> Generator[Done, None, None]:
    """Forecast parts, and yield each that is written.

    Args:
        job: what to forecast; its paths have to be the same on all machines of a cluster.
        numbers: of the parts.
        num_workers: actors; with 0 one.
        config: where Ray runs, and what each actor is given.

    Raises:
        TsformerError: a part cannot be forecast.
        BatchError: Ray cannot be reached, or an actor failed.
    """
    check_ray()
    if not numbers:
        return
    num_actors = min(max(num_workers, 1), len(numbers))
    with _running(config, num_actors):
        import ray

        parts = ray.data.from_items(
            [{"number": number} for number in numbers], override_num_blocks=len(numbers)
        )
        written = parts.map_batches(
            _Actor,
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=num_actors),
            num_cpus=config.num_cpus,
            num_gpus=config.num_gpus,
            fn_constructor_args=(job,),
        )
        try:
            for row in written.iter_rows():
                if row["failure"]:
                    raise DataError(row["failure"])
                done = read_part(job, row["number"])
                if done is None:
                    raise BatchError(
                        f"{job.output}: a part that an actor wrote is not visible here. Choose a "
                        "folder that all machines share."
                    )
                yield done
        except ray.exceptions.RayError as error:
            raise BatchError(
                f"an actor of Ray failed ({error}). Finished parts stay: run the same again to go "
                "on."
            ) from error


class _Actor:
    """Holds the forecaster, and forecasts the parts whose numbers come."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.forecaster = Forecaster.load(job.model, job.device)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, list[Any]]:
        [number] = batch["number"]
        failure = ""
        try:
            forecast_part(self.forecaster, self.job, int(number))
        except (TsformerError, OSError) as error:  # told, as Ray would try again
            failure = str(error)
        return {"number": [int(number)], "failure": [failure]}


@contextmanager
def _running(config: RayConfig, num_actors: int) -> Iterator[None]:
    """Start Ray here or join a cluster, and leave it at the end; one that runs is used."""
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    import ray
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    if ray.is_initialized():
        yield
        return
    here: dict[str, Any] = {
        "num_cpus": num_actors * config.num_cpus + 1,  # one for Ray Data itself
        "include_dashboard": False,
        "object_store_memory": _STORE_BYTES,
    }
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if config.address is None:
            with _no_stderr():  # where Ray would tell of the level of its log
                ray.init("local", **here, **quiet)
        else:
            ray.init(config.address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise BatchError(f"ray.address={config.address}: Ray does not start ({error}).") from error
    num_gpus = num_actors * config.num_gpus
    try:
        if config.address is None and ray.cluster_resources().get("GPU", 0) < num_gpus:
            raise ConfigError(f"ray.num_gpus={config.num_gpus:g}: this machine has fewer GPUs.")
        yield
    finally:
        ray.shutdown()


@contextmanager
def _no_stderr() -> Iterator[None]:
    """Silence what is written to the standard error stream, also not by Python."""
    saved = os.dup(2)
    try:
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 2)
            yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
