"""ForecastDataModule: a table, split and scaled, as loaders of window batches."""

import numpy as np
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from tsformer.config import FitConfig
from tsformer.data.columns import Columns
from tsformer.data.scaling import Scaler
from tsformer.data.splits import split_ends
from tsformer.data.store import SeriesStore
from tsformer.data.table import SeriesTable
from tsformer.data.windows import BatchSampler, WindowBatch, WindowDataset, WindowIndex
from tsformer.errors import ConfigError


class ForecastDataModule(LightningDataModule):
    """Train, validation and test windows of one table.

    Attributes:
        table: the series, joined as channels if the model wants them so.
        columns: parts of the table's columns.
        scaler: statistics of the train rows.
        train_end: position of the grid behind the last train row.
        train: train windows, as a dataset of batches.
        validation: validation windows.
        test: test windows.
    """

    def __init__(self, table: SeriesTable, columns: Columns, config: FitConfig) -> None:
        """Split the table, fit the scaler on its train rows and list the windows.

        Raises:
            ConfigError: a part of the split holds no window of L + H steps.
            DataError: series cannot be joined as channels.
        """
        super().__init__()
        self.config = config
        self.columns = columns
        self.table = table.joined() if config.model.channels == "joint" else table
        self.train_end, validation_end, test_end = split_ends(config.dataset.split, len(table.grid))
        self.scaler = Scaler.fit(self.table, self.train_end)
        self.store = SeriesStore.build(
            self.table,
            self.scaler,
            calendar=config.dataset.calendar,
            time_zone=config.dataset.time_zone or table.time_zone,
        )
        self._check_lengths()
        self.train = self._windows("train", 0, self.train_end)
        self.validation = self._windows("validation", self.train_end, validation_end)
        self.test = self._windows("test", validation_end, test_end)

    def _check_lengths(self) -> None:
        needed = self.config.context_length + self.config.horizon
        train_rows = np.minimum(self.train_end - self.table.starts, self.table.lengths)
        if train_rows.max() < needed:
            raise ConfigError(
                f"context_length={self.config.context_length} and horizon={self.config.horizon} "
                f"need {needed} steps, but the longest series has {max(train_rows.max(), 0)} train "
                f"steps (dataset.split={self.config.dataset.split} of {len(self.table.grid)}). "
                "Shorten context_length or horizon, or give training a larger part."
            )

    def _windows(self, part: str, begin: int, end: int) -> WindowDataset:
        index = WindowIndex.between(
            self.table.offsets,
            self.table.starts,
            begin=begin,
            end=end,
            context_length=self.config.context_length,
            horizon=self.config.horizon,
        )
        if not len(index):
            raise ConfigError(
                f"the {part} part, {max(end - begin, 0)} steps, holds no window of "
                f"horizon={self.config.horizon} steps. Shorten horizon, or change dataset.split."
            )
        inside = (self.table.row_positions >= begin) & (self.table.row_positions < end)
        if np.isnan(self.table.target[inside]).all():
            raise ConfigError(
                f"the {part} part holds no value of the target, all are missing. Change "
                "dataset.split, or name another dataset.target."
            )
        return WindowDataset(
            self.store,
            index,
            context_length=self.config.context_length,
            horizon=self.config.horizon,
            num_future_covariates=len(self.columns.future_covariates),
        )

    def train_dataloader(self) -> DataLoader[WindowBatch]:
        """Return all train windows in an order that follows from seed and epoch."""
        return self._loader(self.train, self.config.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[WindowBatch]:
        """Return every validation window once, in order."""
        return self._loader(self.validation, self.config.eval_batch_size)

    def test_dataloader(self) -> DataLoader[WindowBatch]:
        """Return every test window once, in order."""
        return self._loader(self.test, self.config.eval_batch_size)

    def _loader(
        self, windows: WindowDataset, batch_size: int, shuffle: bool = False
    ) -> DataLoader[WindowBatch]:
        trainer = self.trainer
        sampler = BatchSampler(
            len(windows),
            batch_size,
            shuffle=shuffle,
            seed=self.config.seed,
            rank=trainer.global_rank if trainer else 0,
            world_size=trainer.world_size if trainer else 1,
        )
        # Items are batches already, and a gather is faster than passing it between processes.
        return DataLoader(windows, sampler=sampler, batch_size=None)
