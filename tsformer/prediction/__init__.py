"""From tables to forecasts, with a fitted model."""
