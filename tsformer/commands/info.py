"""Tell what is installed here: `tsformer info`."""

import platform
import re
from importlib.metadata import PackageNotFoundError, requires, version

from tsformer import __version__


def run() -> None:
    """Print versions and devices."""
    import torch

    print(f"tsformer {__version__}, Python {platform.python_version()}, {platform.platform()}")
    for name in _packages():
        try:
            print(f"  {name} {version(name)}")
        except PackageNotFoundError:
            print(f"  {name}: not installed")
    print(f"  {torch.get_num_threads()} threads")
    for number in range(torch.cuda.device_count()):
        print(f"  cuda:{number} {torch.cuda.get_device_name(number)}")
    if torch.backends.mps.is_available():
        print("  mps")


def _packages() -> list[str]:
    """Return the names of what tsformer needs, without extras."""
    needed = (text for text in requires("tsformer") or () if "extra ==" not in text)
    return sorted(re.split(r"[^\w.-]", text)[0] for text in needed)
