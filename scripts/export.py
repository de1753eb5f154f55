"""Write a model as one file: `python scripts/export.py model=runs/.../model output=my.onnx`."""

from tsformer.commands.export import run

if __name__ == "__main__":
    run()
