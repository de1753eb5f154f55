"""How good forecasts are: the test of a fit, backtests, scores and comparisons."""
