"""Forecasts that a model has to beat."""
