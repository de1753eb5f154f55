"""Go on training a model: `python scripts/fine_tune.py model=runs/.../model input=my.csv`."""

from tsformer.commands.fine_tune import run

if __name__ == "__main__":
    run()
