"""A question of the section ``core``: one conversion, and the statements that do it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import zerocopy as zc
from benchmarks.conversion.goals import PURE
from benchmarks.timing import Loop, Statement

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


def in_python() -> Callable[..., Any]:
    """Return `convert` without the compiled core."""
    module = import_module("zerocopy._engine.convert")
    function: Callable[..., Any] = getattr(module, "convert_in_python", zc.convert)
    return function


def method(code: str, role: str, names: Names, note: str = "", make: Make | None = None) -> Method:
    """Return a method; with `make`, ``x`` is a new object in each call."""
    if make is None:
        return Method(code, role, Statement(code, names), note)
    fresh = {**names, "_": names["x"]}  # the check uses x
    return Method(code, role, Fresh(re.sub(r"\bx\b", "_", code), fresh, make), note)


def ours(code: str, names: Names, make: Make | None = None) -> list[Method]:
    """Return the call of zerocopy, and the same call without the compiled core as a reference."""
    pure = code.replace("zc.convert(", "convert_in_python(")
    names = {**names, "zc": zc, "convert_in_python": in_python()}
    return [method(code, "ours", names, "", make), method(pure, "reference", names, PURE, make)]
