"""What tsformer is measured by: `python scripts/benchmark.py`, or `tsformer benchmark`."""
