"""The errors a user can cause and mend; each message says what is wrong, where, and what to do."""


class TsformerError(Exception):
    """Base of every error that the user, not the library, has to mend."""


class ConfigError(TsformerError):
    """A setting is unknown, of the wrong type, or does not fit the others."""


class DataError(TsformerError):
    """A file or a frame cannot be read as a table of series."""


class ModelFolderError(TsformerError):
    """A model folder is missing, damaged or not one of ours."""


class BatchError(TsformerError):
    """A batch forecast cannot go on: for its output folder, or for one of its processes."""


class TrainingError(TsformerError):
    """A training cannot go on: it diverged, or its checkpoint does not fit."""


class RankError(TsformerError):
    """One of the processes of a training has died."""
