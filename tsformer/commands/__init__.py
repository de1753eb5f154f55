"""The commands: `tsformer fit`, which `python scripts/fit.py` runs as well, and so on."""
