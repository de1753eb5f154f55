"""The progress bar of a training."""

from lightning.pytorch.callbacks import RichProgressBar


class ProgressBar(RichProgressBar):
    """Shows how far a training is."""
