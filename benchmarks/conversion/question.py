"""Questions: one conversion, the statements that do it, and a check of their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.contest import Contest, Method, imported, refusal
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
class Timed:
    """A method with its statement; `checked` is False for a reference with another source."""

    code: str
    role: str
    statement: Statement
    note: str = ""
    checked: bool = True


@dataclass(frozen=True)
class Question:
    """One conversion; ``wrong(result)`` returns why a result is wrong, or nothing.

    `pieces` are the leaves or columns of a container or table.
    """

    name: str
    methods: list[Timed]
    wrong: Callable[[Any], str]
    pieces: int = 0

    def add_to(self, contest: Contest) -> None:
        """Check the methods, and add their case to a contest."""
        case = contest.case(self.name)
        for each in self.methods:
            refused = refusal(partial(self._check, each)) if each.checked else ""
            contest.add(case, each.code, each.role, each.statement, refused, each.note)

    def _check(self, method: Timed) -> str:
        return self.wrong(method.statement.value())


def method(code: str, role: str, names: Names, note: str = "", make: Make | None = None) -> Timed:
    """Return a method; with `make`, ``x`` is a new object in each call."""
    names = imported(code) | dict(names)
    if make is None:
        return Timed(code, role, Statement(code, names), note)
    names["_"] = names["x"]  # the check uses x
    return Timed(code, role, Fresh(re.sub(r"\bx\b", "_", code), names, make), note)


def methods(contenders: Iterable[Method], names: Names, *roles: str, make: Make | None = None) -> list[Timed]:
    """Return the contenders that have one of the roles."""
    return [method(c.code, c.role, names, c.note, make) for c in contenders if not roles or c.role in roles]


def ours(code: str, names: Names, make: Make | None = None) -> list[Timed]:
    """Return the call of zerocopy and, for an array without options, that without the core as a reference."""
    timed = [method(code, "ours", names, "", make)]
    call = re.fullmatch(r'zc\.convert\(x, "(\w+)"\)', code)
    convert_in_python = in_python(names["x"], call[1]) if call else None
    if convert_in_python is not None:
        pure = code.replace("zc.convert(", "convert_in_python(")
        own = {**names, "convert_in_python": convert_in_python}
        timed.append(method(pure, "reference", own, PURE, make))
    return timed


def in_python(x: Any, to: str) -> Callable[..., Any] | None:
    """Return the fast path of `convert` without the compiled core.

    None for tables and containers, and where Python has no route of its own, so that a call without the core
    would be the slow path.
    """
    parts = routes.find_parts(x, to, {})
    if parts is None or "columns" in parts.exporters:
        return None
    route = routes.compose_route(parts, to, {}, None, routes.by_kept_route)
    if route is None:
        return None
    table = {to: {type(x): route}}

    def convert_in_python(obj: Any, to: Any) -> Any:
        try:
            return table[to][type(obj)](obj)
        except Exception:  # noqa: BLE001 - the route cannot take the object
            return convert_slowly(obj, to, {})

    return convert_in_python
