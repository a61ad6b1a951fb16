"""The script of a finding: the source of a case and of what it uses, in an order that runs."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache

from zerocopy.testing.cases import Case, made

#: Names that scripts import: the reader of Arrow's types is too long for them.
READERS = ("check_array", "read_schema", "read_struct")
#: For a target that is a function: its script cannot import it.
PLACEHOLDER = 'target = ...  # your own; it needs no edit if the target is a text, "mylib:make_array"'


def script_of(case: Case, target: str) -> str:
    """Return a program that runs a case; `target` is an import string, or another text for a placeholder."""
    imports: dict[str, None] = {}
    parts: dict[tuple[str, str], str] = {}
    run, argument = case.run.func, f"made(target, {case.protocol!r})" if case.takes_object else "target"
    _collect(run.__module__, run.__name__, imports, parts)
    if case.takes_object:
        _collect(made.__module__, made.__name__, imports, parts)
    call = f"{run.__name__}({', '.join([*map(repr, case.run.args), argument])})"
    module, _, attribute = target.partition(":")
    get = f"import {module}\n\ntarget = {module}.{attribute}" if attribute else PLACEHOLDER
    lines = [f"# {case.clause}", "from __future__ import annotations", "", *imports, get]
    return "\n".join([*lines, *(f"\n{text}" for text in parts.values() if text), "", call, ""])


@cache
def _definitions(module: str) -> tuple[list[str], dict[str, list[ast.stmt]]]:
    """Return a module's lines, and the statements at its top level that define or change each name."""
    source = inspect.getsource(sys.modules[module])
    defined: dict[str, list[ast.stmt]] = {}
    for node in ast.parse(source).body:
        names = []
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [each.asname or each.name for each in node.names]
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for part in targets for each in ast.walk(part) if isinstance(each, ast.Name)]
        for name in names:
            defined.setdefault(name, []).append(node)
    return source.splitlines(), defined


def _collect(module: str, name: str, imports: dict[str, None], parts: dict[tuple[str, str], str]) -> None:
    """Add the source of a name after the source of the names that it uses."""
    lines, defined = _definitions(module)
    if (module, name) in parts:
        return
    parts[module, name] = ""
    texts = []
    for node in defined.get(name, ()):
        own = isinstance(node, ast.ImportFrom) and str(node.module).startswith("zerocopy")
        if isinstance(node, ast.ImportFrom) and own and name not in READERS:
            _collect(str(node.module), name, imports, parts)
        elif isinstance(node, ast.ImportFrom):
            imports[f"from {node.module} import {name}"] = None
        elif isinstance(node, ast.Import):
            imports[ast.unparse(node)] = None
        else:
            # Annotations do not run, and a case has no decorator but its registration.
            run = [*node.args.defaults, *node.body] if isinstance(node, ast.FunctionDef) else [node]
            for each in (part for top in run for part in ast.walk(top)):
                if isinstance(each, ast.Name):
                    _collect(module, each.id, imports, parts)
            texts.append("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    parts[module, name] = parts.pop((module, name)) or "\n".join(texts)
