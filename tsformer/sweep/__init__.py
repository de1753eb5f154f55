"""Sweeps over settings of a fit: grids, and searches by Optuna."""
