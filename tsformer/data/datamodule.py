"""ForecastDataModule: loaders of window batches, as Lightning takes them."""

from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from tsformer.data.forecast_data import ForecastData
from tsformer.data.windows import BatchSampler, WindowBatch, WindowDataset


class ForecastDataModule(LightningDataModule):
    """Loaders of the train, validation and test windows of a table."""

    def __init__(self, data: ForecastData) -> None:
        """Hold the windows."""
        super().__init__()
        self.data = data

    def train_dataloader(self) -> DataLoader[WindowBatch]:
        """Return the train windows of an epoch in an order that follows from seed and epoch."""
        sampling, trainer = self.data.config.sampling, self.trainer
        weights = self.data.store.weights
        sampler = BatchSampler(
            self.data.train.index,
            self.data.config.batch_size,
            shuffle=True,
            over=sampling.over,
            weights=None if weights is None else weights[self.data.groups[:, 0]],
            windows_per_epoch=sampling.windows_per_epoch,
            seed=self.data.config.seed,
            rank=trainer.global_rank if trainer else 0,
            world_size=trainer.world_size if trainer else 1,
        )
        return self._loader(self.data.train, sampler)

    def val_dataloader(self) -> DataLoader[WindowBatch]:
        """Return every validation window once, in order."""
        return self._loader(self.data.validation, self._in_order(self.data.validation))

    def test_dataloader(self) -> DataLoader[WindowBatch]:
        """Return every test window once, in order."""
        return self._loader(self.data.test, self._in_order(self.data.test))

    def _in_order(self, windows: WindowDataset) -> BatchSampler:
        trainer = self.trainer
        return BatchSampler(
            windows.index,
            self.data.config.eval_batch_size,
            shuffle=False,
            rank=trainer.global_rank if trainer else 0,
            world_size=trainer.world_size if trainer else 1,
        )

    def _loader(self, windows: WindowDataset, sampler: BatchSampler) -> DataLoader[WindowBatch]:
        # Items are batches already.
        return DataLoader(
            windows, sampler=sampler, batch_size=None, num_workers=self.data.config.num_workers
        )
