"""The commands: `tsformer fit`, which `python scripts/fit.py` runs as well, and so on."""

# What the arguments of a process may begin with, and what each is for.
COMMANDS = {
    "check": "check whether a fit would accept a table",
    "fit": "train, test, draw and save a forecaster, or search for the best settings with -m",
    "fine_tune": "continue training a model on your own table",
    "evaluate": "backtest a model, and compare it with other methods",
    "forecast": "forecast all series of a table",
    "export": "write the network of a model as one file",
    "benchmark": "measure accuracy, speed and memory against what tsformer has to beat",
    "completion": "print the script by which bash, zsh or fish complete commands and settings",
    "info": "print versions and devices",
}
