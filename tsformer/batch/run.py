"""forecast_files(settings): forecast all series of a table, part by part."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import torch

from tsformer.batch.config import BatchConfig, parse_batch
from tsformer.batch.local import forecast_local
from tsformer.batch.manifest import (
    ERRORS,
    FileState,
    Manifest,
    PartState,
    fingerprint,
    output_alone,
    read_manifest,
    remove_forecasts,
    remove_scratch,
    write_manifest,
)
from tsformer.batch.part import FORECASTS, GATHERED, Done, Job, read_part
from tsformer.batch.prepare import Input, check_input, lay_out_parts
from tsformer.batch.progress import following
from tsformer.batch.ranks import device_of, joined_ranks
from tsformer.batch.ray_engine import check_ray, forecast_by_ray
from tsformer.data.writing import write_parquet
from tsformer.errors import BatchError, ConfigError, DataError
from tsformer.forecaster import Forecaster
from tsformer.ranks import World


class Summary(NamedTuple):
    """What a batch forecast wrote.

    Attributes:
        series: forecast.
        rows: of forecasts.
        errors: series that were left out.
        seconds: that this run took.
        output: folder of the forecasts.
    """

    series: int
    rows: int
    errors: int
    seconds: float
    output: Path

    def __str__(self) -> str:
        """Return it as a line."""
        return (
            f"{self.series:,} series, {self.rows:,} rows, {self.errors:,} errors in "
            f"{self.seconds:.1f} s: {self.output}"
        )


def forecast_files(settings: Mapping[str, Any]) -> Summary | None:
    """Forecast all series of a table, and write `forecasts/part-*.parquet` and `manifest.json`.

    The table is parted into whole series, and each part is read, forecast and written at once,
    as `Forecaster.predict` would; so memory holds one part for each worker. A forecast that was
    stopped goes on where it was, and comes to the same bytes. Where torchrun or SLURM started
    several ranks, each forecasts its share. With several workers, a script calls this under
    `if __name__ == "__main__"`, as they begin with importing it.

    Args:
        settings: as `conf/fitted/forecast.yaml` composes them.

    Returns:
        What was written; None on ranks other than the first.

    Raises:
        ConfigError: a setting is unknown, wrong, or not for this model.
        ModelFolderError: the model cannot be loaded.
        DataError: the input cannot be used, or with `on_error=raise` a series of it.
        BatchError: the output holds something else, or a process died.
        OSError: the disk is full, or cannot be written.
    """
    began = time.perf_counter()
    config = parse_batch(settings)
    output = config.output
    if config.engine == "ray":
        check_ray()
    with joined_ranks() as world:
        if world.size > 1 and config.engine == "ray":
            raise ConfigError("engine=ray starts its own processes: leave torchrun and srun out.")
        if config.engine == "local":
            _check_device(device_of(world, config.device))
        if not world.is_first:
            world.wait()
            job = _job(config, output, _manifest_of(output), world)
            _run(job, config, world)
            world.wait()
            return None
        with output_alone(output):
            manifest = _prepare(config, output, world.size)
            (output / FORECASTS).mkdir(exist_ok=True)
            world.wait()
            job = _job(config, output, manifest, world)
            try:
                _run(job, config, world)
                world.wait()
            finally:
                done = [read_part(job, number) for number in range(len(job.places))]
                manifest = _with_states(manifest, done)
                write_manifest(output, manifest)
            _refuse_changes(manifest)
            if config.on_error == "raise":
                _refuse_left_out(output, done)
            _write_errors(output, done)
            remove_scratch(output)
    states = manifest.parts
    return Summary(
        sum(part.series for part in states),
        sum(part.rows for part in states),
        sum(part.errors for part in states),
        time.perf_counter() - began,
        output,
    )


def _prepare(config: BatchConfig, output: Path, at_least: int) -> Manifest:
    """Return the manifest of the forecast to go on with, or of one that begins."""
    known = read_manifest(output)
    forecaster = Forecaster.load(config.model)
    checked = check_input(config, forecaster, output)
    fresh = Manifest(
        model=str(config.model),
        fingerprint=fingerprint(config.model),
        input=[FileState.of(file) for file in checked.history.files],
        future=[FileState.of(file) for file in checked.future.files] if checked.future else [],
        arguments=_arguments(config, forecaster)
        | {"rows_per_part": config.rows_per_part, "series_per_part": config.series_per_part},
        id=checked.id,
        id_type=None,
        zone=checked.zone,
        at_least=at_least,
        parts=[],
    )
    if known and config.resume:
        if differing := known.differences(fresh):
            raise BatchError(
                f"{output}: the forecast that was started here differs from this one: "
                f"{'; '.join(differing)}. Start again with resume=false, which removes it, or "
                "choose another output."
            )
        remove_scratch(output, gathered=False)
        _gather_again(known, checked, config, output)
        return known
    if known:
        remove_forecasts(output, known)
    remove_scratch(output)
    places, id_type = lay_out_parts(checked, config, output, at_least)
    parts = [PartState.of(number, place) for number, place in enumerate(places)]
    fresh = fresh.model_copy(update={"id_type": id_type, "parts": parts})
    write_manifest(output, fresh)
    return fresh


def _gather_again(known: Manifest, checked: Input, config: BatchConfig, output: Path) -> None:
    """Bring rows together once more, where a part is missing of a forecast that had ended."""
    missing = any(not (output / FORECASTS / part.file).exists() for part in known.parts)
    needs = known.future or any(part.spans is None for part in known.parts)
    if missing and needs and not (output / GATHERED).exists():
        lay_out_parts(checked, config, output, known.at_least)


def _arguments(config: BatchConfig, forecaster: Forecaster) -> dict[str, Any]:
    """Return the arguments of `Forecaster.predict`."""
    names = ("level", "quantiles", "num_samples", "adaptive", "seed", "batch_size")
    horizon = forecaster.horizon if config.horizon is None else config.horizon
    return {"horizon": horizon, **config.model_dump(include=set(names))}


def _job(config: BatchConfig, output: Path, manifest: Manifest, world: World) -> Job:
    arguments = {
        name: value
        for name, value in manifest.arguments.items()
        if name not in ("rows_per_part", "series_per_part")
    }
    return Job(
        model=config.model,
        input=config.input,
        future=config.future if manifest.future else None,
        output=output,
        places=[part.place for part in manifest.parts],
        id=manifest.id,
        id_type=manifest.id_type,
        zone=manifest.zone,
        key=manifest.key,
        arguments=arguments,
        on_error=config.on_error,
        device=device_of(world, config.device),
    )


def _check_device(name: str) -> None:
    try:
        if torch.empty(0, device=name).is_meta:
            raise RuntimeError("it holds no numbers")
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device={name}: cannot be used here ({error}).") from error


def _manifest_of(output: Path) -> Manifest:
    manifest = read_manifest(output)
    if manifest is None:
        raise BatchError(f"{output}: all ranks need the same folder; this one sees nothing there.")
    return manifest


def _run(job: Job, config: BatchConfig, world: World) -> None:
    """Forecast the parts of this rank that are not written yet."""
    own = range(len(job.places))[world.rank :: world.size]  # whatever is finished
    known = {number: read_part(job, number) for number in own}
    waiting = [number for number, done in known.items() if done is None]
    shown = config.progress_bar if world.is_first else False
    with closing(_engine(job, config, waiting)) as written:
        for _ in following(written, len(own), len(own) - len(waiting), shown):
            pass


def _engine(job: Job, config: BatchConfig, numbers: Sequence[int]) -> Generator[Done, None, None]:
    if config.engine == "ray":
        return forecast_by_ray(job, numbers, config.num_workers, config.ray)
    return forecast_local(job, numbers, config.num_workers)


def _with_states(manifest: Manifest, done: Sequence[Done | None]) -> Manifest:
    parts = []
    for part, each in zip(manifest.parts, done, strict=True):
        known = {"state": "pending", "rows": 0, "series": 0, "errors": 0}
        if each:
            counts = {"rows": each.rows, "series": each.series, "errors": len(each.errors)}
            known = {"state": "finished", **counts}
        parts.append(part.model_copy(update=known))
    return manifest.model_copy(update={"parts": parts})


def _refuse_changes(manifest: Manifest) -> None:
    for state in (*manifest.input, *manifest.future):
        file = Path(state.path)
        if not file.exists() or FileState.of(file) != state:
            raise DataError(
                f"{file}: changed while the forecast was running. Start again with "
                "resume=false when nothing writes to it."
            )


def _refuse_left_out(output: Path, done: Sequence[Done | None]) -> None:
    for part in filter(None, done):
        for id, reason in part.errors:
            raise DataError(
                f"series {id!r} was left out by an earlier run with on_error=skip ({reason}). Set "
                f"on_error=skip again, or start again with resume=false: {output}"
            )


def _write_errors(output: Path, done: Sequence[Done | None]) -> None:
    """List the series that were left out, if there are any."""
    rows = [(id, each.number, reason) for each in done if each for id, reason in each.errors]
    if not rows:
        (output / ERRORS).unlink(missing_ok=True)
        return
    ids, parts, reasons = zip(*rows, strict=True)
    try:
        names = pa.array(ids)
    except pa.ArrowException:  # numbers and text
        names = pa.array([None if id is None else str(id) for id in ids])
    table = pa.table({"unique_id": names, "part": list(parts), "reason": list(reasons)})
    write_parquet(table, output / ERRORS)
