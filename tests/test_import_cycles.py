"""No import cycles between the package's modules; imports in functions and for type checkers count."""

from __future__ import annotations

import ast
from pathlib import Path

from helpers.paths import ROOT

PACKAGE = ROOT / "zerocopy"


def modules(package: Path) -> dict[str, Path]:
    """Return each module's file by its dotted name."""
    paths = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the package's modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                dotted = f"{node.module}.{alias.name}"
                names.add(dotted if dotted in known else node.module)
    return names & set(known)


def cycles(graph: dict[str, set[str]]) -> set[str]:
    """Return the modules that reach themselves."""
    reachable = {name: set(targets) for name, targets in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reachable[name]:
                reachable[name] |= reachable[middle]
    return {name for name in graph if name in reachable[name]}


def test_no_import_cycle() -> None:
    known = modules(PACKAGE)
    graph = {name: imported(path, known) - {name} for name, path in known.items()}
    # The package loads its public names lazily; everything below it may use them.
    graph["zerocopy"] = set()
    assert cycles(graph) == set()


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {"a", "b", "c"}
