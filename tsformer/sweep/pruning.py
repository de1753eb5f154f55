"""The training of a trial tells its search how it goes, and stops if it goes badly."""

import warnings
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from tsformer.config import FitConfig, TrialConfig


def pruning(config: FitConfig) -> list["Pruning"]:
    """Return what a training needs to be pruned; nothing unless it is a trial of a search."""
    if config.trial is None or config.trial.storage is None:
        return []
    return [Pruning(config.trial, config.callbacks.monitor)]


class Pruning(Callback):
    """Reports each validation from rank 0, and stops all ranks if Optuna says so.

    Attributes:
        pruned: whether it stopped the training.
    """

    def __init__(self, trial: TrialConfig, monitor: str) -> None:
        """Take which trial it is, and what it reports."""
        self.trial, self.monitor = trial, monitor
        self.validations = 0
        self.pruned = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report, and stop if the search says so."""
        self.validations += 1
        stop = False
        if trainer.is_global_zero:
            stop = self._report(float(trainer.callback_metrics[self.monitor]))
        if trainer.strategy.broadcast(stop):
            self.pruned = True
            trainer.should_stop = True

    def _report(self, value: float) -> bool:
        from tsformer.sweep.study import load_trial

        trial = load_trial(self.trial)
        with warnings.catch_warnings():
            # Of a validation that was reported before the fit was killed: the same value.
            warnings.filterwarnings("ignore", message=".*already reported")
            trial.report(value, step=self.validations)
        return trial.should_prune()

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: trials are compared by their count of validations."""
        return {"validations": self.validations}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.validations = state_dict["validations"]
