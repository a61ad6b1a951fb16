"""No import cycles between the package's modules; imports in functions and for type checkers count."""

from __future__ import annotations

from pathlib import Path

import pytest
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


def test_the_message_names_the_imports_of_the_cycle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        (tmp_path / f"{name}.py").write_text(
            f"def f():\n    from zerocopy.{other} import g\n", encoding="utf-8"
        )
        monkeypatch.setitem(MODULES, f"zerocopy.{name}", tmp_path / f"{name}.py")
    names = ("zerocopy.one", "zerocopy.two")
    message = message_of({name: imported_modules(MODULES[name]) for name in names})
    assert "move code that two of them need" in message
    for name, other in (("one", "two"), ("two", "one")):
        assert f"{tmp_path / name}.py:2 imports zerocopy.{other}" in message


def test_the_check_reports_only_modules_in_a_cycle() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {"a", "b", "c"}
