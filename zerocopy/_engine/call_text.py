"""Calls as text: arguments as code, imports that code needs, and calls that name a leaf of a container."""

from __future__ import annotations

import io
import math
import re
import tokenize
from collections.abc import Callable, Hashable
from importlib.machinery import PathFinder
from itertools import accumulate
from typing import Any

from zerocopy import registry
from zerocopy.errors import ZeroCopyError
from zerocopy.request import MatrixOrder

#: The maximum number of items of a list or a dict that is written as a literal.
MAX_ITEMS = 12


def rewrite(error: ZeroCopyError, rewritten: Callable[[str], str]) -> None:
    """Replace each call of an error, in its remedy too."""
    calls = {code: rewritten(code) for code in error.calls}
    for code, new in calls.items():
        error.with_context(remedy=error.remedy.replace(code, new))
    error.calls = tuple(calls.values())


def arguments(options: dict[str, object]) -> str:
    """Return options as the last arguments of a call."""
    return "".join(f", {name}={as_code(name, value)}" for name, value in options.items())


def relocate(error: ZeroCopyError, before: str, after: str) -> None:
    """Rewrite the calls in a leaf's error to name the leaf: `before` and `after` enclose the container ``x``.

    A fix by options alone is for the whole container, so it is not rewritten.
    """

    def moved(code: str) -> str:
        if re.search(r"(^|; )zc\.convert\(x, ", code):
            return code.replace('dtype="bool8"', 'dtype={"bool": "bool8"}')  # other leaves are numbers
        return renamed(code, f"{before}x{after}")

    rewrite(error, moved)


def renamed(code: str, place: str) -> str:
    """Return code with an expression in place of the name ``x``."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    columns = [t.start[1] for t in tokens if t.type == tokenize.NAME and t.string == "x"]
    for column in reversed(columns):
        code = f"{code[:column]}{place}{code[column + 1 :]}"
    return code


def items_of_dict(keys: list[Hashable]) -> str:
    """Return the template of a dict with some items of ``{x}``; empty if a key has no literal."""
    literal = as_code("", keys)
    return "" if {*"{}"} & {*literal} or not literal else f"{{{{key: {{x}}[key] for key in {literal}}}}}"


def with_imports(code: str) -> str:
    """Return code that first imports the modules of frameworks that it names."""
    modules: dict[str, None] = {}
    for name in re.findall(r"(?<![\w.'\"])[a-z]\w*(?:\.\w+)+", code):
        root, *inner = name.split(".")
        if registry.find(root) is None:
            continue
        modules[root] = None
        for end in range(1, len(inner)):  # jax.experimental.sparse is a module, jax.config is not
            module = ".".join([root, *inner[:end]])
            if _is_module(module):
                modules[module] = None
    shortest = [name for name in modules if not any(other.startswith(f"{name}.") for other in modules)]
    return "; ".join([*(f"import {name}" for name in shortest), code])


def _is_module(name: str) -> bool:
    """Whether a module exists, without an import: `importlib.util.find_spec` imports its parents."""
    path = None
    for end in accumulate(name.split("."), "{}.{}".format):
        spec = PathFinder.find_spec(end, path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True


def as_code(name: str, value: Any) -> str:
    """Return an argument as code: a literal if it has one, else the name of the option or its item."""
    if isinstance(value, MatrixOrder):
        return f'"matrix", order="{value.value}"'
    if type(value) is str and not {*value} & {*"'\"\\"} and value.isprintable():
        return f'"{value}"'
    if type(value) in (list, tuple) and len(value) <= MAX_ITEMS:
        inner = [as_code("", item) for item in value]
        brackets = "[{}]" if type(value) is list else "({},)" if len(inner) == 1 else "({})"
        return brackets.format(", ".join(inner)) if all(inner) else name
    if value is None or type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value)):
        return repr(value)
    if type(value) is dict and len(value) <= MAX_ITEMS:
        pairs = [(k := as_code("", key), as_code(name and f"{name}[{k}]", v)) for key, v in value.items()]
        return (
            "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}" if all(k and v for k, v in pairs) else name
        )
    return name
