"""What libraries say during a fit: nothing, or all."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LIBRARIES = (
    *("lightning", "lightning.pytorch", "lightning.fabric", "pytorch_lightning", "torch"),
    *("mlflow", "alembic", "wandb", "optuna", "ray", "tensorboard", "matplotlib", "urllib3"),
)


@contextmanager
def quiet(verbose: bool = False) -> Iterator[None]:
    """Silence libraries, whose news of their own choices are no news to the user.

    Warnings of tsformer's own modules are shown in either case; errors are exceptions.

    Args:
        verbose: show all that libraries log and warn of, and what tsformer logs for debugging.
    """
    names = (*_LIBRARIES, "tsformer")
    before = {name: logging.getLogger(name).level for name in names}
    lightning = logging.getLogger("lightning")
    handlers = list(lightning.handlers)
    if logging.getLogger().handlers:  # which show what it logs, too
        lightning.handlers.clear()
    with warnings.catch_warnings():
        if verbose:
            warnings.simplefilter("default")
        else:
            warnings.filterwarnings("ignore", module=r"(?!tsformer(\.|$))")
            # What will change one day in a library is for its callers' tests to find out.
            for category in (FutureWarning, DeprecationWarning, PendingDeprecationWarning):
                warnings.simplefilter("ignore", category, append=True)
        set_levels(verbose)
        if verbose:
            logging.getLogger("tsformer").setLevel(logging.DEBUG)
        try:
            yield
        finally:
            lightning.handlers[:] = handlers
            for name, level in before.items():
                logging.getLogger(name).setLevel(level)


def set_levels(verbose: bool) -> None:
    """Choose what libraries log; one that sets its own level when it is imported needs it again."""
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.INFO if verbose else logging.ERROR)
