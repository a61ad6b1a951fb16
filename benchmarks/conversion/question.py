"""A question of the section ``core``: one conversion, and the statements that do it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import zerocopy as zc
from benchmarks.conversion.goals import PURE
from benchmarks.timing import Loop, Statement
from zerocopy._engine import routes
from zerocopy._engine.convert import convert_slowly

Names = Mapping[str, Any]
Make = Callable[[], Any]


@dataclass(frozen=True)
class Fresh(Statement):
    """A line of code that gets a new object in each call, as ``_``, made while the clock does not run."""

    make: Make = object

    def loop(self) -> Loop:
        """Return a loop over new objects."""
        inner = super().loop()
        make = self.make

        def loop(calls: Any, clock: Callable[[], int]) -> int:
            return inner([make() for _ in calls], clock)

        return loop


@dataclass(frozen=True)
class Method:
    """A statement that answers a question.

    Attributes
    ----------
    code, role, note : str
        As of an entry of a case.
    statement : Statement
    checked : bool
        Whether its result must be that of the question; False for a reference with another source.
    """

    code: str
    role: str
    statement: Statement
    note: str = ""
    checked: bool = True


@dataclass(frozen=True)
class Question:
    """One conversion.

    Attributes
    ----------
    name : str
        The case.
    methods : list of Method
    wrong : callable
        ``wrong(result)`` returns why a result is wrong, or nothing.
    pieces : int
        The leaves or columns of a container or table.
    """

    name: str
    methods: list[Method]
    wrong: Callable[[Any], str]
    pieces: int = 0


def method(code: str, role: str, names: Names, note: str = "", make: Make | None = None) -> Method:
    """Return a method; with `make`, ``x`` is a new object in each call."""
    if make is None:
        return Method(code, role, Statement(code, names), note)
    fresh = {**names, "_": names["x"]}  # the check uses x
    return Method(code, role, Fresh(re.sub(r"\bx\b", "_", code), fresh, make), note)


def ours(code: str, names: Names, make: Make | None = None) -> list[Method]:
    """Return the call of zerocopy and, for an array without options, that without the core as a reference."""
    names = {**names, "zc": zc}
    methods = [method(code, "ours", names, "", make)]
    call = re.fullmatch(r'zc\.convert\(x, "(\w+)"\)', code)
    convert_in_python = in_python(names["x"], call[1]) if call else None
    if convert_in_python is not None:
        names["convert_in_python"] = convert_in_python
        pure = code.replace("zc.convert(", "convert_in_python(")
        methods.append(method(pure, "reference", names, PURE, make))
    return methods


def in_python(x: Any, to: str) -> Callable[..., Any] | None:
    """Return the fast path of `convert` without the compiled core; None for tables and containers."""
    parts = routes.find_parts(x, to, {})
    if parts is None or "columns" in parts.exporters:
        return None
    table = {to: {type(x): routes.compose_route(parts, to, {}, None, routes.by_kept_route)}}

    def convert_in_python(obj: Any, to: Any, **options: Any) -> Any:
        if options:
            return convert_slowly(obj, to, options)
        try:
            return table[to][type(obj)](obj)
        except Exception:  # noqa: BLE001 - the route cannot take the object, or there is none
            return convert_slowly(obj, to, options)

    return convert_in_python
