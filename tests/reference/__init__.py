"""Oracles in NumPy, written from the papers and independent of tsformer."""
