"""Forecasting any number of series, part by part, in bounded memory."""
