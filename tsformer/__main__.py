"""The command line: `tsformer fit dataset=electricity`, or `python -m tsformer fit ...`."""

import sys
from importlib import import_module

from tsformer import __version__
from tsformer.commands import COMMANDS


def main() -> None:
    """Run the command that the arguments of this process name."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name in COMMANDS:
        # What stands before the arguments is how usage is told.
        sys.argv[:2] = [f"tsformer {name}"]
        import_module(f"tsformer.commands.{name}").run()
    elif name in ("-V", "--version"):
        print(f"tsformer {__version__}")
    elif name in ("-h", "--help"):
        print(_usage())
    else:
        print(f"error: there is no command {name!r}\n\n{_usage()}", file=sys.stderr)
        sys.exit(2)


def _usage() -> str:
    lines = [f"  {name:11} {what}" for name, what in COMMANDS.items()]
    return "\n".join(
        [
            "usage: tsformer COMMAND [KEY=VALUE ...]",
            "",
            *lines,
            "",
            "tsformer COMMAND --help lists the settings; tsformer --version prints the version.",
            "--config-dir DIR adds a folder of your own configs, such as DIR/dataset/mine.yaml.",
        ]
    )


if __name__ == "__main__":
    main()
