"""The package's source files and their imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from helpers.paths import ROOT

PACKAGE = ROOT / "zerocopy"
FILES = sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    """Return the path below ``zerocopy/``: a readable name for a test's parameter."""
    return path.relative_to(PACKAGE).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def dotted_name(path: Path) -> str:
    """Return a module's dotted name: ``zerocopy.pool`` for ``zerocopy/pool/__init__.py``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


#: Each module's file by its dotted name.
MODULES = {dotted_name(path): path for path in FILES}


def type_checking_nodes(tree: ast.Module) -> set[ast.AST]:
    """Return the nodes that run for type checkers only."""
    guards = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)]
    return {node for guard in guards for statement in guard.body for node in ast.walk(statement)}


def imported_names(path: Path, *, at_import: bool = False, for_types: bool = True) -> set[str]:
    """Return all names that a file imports, each module with and without the imported attribute.

    Parameters
    ----------
    at_import : bool
        Only imports that run when the file itself is imported: none in functions.
    for_types : bool
        Include imports under ``TYPE_CHECKING``.
    """
    tree = parse(path)
    skipped: set[ast.AST] = set() if for_types else type_checking_nodes(tree)
    if at_import:
        functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
        skipped |= {node for function in functions for node in ast.walk(function)}
    return {name for names in _imports(tree, skipped) for name in names}


def imported_modules(path: Path, *, for_types: bool = True) -> set[str]:
    """Return the package's own modules that a file imports, in functions too.

    ``from zerocopy import registry`` imports ``zerocopy.registry``, not ``zerocopy``.
    """
    tree = parse(path)
    skipped: set[ast.AST] = set() if for_types else type_checking_nodes(tree)
    modules = {names[0] if names[0] in MODULES else names[-1] for names in _imports(tree, skipped)}
    own = dotted_name(path) if path.is_relative_to(ROOT) else ""
    return (modules & MODULES.keys()) - {own}


def place_of_import(path: Path, module: str) -> str:
    """Return ``file:line`` of the first import of a module, or of a name of it, by a file."""
    lines = [
        node.lineno
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(module in names for names in _imports(ast.Module([node], []), set()))
    ]
    file = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{file}:{min(lines)}"


def _imports(tree: ast.Module, skipped: set[ast.AST]) -> Iterator[tuple[str, ...]]:
    """Yield each imported module, or the dotted imported name and then its module."""
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((f"{node.module}.{alias.name}", node.module) for alias in node.names)


def string_constants(tree: ast.Module) -> set[str]:
    """Return all strings of a file except docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, documented)
    }
    constants = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    return {value for value in constants - docstrings if isinstance(value, str)}
