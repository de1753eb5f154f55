"""The commands: `tsformer fit`, which `python scripts/fit.py` runs as well, and so on."""

# What the arguments of a process may begin with, and what each is for.
COMMANDS = {
    "check": "look through a table as a fit would take it",
    "fit": "train, test, draw and save a forecaster, or search for the best settings with -m",
    "fine_tune": "go on training a model with a table of one's own",
    "evaluate": "test a model on a table's past, beside other methods",
    "forecast": "forecast all series of a table",
    "export": "write the network of a model as one file",
    "benchmark": "measure accuracy, speed and memory against what tsformer has to beat",
    "completion": "print the script by which bash, zsh or fish complete commands and settings",
    "info": "tell versions and devices",
}
