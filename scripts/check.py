"""Tell what a fit would make of a table: `python scripts/check.py dataset=custom ...`."""

from tsformer.commands.check import run

if __name__ == "__main__":
    run()
