"""No import cycles between the package's modules; imports in functions and for type checkers count."""

from __future__ import annotations

from helpers.source_files import MODULES, imported_modules


def cycles(graph: dict[str, set[str]]) -> set[str]:
    """Return the modules that reach themselves."""
    reachable = {name: set(targets) for name, targets in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reachable[name]:
                reachable[name] |= reachable[middle]
    return {name for name in graph if name in reachable[name]}


def test_no_import_cycle() -> None:
    graph = {name: imported_modules(path) for name, path in MODULES.items()}
    # The package loads its public names lazily; everything below it may use them.
    graph["zerocopy"] = set()
    assert cycles(graph) == set()


def test_the_check_reports_only_modules_in_a_cycle() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {"a", "b", "c"}
