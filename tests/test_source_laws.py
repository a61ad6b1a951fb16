"""Laws on the source of ``zerocopy/``: sizes, handled exceptions, codes of reasons, lists that must agree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from helpers.source_files import FILES, PACKAGE, parse, relative

from zerocopy._engine import options
from zerocopy.tables.options import Options

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
    assert not {name: length for name, length in lengths.items() if length > 500}


def test_no_function_is_longer_than_60_lines() -> None:
    long = {
        (relative(path), function.name)
        for path in FILES
        for function in functions(parse(path))
        if lines_of(function) > 60
    }
    assert not long


def test_the_top_of_the_package_has_at_most_13_modules() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 13


def test_no_module_is_called_utils() -> None:
    assert not {path.stem for path in FILES} & {"util", "utils", "helpers", "common", "misc"}


def test_no_file_makes_executable_memory() -> None:
    """Native code is C that a compiler builds, not machine code written by hand."""
    names = ("PROT_EXEC", "mprotect")
    assert not [relative(path) for path in FILES if any(name in path.read_text("utf-8") for name in names)]


def test_every_reason_has_a_code() -> None:
    without = {relative(path) for path in FILES if any(map(is_reason_without_code, ast.walk(parse(path))))}
    assert not without


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_exception_is_swallowed(path: Path) -> None:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.ExceptHandler):
            broad = node.type is None or "Exception" in ast.dump(node.type)
            silent = all(isinstance(statement, (ast.Pass, ast.Continue)) for statement in node.body)
            assert not (broad and silent), f"{path.name}:{node.lineno}"


#: Packages and modules whose code calls exporters and importers.
CONVERSIONS = {"_engine", "_frameworks", "protocols", "tables", "casting", "compound", "functions", "frames"}
CONVERSIONS |= {"describe.py", "framework.py"}
BROAD = {"Exception", "BaseException", "OSError", "RuntimeError"}
#: A function in a thread of zerocopy, where no signal handler runs.
IN_A_THREAD = "_layout_in_this_thread"


#: Folders whose handlers of these two classes are followed by a fallback, or by one of zerocopy's errors.
NARROW = ("_frameworks/pandas/", "_frameworks/pyarrow/", "_frameworks/polars/", "protocols/")


def handlers_of_outside_exceptions(tree: ast.Module, classes: set[str] = BROAD) -> set[int]:
    """Return the lines of handlers that catch exceptions of signal handlers and do not let them pass."""
    lines = set()
    for function in functions(tree):
        for node in ast.walk(function):
            if not isinstance(node, ast.ExceptHandler) or function.name == IN_A_THREAD:
                continue
            caught = {getattr(part, "id", "") for part in ast.walk(node.type)} if node.type else BROAD
            passes = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
            # `Call.translated_errors` asks; `throw` passes the exception on to a generator.
            asks = {"is_error", "translated_errors", "throw", "athrow"} & {
                getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)
            }
            if caught & classes and not passes and not asks:
                lines.add(node.lineno)
    return lines


@pytest.mark.parametrize(
    "path", [path for path in FILES if Path(relative(path)).parts[0] in CONVERSIONS], ids=relative
)
def test_exceptions_from_outside_pass(path: Path) -> None:
    """`is_error` tells an error of an exporter from an exception of a signal handler."""
    narrow = {"ValueError", "TypeError"} if relative(path).startswith(NARROW) else set()
    assert not handlers_of_outside_exceptions(parse(path), BROAD | narrow)


def test_the_check_of_handlers_recognises_them() -> None:
    source = """
def f():
    try: ...
    except OSError: return None
    try: ...
    except (KeyError, pa.Error, RuntimeError) as error: raise Other from error
    try: ...
    except Exception as error:
        if not is_error(error): raise
    try: ...
    except BaseException:
        free()
        raise
    try: ...
    except KeyError: ...
"""
    assert handlers_of_outside_exceptions(ast.parse(source)) == {4, 6}


#: Functions that may read a global twice: under a lock, and while the package is imported.
READ_TWICE = {("shared/broker.py", "start_broker"), ("_native/__init__.py", "_load")}


def globals_read_twice(tree: ast.Module) -> set[tuple[str, str]]:
    """Return the functions that read a global twice, and the global, which other functions assign."""
    assigned = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
    twice = set()
    for function in functions(tree):
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        loads = [node.id for node in names if isinstance(node.ctx, ast.Load)]
        twice |= {(function.name, name) for name in assigned if loads.count(name) > 1}
    return twice


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_globals_that_threads_assign_are_read_once(path: Path) -> None:
    twice = {function for function, _ in globals_read_twice(parse(path))}
    assert not {function for function in twice if (relative(path), function) not in READ_TWICE}


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


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_no_variable_holds_a_raised_error(path: Path) -> None:
    assert not list(kept_errors(parse(path)))


def test_the_check_for_kept_errors_recognises_them() -> None:
    source = """
def f(error):
    try:
        raise error
    except KeyError as other:
        raise other
    try:
        raise error
    finally:
        del error
"""
    assert list(kept_errors(ast.parse(source))) == [4]


def test_the_engine_lists_the_table_options_that_tables_parse() -> None:
    assert tuple(field.name for field in fields(Options)) == options.TABLE_NAMES


def test_the_check_for_codes_recognises_calls() -> None:
    source = "a = Reason('x')\nb = errors.Reason('x')\nc = Reason('x', code='y')\nd = Reason(**parts)\n"
    hits = [node.lineno for node in ast.walk(ast.parse(source)) if is_reason_without_code(node)]
    assert sorted(hits) == [1, 2]
