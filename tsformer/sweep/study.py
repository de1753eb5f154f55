"""The trials of a search, as Optuna keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsformer.config import TrialConfig
from tsformer.errors import ConfigError
from tsformer.sweep.config import PrunerConfig, SweepConfig
from tsformer.sweep.result import Result
from tsformer.sweep.space import Choice, Dimension, Values

if TYPE_CHECKING:
    import optuna

_PRUNER = "pruner"


def open_study(storage: str, name: str, config: SweepConfig) -> optuna.Study:
    """Return the study of a sweep, made if it is not there.

    Args:
        storage: a journal file, or the URL of a database, such as `sqlite:///study.db`.
        name: of the study in it.
        config: what the study keeps of it is the pruner, which trials look up.

    Raises:
        ConfigError: Optuna is not installed, or the storage cannot be opened.
    """
    optuna = _import_optuna()
    if "://" not in storage:
        _mend_journal(Path(storage))
    study = optuna.create_study(
        storage=_open_storage(storage),
        study_name=name,
        direction="minimize",
        load_if_exists=True,
        pruner=optuna.pruners.NopPruner(),
    )
    study.set_user_attr(_PRUNER, config.pruner.model_dump())
    return study


def ask(
    study: optuna.Study,
    space: Mapping[str, Dimension],
    config: SweepConfig,
    number: int | None = None,
) -> tuple[int, Values]:
    """Return the number and the settings of a new trial, or the settings of one that is there.

    What is drawn depends on the seed, the number and the trials before alone, so that a search
    that is resumed goes on as it would have.

    Args:
        study: which trials there are.
        space: what is searched.
        config: the sampler.
        number: of a trial that was asked for before and is not told.
    """
    import optuna

    drawn = len(study.get_trials(deepcopy=False)) if number is None else number
    seed = (config.seed * 1_000_003 + drawn) % 2**32
    study.sampler = (
        optuna.samplers.TPESampler(
            n_startup_trials=config.n_startup_trials, constant_liar=True, seed=seed
        )
        if config.sampler == "tpe"
        else optuna.samplers.RandomSampler(seed=seed)
    )
    trial = study.ask() if number is None else _trial(study, number)
    return trial.number, {key: _suggest(trial, key, space[key]) for key in space}


def tell(study: optuna.Study, number: int, result: Result) -> None:
    """Keep how a trial ended; of one that was pruned, its last reported value counts."""
    from optuna.trial import TrialState

    if result.state == "complete":
        study.tell(number, result.objective)
    else:
        state = TrialState.PRUNED if result.state == "pruned" else TrialState.FAIL
        study.tell(number, state=state)


def load_trial(config: TrialConfig) -> optuna.Trial:
    """Return the trial that a fit is, to report to and to ask whether it is pruned."""
    optuna = _import_optuna()
    assert config.storage is not None
    study = optuna.load_study(storage=_open_storage(config.storage), study_name=config.study)
    study.pruner = _build_pruner(PrunerConfig(**study.user_attrs[_PRUNER]))
    return _trial(study, config.number)


def importances_of(study: optuna.Study) -> dict[str, float]:
    """Return how much each setting mattered for a good objective; none if it cannot be said."""
    import optuna

    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    try:
        return optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):  # of too few trials, or trials that are all alike
        return {}


def _trial(study: optuna.Study, number: int) -> optuna.Trial:
    import optuna

    frozen = study.get_trials(deepcopy=False)[number]
    return optuna.Trial(study, frozen._trial_id)


def _suggest(trial: optuna.Trial, key: str, dimension: Dimension) -> str:
    if isinstance(dimension, Choice):
        return trial.suggest_categorical(key, dimension.values)
    low, high, step, log = dimension.low, dimension.high, dimension.step, dimension.log
    if dimension.whole:
        return repr(trial.suggest_int(key, int(low), int(high), step=int(step or 1), log=log))
    return f"{trial.suggest_float(key, low, high, step=step, log=log):.6g}"


def _build_pruner(config: PrunerConfig) -> optuna.pruners.BasePruner:
    import optuna

    if config.name == "median":
        # Optuna counts its steps from 0, and we validations from 1.
        return optuna.pruners.MedianPruner(
            n_startup_trials=config.n_startup_trials, n_warmup_steps=config.n_warmup_steps + 1
        )
    if config.name == "hyperband":
        return optuna.pruners.HyperbandPruner(min_resource=config.n_warmup_steps + 1)
    return optuna.pruners.NopPruner()


def _open_storage(storage: str) -> optuna.storages.BaseStorage:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    if "://" not in storage:
        try:
            return optuna.storages.JournalStorage(JournalFileBackend(storage))
        except ValueError as error:
            raise ConfigError(
                f"{storage}: damaged ({error}). Choose another hydra.sweep.dir."
            ) from error
    try:
        return optuna.storages.RDBStorage(storage)
    except Exception as error:  # of SQLAlchemy, or of a driver that is not there
        raise ConfigError(f"sweep.storage={storage}: {error}") from error


def _mend_journal(path: Path) -> None:
    """Cut off a last line that has no end: Optuna would write the next one after it."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("a search needs Optuna: pip install 'tsformer[sweep]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
