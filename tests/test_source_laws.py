"""Laws on the source of ``zerocopy/``: sizes, handled exceptions, codes of reasons, lists that must agree."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from helpers.paths import ROOT
from helpers.source_files import FILES, PACKAGE, dotted_name, parse, relative

from zerocopy import registry
from zerocopy.request import ConvertOptions, Request

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def lines_of(function: Function) -> int:
    """Return a function's length in lines without its docstring."""
    count = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        count -= docstring.end_lineno - docstring.lineno + 1
    return count


def is_reason_without_code(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "id", getattr(node.func, "attr", None))
    return name == "Reason" and not any(keyword.arg in ("code", None) for keyword in node.keywords)


def test_no_file_is_longer_than_500_lines() -> None:
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = {name: length for name, length in lengths.items() if length > 500}
    assert not long, "move one idea of each file into a file of its own"


def test_no_function_is_longer_than_60_lines() -> None:
    long = {
        f"{relative(path)}:{function.lineno}": (function.name, lines_of(function))
        for path in FILES
        for function in functions(parse(path))
        if lines_of(function) > 60
    }
    assert not long, "move one step of each function into a function of its own"


def test_the_top_of_the_package_has_at_most_15_modules() -> None:
    modules = sorted(path.name for path in PACKAGE.glob("*.py"))
    assert len(modules) <= 15, f"move a module into the folder of its part: {modules}"


def test_no_module_is_called_utils() -> None:
    names = {"util", "utils", "helpers", "common", "misc"}
    vague = [relative(path) for path in FILES if path.stem in names]
    assert not vague, "name each module after its idea"


def untyped_attributes(cls: ast.ClassDef) -> set[str]:
    """Return the public attributes whose only assignments are of several values at once."""
    nodes = list(ast.walk(cls))
    typed = {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AnnAssign)}
    targets = [target for node in nodes if isinstance(node, ast.Assign) for target in node.targets]
    parts = [ast.unparse(part) for target in targets if isinstance(target, ast.Tuple) for part in target.elts]
    names = {part.removeprefix("self.") for part in parts if re.match(r"self\.[a-z]\w*$", part)}
    return names - typed - {name.removeprefix("self.") for name in typed}


def test_public_attributes_have_a_known_type() -> None:
    """pyright does not know the type of ``a`` in ``self.a, self.b = ...``: annotate or assign it alone."""
    public = [path for path in FILES if not re.search(r"\b_[a-z]+/", relative(path))]
    untyped = {
        f"{relative(path)}:{node.lineno}": names
        for path in public
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef)
        if not node.name.startswith("_") and (names := untyped_attributes(node))
    }
    assert not untyped, "annotate each attribute, or assign it in a statement of its own"


def test_finalizers_hold_the_function_that_finds_the_end_of_the_interpreter() -> None:
    """At exit the interpreter can clear a module's ``sys`` before it frees the module's objects."""
    reading = [relative(path) for path in FILES if "sys.is_finalizing()" in path.read_text("utf-8")]
    assert not reading, "is_exiting: Callable[[], bool] = sys.is_finalizing"


def test_no_file_makes_executable_memory() -> None:
    """Native code is C that a compiler builds, not machine code written by hand."""
    names = ("PROT_EXEC", "mprotect")
    # monitor/writes.py makes memory of `zc.share` read-only, and writable again.
    hits = [
        relative(path)
        for path in FILES
        for name in names[: 1 if relative(path) == "monitor/writes.py" else 2]
        if name in path.read_text("utf-8")
    ]
    assert not hits, f"write the code in C under zerocopy/_native, without {' and '.join(names)}"


def test_every_reason_has_a_code() -> None:
    without = [
        f"{relative(path)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(parse(path))
        if is_reason_without_code(node)
    ]
    assert not without, "pass code= to Reason, and describe the code in zerocopy/errors/codes.py"


def swallows(node: ast.AST) -> bool:
    """Whether a node is a handler of all exceptions that does nothing."""
    if not isinstance(node, ast.ExceptHandler):
        return False
    broad = node.type is None or "Exception" in ast.dump(node.type)
    return broad and all(isinstance(statement, (ast.Pass, ast.Continue)) for statement in node.body)


def test_no_exception_is_swallowed() -> None:
    lines = [f"{relative(p)}:{node.lineno}" for p in FILES for node in ast.walk(parse(p)) if swallows(node)]
    assert not lines, "handle the exception, raise it, or catch only the class that the code expects"


#: Functions that may read a global twice: under a lock, at import, to compare the two values, or to get a
#: newer one.
READ_TWICE = {
    ("_native/__init__.py", "_load"),
    ("registry.py", "by_type"),
    ("shared/broker.py", "start_broker"),
}


class Names:
    """Full names of the globals in a module: its own, and those of modules and classes that it imports."""

    def __init__(self, tree: ast.Module, module: str) -> None:
        self.known: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.known |= {each.asname: each.name for each in node.names if each.asname}
            elif isinstance(node, ast.ImportFrom):
                self.known |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        for node in tree.body:
            own = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign | ast.AnnAssign) and "local()" not in ast.unparse(node):
                own = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
            self.known = {name: f"{module}.{name}" for name in own} | self.known

    def of(self, node: ast.AST, context: type[ast.expr_context]) -> str:
        """Return the full name of a global, or of its attribute; an empty text for other expressions."""
        if not isinstance(getattr(node, "ctx", None), context):
            return ""
        rest = ""
        while isinstance(node, ast.Attribute):
            node, rest = node.value, f".{node.attr}{rest}"
        return self.known[node.id] + rest if isinstance(node, ast.Name) and node.id in self.known else ""


def assigned_globals(tree: ast.Module, module: str) -> set[str]:
    """Return the globals that functions of a module assign: names, attributes of modules and classes."""
    names, assigned = Names(tree, module), set()
    for function in functions(tree):
        for node in ast.walk(function):
            if isinstance(node, ast.Global):
                assigned |= {f"{module}.{name}" for name in node.names}
            elif isinstance(node, ast.Attribute):
                assigned.add(names.of(node, ast.Store))
    return assigned - {""}


def globals_read_twice(tree: ast.Module, module: str, assigned: set[str]) -> set[tuple[str, str]]:
    """Return the functions that read one of the `assigned` globals twice, and the global."""
    names, twice = Names(tree, module), set()
    for function in functions(tree):
        loads = [names.of(node, ast.Load) for node in ast.walk(function)]
        twice |= {(function.name, name) for name in assigned.intersection(loads) if loads.count(name) > 1}
    return twice


def test_globals_that_threads_assign_are_read_once() -> None:
    assigned = set().union(*(assigned_globals(parse(path), dotted_name(path)) for path in FILES))
    twice = [
        (relative(path), function, name)
        for path in FILES
        for function, name in globals_read_twice(parse(path), dotted_name(path), assigned)
        if (relative(path), function) not in READ_TWICE
    ]
    assert not twice, (
        "read the global once into a local variable: another thread assigns it between two reads"
    )


def kept_errors(node: ast.AST, allowed: frozenset[str] = frozenset()) -> Iterator[int]:
    """Yield the lines that raise a variable which stays set: its traceback and the frame hold each other."""
    if isinstance(node, ast.ExceptHandler) and node.name:
        allowed |= {node.name}  # Python deletes it
    raises = isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) and node.exc.id.islower()
    if raises and node.exc.id not in allowed:
        yield node.lineno
    inner = allowed
    if isinstance(node, ast.Try):
        deleted = [each for part in node.finalbody for each in ast.walk(part) if isinstance(each, ast.Delete)]
        inner = allowed.union(ast.unparse(name) for each in deleted for name in each.targets)
    for child in ast.iter_child_nodes(node):
        yield from kept_errors(child, inner)


def test_no_variable_holds_a_raised_error() -> None:
    lines = [f"{relative(path)}:{line}" for path in FILES for line in kept_errors(parse(path))]
    assert not lines, "delete the variable in a `finally` block: its traceback holds the frame that holds it"


def test_a_request_has_each_option() -> None:
    own = {"target", "cast", "for_explain", "is_trial", "drop", "of_tables"}  # `cast` is dtype=
    apart = {"dtype", "leaves", "out", "order"}  # for containers, for one array, and a part of layout=
    fields_of_request = {field.name for field in fields(Request)} - own
    assert fields_of_request == ConvertOptions.__annotations__.keys() - apart, (
        "add the option to ConvertOptions and to Request in zerocopy/request.py"
    )


# -- zerocopy/_frameworks/versions.toml agrees with the other places that name versions -------------


def versions() -> dict[str, Any]:
    return tomllib.loads((PACKAGE / "_frameworks" / "versions.toml").read_text(encoding="utf-8"))


def test_the_table_of_versions_has_each_framework_with_its_oldest_version() -> None:
    table = versions()["frameworks"]
    built_in = [each for each in registry.known() if each.__module__.startswith("zerocopy._frameworks.")]
    assert list(table) == sorted(each.name for each in built_in)
    own = {name: registry.by_name(name).min_version for name in table}
    differences = {name: oldest for name, oldest in own.items() if oldest and oldest != table[name]["oldest"]}
    assert not differences, "change versions.toml with Framework.min_version, then run python docs/support.py"


def test_pyproject_has_the_oldest_versions_of_the_table() -> None:
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    table = versions()
    names = {registry.by_name(name).distribution: name for name in table["frameworks"]}
    names |= {"tensorflow-cpu": "tensorflow", "numba": "numba", "cupy-cuda12x": "cupy"}
    parts = {
        "": project["dependencies"],
        **project["optional-dependencies"],
        **pyproject["dependency-groups"],
    }
    wrong = []
    for extra, lines in parts.items():
        for line in [line for line in lines if isinstance(line, str)]:  # a group may include another
            match = re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)", line)
            if match is None or match[1] not in names:
                continue
            row = table["frameworks"][names[match[1]]]
            if match[2] != row.get("extras", {}).get(extra, row.get("oldest")):
                wrong.append(f"{extra}: {line}")
    assert not wrong, "pyproject.toml and versions.toml have other oldest versions"
    assert project["requires-python"] == f">={next(iter(table['pythons']))}"


#: A comparison of a version, of Python in C and in Python, or of a package.
GUARD = re.compile(
    r"version_numbers\(|NumpyVersion\(|version(__|\(\))\.(startswith|partition)|sys\.version_info|PY_VERSION_HEX|PyArray_RUNTIME_VERSION"
)


def test_the_table_of_versions_has_each_guard() -> None:
    guards = {guard["file"] for guard in versions()["guards"]}
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.c"), *PACKAGE.rglob("*.h")]
    checks = {relative(path) for path in files if GUARD.search(path.read_text(encoding="utf-8"))}
    # They compare any framework's version with its oldest.
    checks -= {"framework.py", "cli/limits.py", "cli/support.py"}
    checks.remove("_frameworks/_private.py")  # docs/version-guards.md lists its uses
    assert guards == checks, "list each guard in versions.toml, then run python docs/support.py"


def test_the_lines_of_planted_faults_exist() -> None:
    faults = json.loads((ROOT / "tests" / "faults" / "faults.json").read_text(encoding="utf-8"))
    stale = [
        f"{each['file']}:{each['line']}"
        for each in faults
        if not (path := ROOT / each["file"]).exists()
        or each["old"] not in path.read_text("utf-8").split("\n")
    ]
    assert not stale, "name the present line in tests/faults/faults.json, or another fault"
