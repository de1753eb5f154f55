"""fit(settings) -> FitResult: train, test, draw and save one forecaster."""

import json
import logging
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import seed_everything
from lightning.pytorch.loggers import Logger

from tsformer.config import FitConfig, TrainerConfig, parse_fit
from tsformer.console import open_console
from tsformer.data.catalog import load_data
from tsformer.data.forecast_data import ForecastData
from tsformer.data.groups import channel_names
from tsformer.data.writing import naming_full_disk, write_atomically, write_picture
from tsformer.errors import ConfigError, TsformerError
from tsformer.evaluation.testing import (
    evaluate,
    quantile_metrics,
    target_metrics,
    test_metrics,
)
from tsformer.forecaster import Forecaster
from tsformer.model.card import model_card
from tsformer.model.config import (
    EncoderConfig,
    ForecasterConfig,
    ScalerConfig,
    network_settings,
)
from tsformer.places import METRICS, REPORT, command
from tsformer.plots import plot_lr_test
from tsformer.ranks import (
    ALONE,
    Interrupted,
    World,
    find_world,
    is_restart,
    joined_ranks,
    start_ranks,
    uses_cuda,
)
from tsformer.report.content import Figures
from tsformer.report.figures import (
    draw_calibration,
    draw_errors,
    draw_forecasts,
    draw_training,
)
from tsformer.report.of_fit import fit_report
from tsformer.report.page import write_report
from tsformer.report.tables import coverage_figures, figures_table, metrics_figures
from tsformer.settings import parse
from tsformer.strict_json import without_nan
from tsformer.sweep.pruning import pruning
from tsformer.trainer.callbacks import stopped_by_signals
from tsformer.trainer.finding import find_settings
from tsformer.trainer.loggers import check_installed, join_curves, log_test, open_loggers
from tsformer.trainer.module import ForecastModule
from tsformer.trainer.provenance import write_provenance
from tsformer.trainer.quiet import quiet
from tsformer.trainer.run_folder import Place, claimed, find_place, read_settings
from tsformer.trainer.train import Trained, build_module, num_weights, train, versions

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitResult:
    """What a fit gives back.

    Attributes:
        objective: the best validation error, `callbacks.monitor`; sweeps minimise it.
        metrics: what `metrics.json` holds.
        run: the run folder.
        pruned: whether a search stopped the training; then there is no model, and no metrics.
    """

    objective: float
    metrics: dict[str, Any]
    run: Path
    pruned: bool = False


def fit(settings: Mapping[str, Any]) -> FitResult:
    """Fit a forecaster and write its run folder, `settings["paths"]["run"]`.

    The folder receives config.yaml, logs, checkpoints/{best,last}.ckpt, model/, metrics.json,
    report.html, forecast.png, error_by_horizon.png, training.png, and calibration.png of a
    distribution.

    With several devices this starts as many processes; those of torchrun and SLURM it joins.

    Args:
        settings: the resolved settings as plain values; see `FitConfig` and `conf/`. With
            `resume`, the run of that folder goes on from its last checkpoint, by its own settings.

    Raises:
        ConfigError: a setting is unknown, wrong, or does not fit the data.
        DataError: the data cannot be found or used.
        TrainingError: the training diverged.
        RankError: a process of the training has died.
        Interrupted: a signal stopped the training; it can go on.
    """
    if settings.get("resume") is not None:
        settings = read_settings(Path(settings["resume"]))
    config = parse_fit(settings)  # tells mistakes before the data are read
    check_installed(config.logger)
    num_ranks = count_ranks(config.trainer)
    if find_world() is None and num_ranks > 1:
        return start_ranks(
            fit_as_rank,
            [dict(settings)],
            num_ranks=num_ranks,
            max_restarts=config.trainer.max_restarts,
        )
    return fit_as_rank(settings)


def count_ranks(config: TrainerConfig) -> int:
    """Return how many processes train on this machine.

    Raises:
        ConfigError: there are to be several machines, but torchrun or SLURM started no process.
    """
    if find_world() is None and config.num_nodes > 1:
        raise ConfigError(
            f"trainer.num_nodes={config.num_nodes}: start the command on each machine with "
            f"torchrun (torchrun --nnodes {config.num_nodes} --nproc-per-node N --rdzv-backend "
            "c10d --rdzv-endpoint HOST:PORT scripts/fit.py ...), or with srun under SLURM."
        )
    if config.devices != "auto":
        return config.devices
    return torch.cuda.device_count() if uses_cuda(config.accelerator) else 1


def fit_as_rank(settings: Mapping[str, Any]) -> FitResult:
    """Fit as one of the ranks that there are; see `fit`. All train, the first does the rest."""
    world = find_world() or ALONE
    config = parse_fit(settings)
    with quiet(config.verbose), ExitStack() as held:
        with joined_ranks(world, cuda=uses_cuda(config.trainer.accelerator)):
            settings = world.broadcast(dict(settings))
            data = _load(settings, world)
            described = describe_forecaster(data, data.config)

            def build(config: FitConfig) -> ForecastModule:
                return build_module(config, network_settings(described))

            lr_curve = find_settings(data, build)
            seed_everything(data.config.seed, verbose=False)
            module = build(data.config)
            run = Path(data.config.paths.run)
            goes_on = settings.get("resume") is not None or is_restart()
            place, loggers = _open_run(data, world, held, goes_on=goes_on)
            if lr_curve is not None:
                write_picture(plot_lr_test(*lr_curve), run / "lr_finder.png")
            _log_start(data, module, place)
            pruners = pruning(data.config)
            with _telling_how_to_go_on(data.config):
                trained = train(
                    data,
                    module,
                    run,
                    described,
                    world=world,
                    place=place,
                    loggers=loggers,
                    callbacks=pruners,
                )
        pruned = any(pruner.pruned for pruner in pruners)
        if pruned:
            log.info("Pruned: other trials of the search are better. Run folder: %s", run)
        if pruned or not world.is_first:
            return FitResult(trained.objective, {}, run, pruned)
        with _telling_how_to_go_on(data.config), stopped_by_signals():
            metrics, headline = _finish(data, described, trained, num_weights(module), loggers)
        for figures in headline:
            open_console().print(figures_table(figures))
        log.info("Trained in %.0f s. Run folder: %s", trained.seconds, run)
        return FitResult(trained.objective, metrics, run)


@contextmanager
def _telling_how_to_go_on(config: FitConfig) -> Iterator[None]:
    """Say how a run goes on that a signal has ended, or the system, such as by a full disk."""
    try:
        with naming_full_disk(Path(config.paths.run)):
            yield
    except (Interrupted, KeyboardInterrupt, OSError) as error:
        again = f"{command('fit')} {shlex.quote(f'resume={config.paths.run}')}"
        if config.trial is not None:
            again = "the command of the sweep, once more"
        what = "Stopped" if isinstance(error, OSError) else "Interrupted"
        log.info("%s. To go on: %s", what, again)
        raise


def _load(settings: Mapping[str, Any], world: World) -> ForecastData:
    """Read the data, the first rank before the others, which then find downloads and cache."""
    if not world.is_first:
        world.wait()
    table, config = load_data(settings)
    if world.is_first:
        world.wait()
    data = ForecastData(table, config)
    log.info("%s", data.description)
    for finding in data.findings.of("warning", "note"):
        log.info("%s: %s", finding.level, finding)
    seed_everything(config.seed, verbose=False)
    torch.set_float32_matmul_precision("high" if config.trainer.tf32 else "highest")
    return data


def _open_run(
    data: ForecastData, world: World, held: ExitStack, *, goes_on: bool
) -> tuple[Place | None, list[Logger]]:
    """Let the first rank take the run folder and open the logs, to be held until the fit ends.

    Returns:
        Where the training goes on, and the loggers, which the other ranks have none of.

    Raises:
        TsformerError: in all ranks, what the first one found; the others would wait for it.
    """
    config, run = data.config, Path(data.config.paths.run)
    place, mistake = None, None
    loggers: list[Logger] = []
    if world.is_first:
        try:
            if held.enter_context(claimed(run, config, go_on=goes_on)):
                place = find_place(run, config, world.size)
            write_provenance(run, data.store)
            first_step = place.step if place else 0
            loggers = held.enter_context(open_loggers(config, run, first_step))
        except TsformerError as error:
            mistake = error
    place, mistake = world.broadcast((place, mistake))
    if mistake is not None:
        raise mistake
    return place, loggers


def _log_start(data: ForecastData, module: ForecastModule, place: Place | None) -> None:
    log.info(
        "%s weights; %s train, %s validation and %s test windows",
        *(f"{n:,}" for n in (num_weights(module), len(data.train), len(data.validation))),
        f"{len(data.test):,}",
    )
    if data.config.trainer.accelerator == "cpu" and torch.cuda.is_available():
        log.info("note: trains on the CPU, though there is a GPU: trainer=gpu uses it")
    if place is not None:
        log.info("Continuing after step %s", f"{place.step:,}")


def _finish(
    data: ForecastData,
    described: ForecasterConfig,
    trained: Trained,
    num_weights: int,
    loggers: Sequence[Logger],
) -> tuple[dict[str, Any], list[Figures]]:
    """Test, draw and save; return the metrics, and what is to be told of them."""
    config, run = data.config, Path(data.config.paths.run)
    forecaster = Forecaster(trained.network, described, trained.conformal)
    forecaster.save(run / "model")  # again with figures of the test, which takes a while

    log.info("Testing on %s windows", f"{len(data.test):,}")
    evaluations = evaluate(data, forecaster)
    by_target = target_metrics(data, evaluations)
    metrics: dict[str, Any] = {
        "objective": trained.objective,
        "monitor": config.callbacks.monitor,
        "test": test_metrics(data, evaluations),
        **({"test_by_target": by_target} if by_target else {}),
        "test_quantiles": quantile_metrics(evaluations),
        "test_windows": len(data.test),
        "best_step": trained.best_step,
        "train_seconds": round(trained.seconds, 1),
        "weights": num_weights,
    }
    write_picture(draw_forecasts(data, forecaster), run / "forecast.png")
    write_picture(draw_errors(data, evaluations), run / "error_by_horizon.png")
    if forecaster.is_probabilistic:
        write_picture(draw_calibration(evaluations), run / "calibration.png")
    if config.logger.csv:
        join_curves(run)
        write_picture(draw_training(run, trained.best_step), run / "training.png")
    headline: list[Figures] = []
    for target, scores in by_target.items() or [(None, metrics["test"])]:
        headline.append(metrics_figures(data, scores, target))
        if forecaster.is_probabilistic:
            headline.append(coverage_figures(data, evaluations, target))
    if config.report:
        shown = fit_report(data, forecaster, evaluations, headline, run, trained.best_step)
        write_report(shown, run / REPORT)
    told = without_nan(metrics)
    log_test(loggers, metrics)
    forecaster.card = model_card(described, data=config.dataset.name, metrics=told)
    forecaster.save(run / "model")
    write_atomically(run / METRICS, json.dumps(told, indent=1))  # last: the run is finished
    return metrics, headline


def describe_forecaster(data: ForecastData, config: FitConfig) -> ForecasterConfig:
    """Return what a model folder says of the forecaster of some data."""
    joint = config.model.channels == "joint"
    values = {
        "context_length": config.context_length,
        "horizon": config.horizon,
        "freq": data.store.freq,
        "regular": config.dataset.regular,
        "duplicates": config.dataset.duplicates,
        "time_zone": config.dataset.time_zone or data.store.time_zone,
        "calendar": config.dataset.calendar,
        "yearly": data.yearly,
        "holidays": config.dataset.holidays,
        "columns": replace(data.columns, weight=None),
        "channels": list(channel_names(data.store)) if joint else None,
        "model": config.model,
        "scaler": ScalerConfig.of(data.scaler),
        "covariates": EncoderConfig.of(data.covariates),
        "static": EncoderConfig.of(data.static),
        "conformal": config.conformal,
        "loss": config.loss,
        "versions": versions(),
    }
    return parse(ForecasterConfig, values)
