"""A contest between methods to transpose records: each is checked, then timed in turns."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.contest import Contest, refusal
from benchmarks.layout.copies import copy, stream
from benchmarks.layout.data import Array, memory, native
from benchmarks.suite import Case, Entry, Settings, median
from benchmarks.timing import Pace, Statement

#: Notes that goals and pages look up.
FRESH = "fresh memory"
LOOP = "a Numba loop for this dtype"

#: Modules by the names that user code has for them.
MODULES = {
    "np": "numpy",
    "rf": "numpy.lib.recfunctions",
    "pd": "pandas",
    "pl": "polars",
    "pa": "pyarrow",
    "zc": "zerocopy",
}

#: Libraries by the names that need them: a method whose library is missing is left out.
_NEEDS = {"pd": "pandas", "pl": "polars", "pa": "pyarrow"} | dict.fromkeys(
    ("columns_by_numba", "rows_by_numba", "split", "split_parallel", "merge", "merge_parallel"), "numba"
)

# A call takes 10 to 30 ms: 60 of them take 2 s at most, and a full run a quarter of an hour.
_PATIENCE, _QUICK_PATIENCE = 3_000_000_000, 50_000_000

# Rows that are compared at a time.
_BLOCK = 10_000

# Numba takes seconds to compile loops with more lines.
_LONG_LOOP = 4


@dataclass(frozen=True)
class Method:
    """One method to transpose records, as a user would write it.

    Attributes
    ----------
    code : str
        An expression or a statement with the names in :func:`namespace`.
    role : str
        One of :data:`benchmarks.suite.ROLES`.
    name : str
        A short name, for a picture.
    note : str
        A fact that a reader needs.
    gives : str
        An expression for the result, if the code writes to existing memory.
    reads : str
        An expression that turns the result ``y`` into a dict of arrays.
    refuses : callable
        ``refuses(dtype)`` returns why it does not support a record type, or nothing.
    """

    code: str
    role: str = "idiom"
    name: str = ""
    note: str = ""
    gives: str = ""
    reads: str = "y"
    refuses: Callable[[np.dtype[Any]], str] = lambda dtype: ""

    def needs(self) -> set[str]:
        """Return the libraries that it needs in addition to NumPy."""
        used = {node.id for node in ast.walk(ast.parse(self.code)) if isinstance(node, ast.Name)}
        return {_NEEDS[name] for name in used & _NEEDS.keys()}

    def wanted(self, settings: Settings) -> bool:
        """Whether the command line includes its libraries."""
        return all(map(settings.wants, self.needs()))

    def result(self, names: Mapping[str, Any]) -> Any:
        """Run it once, and return the result."""
        if not self.gives:
            return eval(self.reads, {**names, "y": eval(self.code, dict(names))})
        exec(self.code, dict(names))
        return eval(self.reads, {**names, "y": eval(self.gives, dict(names))})


@dataclass(frozen=True)
class Transposition:
    """One case: the input of the methods, and a check of their results.

    Attributes
    ----------
    case : str
        Its name.
    names : mapping of str to object
        The names of :func:`namespace` and of this case, with ``dtype``.
    targets : sequence of array
        Outputs, which are cleared before each check.
    differs : callable
        ``differs(result)`` returns how a result differs from the expected one, or nothing.
    """

    case: str
    names: Mapping[str, Any]
    targets: Sequence[Array]
    differs: Callable[[Any], str]

    def check(self, method: Method) -> str:
        """Return why a method does not give the expected result, or nothing."""
        missing = sorted(name for name in method.needs() if importlib.util.find_spec(name) is None)
        if refused := method.refuses(self.names["dtype"]):
            return refused
        if missing:
            return f"{', '.join(missing)} is not installed"
        for target in self.targets:
            target.reshape(-1).view(np.uint8)[:] = 0

        def wrong() -> str:
            result = method.result(self.names)
            if isinstance(result, np.ndarray) and result.dtype == np.uint8:  # a copy of the bytes
                return "" if np.array_equal(result, self.names["raw"]) else "gives other bytes"
            return self.differs(result)

        return refusal(wrong)

    def run(self, methods: Sequence[Method], settings: Settings) -> Case:
        """Check the methods, then time those that pass."""
        contest = Contest()
        case = contest.case(self.case)
        for method in methods:
            if method.wanted(settings):
                long = settings.quick and "numba" in method.needs() and len(self.names["dtype"]) > _LONG_LOOP
                refused = "takes seconds to compile: not with --quick" if long else self.check(method)
                statement = Statement(method.code, self.names)
                contest.add(case, method.code, method.role, statement, refused, method.note)
        contest.time(pace(settings))
        return case


def at_least(settings: Settings, nbytes: int) -> None:
    """Refuse sizes smaller than one record.

    Raises
    ------
    ValueError
        The first of ``--sizes`` is too small.
    """
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
    names: dict[str, Any] = {
        name: import_module(module)
        for name, module in MODULES.items()
        if importlib.util.find_spec(module.partition(".")[0]) is not None
    }
    raw = records.view(np.uint8)
    return names | {
        "copy": copy,
        "stream": stream,
        "dtype": records.dtype,
        "raw": raw,
        "w": memory(raw.size),
    }


def differs_from_columns(records: Array) -> Callable[[Any], str]:
    """Return a check of columns against the fields of records."""

    def differs(result: Mapping[str, Any]) -> str:
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

    return differs


def differs_from_records(expected: Array) -> Callable[[Any], str]:
    """Return a check of records against others: offsets and values of fields."""

    def differs(result: Any) -> str:
        if _fields(result.dtype) != _fields(expected.dtype):
            return "gives records of another type"
        return _other_values(result, expected)

    return differs


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


def timed(case: Case, label: str) -> Entry | None:
    """Return the entry of a label, if it was timed."""
    return next((entry for entry in case.timed() if entry.label == label), None)


def share(ours: Entry, other: Entry) -> float:
    """Return the time of zerocopy over another."""
    return median(ours) / median(other)
