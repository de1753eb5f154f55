"""ForecastDataModule: loaders of window batches, as Lightning takes them."""

from typing import Any

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Sampler

from tsformer.data.forecast_data import ForecastData
from tsformer.data.sampling import BatchSampler, TrainingSampler
from tsformer.data.types import IntArray
from tsformer.data.windows import WindowBatch, WindowDataset


class ForecastDataModule(LightningDataModule):
    """Loaders of the train, validation and test windows of a table.

    Lightning sees one epoch that holds every step of the training: its place in it says all of
    which batch comes next.
    """

    def __init__(
        self,
        data: ForecastData,
        num_batches: int | None = None,
        *,
        first: int = 0,
        rank: int = 0,
        size: int = 1,
    ) -> None:
        """Hold the windows.

        Args:
            data: the windows.
            num_batches: of the whole training, as each rank counts them; None: one epoch.
            first: number of the batch that the training begins with, or goes on with.
            rank: of this process.
            size: processes that share the windows.
        """
        super().__init__()
        self.data = data
        self.num_batches = num_batches
        self.first = first
        self.rank = rank
        self.size = size

    def epochs(self) -> BatchSampler:
        """Return the train windows of an epoch in an order that follows from seed and epoch."""
        sampling = self.data.config.sampling
        weights = self.data.store.weights
        return BatchSampler(
            self.data.train.index,
            self.data.config.batch_size,
            shuffle=True,
            over=sampling.over,
            weights=None if weights is None else weights[self.data.groups[:, 0]],
            windows_per_epoch=sampling.windows_per_epoch,
            seed=self.data.config.seed,
            rank=self.rank,
            world_size=self.size,
        )

    def train_dataloader(self) -> DataLoader[WindowBatch]:
        """Return the train windows from the first batch on."""
        epochs = self.epochs()
        number = len(epochs) if self.num_batches is None else self.num_batches
        return self._loader(self.data.train, TrainingSampler(epochs, number, first=self.first))

    def val_dataloader(self) -> DataLoader[WindowBatch]:
        """Return every validation window once, in order."""
        in_order = BatchSampler(
            self.data.validation.index,
            self.data.config.eval_batch_size,
            shuffle=False,
            rank=self.rank,
            world_size=self.size,
        )
        return self._loader(self.data.validation, in_order)

    def _loader(
        self, windows: WindowDataset, sampler: Sampler[IntArray]
    ) -> DataLoader[WindowBatch]:
        # Items are batches already.
        return _Loader(
            windows, sampler=sampler, batch_size=None, num_workers=self.data.config.num_workers
        )


class _Loader(DataLoader[WindowBatch]):
    """A loader that goes on where a training was stopped; `train_dataloader` sees to it."""

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: Lightning asks, and warns if it cannot."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take nothing."""
