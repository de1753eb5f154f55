"""From tables to batches of windows: validation, scaling, storage, sampling."""
