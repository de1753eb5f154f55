"""A fitted model: what it is, and the folder that it is saved in."""
