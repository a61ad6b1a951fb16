"""Methods to transpose records: each is checked, then timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.contest import Contest, Method as _Method, imported, installed, modules_of, refusal, used
from benchmarks.layout.copies import copy, stream
from benchmarks.layout.data import Array, memory, native
from benchmarks.suite import Case, Entry, Settings, median
from benchmarks.timing import Pace, Statement

#: Notes that goals and pages look up.
FRESH = "fresh memory"
LOOP = "a Numba loop for this dtype"

#: Names that need Numba.
_LOOPS = {"columns_by_numba", "rows_by_numba", "split", "split_parallel", "merge", "merge_parallel"}

# A call of zerocopy takes 5 to 15 ms, so 60 calls take 1 s at most; a full run takes a few minutes.
_PATIENCE, _QUICK_PATIENCE = 1_000_000_000, 50_000_000

# Rows that are compared at a time.
_BLOCK = 10_000

# Numba takes seconds to compile loops with more lines.
_LONG_LOOP = 4


@dataclass(frozen=True)
class Method(_Method):
    """One method to transpose records, with the names in :func:`namespace`; `name` is for a picture.

    `gives` is an expression for the result, if the code writes to existing memory; `reads` turns the result
    ``y`` into a dict of arrays. ``refuses(dtype)`` returns why a record type is not supported, or nothing.
    """

    name: str = ""
    gives: str = ""
    reads: str = "y"
    refuses: Callable[[np.dtype[Any]], str] = lambda dtype: ""

    def needs(self) -> set[str]:
        """Return the libraries that it needs in addition to NumPy."""
        needed = {module.partition(".")[0] for module in modules_of(self.code).values()}
        return (needed - {"numpy", "zerocopy"}) | ({"numba"} if used(self.code) & _LOOPS else set())

    def result(self, names: Mapping[str, Any]) -> Any:
        """Run it once, and return the result."""
        if not self.gives:
            return eval(self.reads, {**names, "y": eval(self.code, dict(names))})
        exec(self.code, dict(names))
        return eval(self.reads, {**names, "y": eval(self.gives, dict(names))})


@dataclass(frozen=True)
class Transposition:
    """One case: the names of the methods, with ``dtype``, and a check of their results.

    `targets` are outputs, which are cleared before each check; ``differs(result)`` returns how a result
    differs from the expected one, or nothing.
    """

    case: str
    names: Mapping[str, Any]
    targets: Sequence[Array]
    differs: Callable[[Any], str]

    def check(self, method: Method) -> str:
        """Return why a method does not give the expected result, or nothing."""
        if refused := method.refuses(self.names["dtype"]):
            return refused
        if missing := sorted(name for name in method.needs() if not installed(name)):
            return f"{', '.join(missing)} is not installed"
        for target in self.targets:
            target.reshape(-1).view(np.uint8)[:] = 0

        def wrong() -> str:
            result = method.result(self.names)
            if isinstance(result, np.ndarray) and result.dtype == np.uint8:  # a copy of the bytes
                return "" if np.array_equal(result, self.names["raw"]) else "gives other bytes"
            return self.differs(result)

        return refusal(wrong)

    def run(self, methods: Mapping[str, Method], settings: Settings) -> Case:
        """Check the methods, then time those that pass, by their labels."""
        contest = Contest()
        case = contest.case(self.case)
        for label, method in methods.items():
            if all(map(settings.wants, method.needs())):
                long = settings.quick and "numba" in method.needs() and len(self.names["dtype"]) > _LONG_LOOP
                refused = "takes seconds to compile: not with --quick" if long else self.check(method)
                contest.add(
                    case, label, method.role, Statement(method.code, self.names), refused, method.note
                )
        contest.time(pace(settings))
        return case


def by_code(methods: Sequence[Method]) -> dict[str, Method]:
    """Return methods by the labels that tables have, their code."""
    return {method.code: method for method in methods}


def at_least(settings: Settings, nbytes: int) -> None:
    """Raise ValueError if the first of ``--sizes`` is smaller than one record."""
    if settings.sizes and settings.sizes[0] < nbytes:
        raise ValueError(
            f"--sizes {settings.sizes[0]}: the largest record type has {nbytes} bytes. "
            f"To fix: use {nbytes} or more"
        )


def pace(settings: Settings) -> Pace:
    """Return the duration of a measurement."""
    most = _QUICK_PATIENCE if settings.quick else _PATIENCE
    return replace(settings.pace, patience=min(settings.pace.patience, most))


def namespace(records: Array) -> dict[str, Any]:
    """Return the names that all methods use: modules, copies, the records' bytes and an output."""
    raw = records.view(np.uint8)
    names = {"copy": copy, "stream": stream, "dtype": records.dtype, "raw": raw, "w": memory(raw.size)}
    return imported("np, rf, pd, pl, pa, zc") | names


def differs_from(records: Array) -> Callable[[Any], str]:
    """Return a check of columns, or of records, against records."""

    def differs(result: Any) -> str:
        return (
            columns_differ(records, result) if isinstance(result, Mapping) else rows_differ(records, result)
        )

    return differs


def columns_differ(records: Array, result: Mapping[str, Any]) -> str:
    """Return how columns differ from the fields of records, or nothing."""
    types = native(records.dtype)
    if list(result) != list(types):
        return "gives other columns"
    checked = {}
    for name, dtype in types.items():
        column = result[name]
        if column.dtype.kind == "O" and dtype.kind == "S":
            column = column.astype(dtype)  # these libraries return text as bytes objects
        if column.dtype != dtype:
            return f"gives {column.dtype.str} for {dtype.str}"
        if not column.flags.c_contiguous:
            return "gives strided views"
        checked[name] = column
    return _other_values(checked, records)


def rows_differ(expected: Array, result: Any) -> str:
    """Return how records differ from others, in offsets or values of fields, or nothing."""
    if _fields(result.dtype) != _fields(expected.dtype):
        return "gives records of another type"
    return _other_values(result, expected)


def _other_values(result: Any, records: Array) -> str:
    """Return the field whose values differ; compares blocks of rows that fit in the cache."""
    for start in range(0, len(records), _BLOCK):
        rows = slice(start, start + _BLOCK)
        for name in records.dtype.names or ():
            if not np.array_equal(result[name][rows], records[name][rows]):
                return f"gives other values in {name}"
    return ""


def _fields(dtype: np.dtype[Any]) -> tuple[Any, ...]:
    fields = dtype.fields or {}
    return dtype.itemsize, [(name, *fields[name][:2]) for name in dtype.names or ()]


def share(ours: Entry, other: Entry) -> float:
    """Return the time of zerocopy over another."""
    return median(ours) / median(other)
