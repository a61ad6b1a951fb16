"""No import cycles between the package's modules; imports in functions and for type checkers count."""

from __future__ import annotations

from helpers.source_files import MODULES, imported_modules, place_of_import


def cycles(graph: dict[str, set[str]]) -> set[str]:
    """Return the modules that reach themselves."""
    reachable = {name: set(targets) for name, targets in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reachable[name]:
                reachable[name] |= reachable[middle]
    return {name for name in graph if name in reachable[name]}


def message_of(graph: dict[str, set[str]]) -> str:
    """Return the imports of all cycles with their lines, and the remedy; an empty text without cycles."""
    members = cycles(graph)
    imports = [
        f"{place_of_import(MODULES[name], target)} imports {target}"
        for name in sorted(members)
        for target in sorted(graph[name] & members)
    ]
    remedy = "these imports form a cycle: move code that two of them need to a module that imports neither"
    return "\n".join([remedy, *imports]) if members else ""


def test_no_import_cycle() -> None:
    graph = {name: imported_modules(path) for name, path in MODULES.items()}
    # The package loads its public names lazily; everything below it may use them.
    graph["zerocopy"] = set()
    assert not (message := message_of(graph)), message
