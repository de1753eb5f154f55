"""The structure of the package: imports run downward, also those inside of functions."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "tsformer"
MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
}


def imports_of(module: str) -> set[str]:
    """Return the modules of the package that a module imports when it runs."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    found = set()
    for node in without_types(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def without_types(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those under `if TYPE_CHECKING`, which are never run."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from without_types(child)


def test_no_imports_run_in_a_circle() -> None:
    TopologicalSorter({module: imports_of(module) for module in MODULES}).prepare()


def test_no_packages_know_each_other() -> None:
    used: dict[str, set[str]] = {}
    for module in MODULES:
        others = {top(name) for name in imports_of(module)} - {top(module), "tsformer"}
        used.setdefault(top(module), set()).update(others)
    TopologicalSorter(used).prepare()


def top(module: str) -> str:
    """Return the package, or the module, right below `tsformer`."""
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize(
    ("package", "below"),
    [
        ("nn", set()),
        ("data", {"config", "errors", "places", "settings"}),
        ("baselines", {"arguments", "config", "data", "errors", "metrics"}),
    ],
)
def test_packages_know_only_what_lies_below(package: str, below: set[str]) -> None:
    modules = [module for module in MODULES if module.split(".")[1:2] == [package]]
    used = {name.split(".")[1] for module in modules for name in imports_of(module)}
    assert used - {package} <= below
