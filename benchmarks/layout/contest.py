"""The rules of a contest between methods to move records: checked, then timed in turns."""

from __future__ import annotations

import ast
import importlib.util
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.layout.copies import copy, stream
from benchmarks.layout.data import Array, memory, native
from benchmarks.suite import Case, Entry, Settings, median
from benchmarks.timing import Pace, Raised, Statement, measure

#: Notes by which goals and pages know entries.
FRESH = "fresh memory"
LOOP = "a Numba loop for this dtype"

#: The names that users write, and the modules that they mean.
MODULES = {
    "np": "numpy",
    "rf": "numpy.lib.recfunctions",
    "pd": "pandas",
    "pl": "polars",
    "pa": "pyarrow",
    "zc": "zerocopy",
}

#: Which library a name needs, so that a method without it is left out.
_NEEDS = {"pd": "pandas", "pl": "polars", "pa": "pyarrow"} | dict.fromkeys(
    ("stream", "split", "split_parallel", "merge", "merge_parallel"), "numba"
)

# Calls take 10 to 30 ms here: so that 60 of them are 2 s at most, and a whole run a quarter of an hour;
# or a quick one less than a minute.
_PATIENCE, _QUICK_PATIENCE = 3_000_000_000, 50_000_000

# Rows that are compared at once.
_BLOCK = 10_000

# With more lines than that in a loop Numba takes seconds to compile it.
_LONG_LOOP = 4


@dataclass(frozen=True)
class Method:
    """One method to move records, as a user would write it.

    Attributes
    ----------
    code : str
        An expression or a statement of the names in :func:`namespace`.
    role : str
        One of :data:`benchmarks.suite.ROLES`.
    name : str
        What it is in a word or two, for a picture.
    note : str
        What a reader must know about it.
    gives : str
        An expression for what it gives, where it writes to memory that was there before.
    reads : str
        An expression of ``y``, what it gives, for the columns: a dict of arrays.
    refuses : callable
        ``refuses(dtype)`` is why it is not for records of a type, or nothing.
    """

    code: str
    role: str = "idiom"
    name: str = ""
    note: str = ""
    gives: str = ""
    reads: str = "y"
    refuses: Callable[[np.dtype[Any]], str] = lambda dtype: ""

    def needs(self) -> set[str]:
        """Return the libraries that it needs, beside NumPy."""
        used = {node.id for node in ast.walk(ast.parse(self.code)) if isinstance(node, ast.Name)}
        return {_NEEDS[name] for name in used & _NEEDS.keys()}

    def wanted(self, settings: Settings) -> bool:
        """Whether the command line asked for its libraries."""
        return all(map(settings.wants, self.needs()))

    def result(self, names: Mapping[str, Any]) -> Any:
        """Do it once, and return what it gives."""
        if not self.gives:
            return eval(self.reads, {**names, "y": eval(self.code, dict(names))})
        exec(self.code, dict(names))
        return eval(self.reads, {**names, "y": eval(self.gives, dict(names))})


@dataclass(frozen=True)
class Contest:
    """One case: what the methods begin with, and what they have to give.

    Attributes
    ----------
    case : str
        Its name.
    names : mapping of str to object
        Those of :func:`namespace` and its own, among them ``dtype``.
    targets : sequence of array
        What is written to: cleared before each method is checked.
    differs : callable
        ``differs(result)`` is how it is another result than the right one, or nothing.
    """

    case: str
    names: Mapping[str, Any]
    targets: Sequence[Array]
    differs: Callable[[Any], str]

    def check(self, method: Method) -> str:
        """Return why a method does not do the work, or nothing if it does."""
        missing = sorted(name for name in method.needs() if importlib.util.find_spec(name) is None)
        refused = method.refuses(self.names["dtype"]) or f"{', '.join(missing)} is not installed" * bool(
            missing
        )
        if refused:
            return refused
        for target in self.targets:
            target.reshape(-1).view(np.uint8)[:] = 0
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = method.result(self.names)
        except Exception as error:  # noqa: BLE001 - whatever a library raises is the finding
            return Raised.of(error).why
        if isinstance(found, np.ndarray) and found.dtype == np.uint8:  # a copy of the bytes
            return "" if np.array_equal(found, self.names["raw"]) else "gives other bytes"
        return self.differs(found)

    def run(self, methods: Sequence[Method], settings: Settings) -> Case:
        """Check the methods, then time those that do the work.

        Raises
        ------
        AssertionError
            Ours does not do it: then there is nothing to compare with.
        """
        case = Case(self.case)
        able = {}
        for method in methods:
            if not method.wanted(settings):
                continue
            long = settings.quick and method.note.startswith(LOOP) and len(self.names["dtype"]) > _LONG_LOOP
            refused = "takes seconds to compile: not with --quick" if long else self.check(method)
            if refused and method.role == "ours":
                raise AssertionError(f"{method.code} {refused}")
            case.entries.append(Entry(method.code, method.role, note=method.note, left_out=refused))
            if not refused:
                able[method.code] = Statement(method.code, self.names)
        timings = measure(able, pace(settings))
        for entry in case.entries:
            entry.timing = timings.get(entry.label)
        return case


def at_least(settings: Settings, nbytes: int) -> None:
    """Refuse sizes that are less than one record: there is nothing to move.

    Raises
    ------
    ValueError
        Of ``--sizes``, which the first counts of.
    """
    if settings.sizes and settings.sizes[0] < nbytes:
        raise ValueError(
            f"--sizes {settings.sizes[0]}: the largest type of records has {nbytes} bytes, so that is less "
            f"than one of them: ask for {nbytes} or more"
        )


def pace(settings: Settings) -> Pace:
    """Return how long to measure."""
    most = _QUICK_PATIENCE if settings.quick else _PATIENCE
    return replace(settings.pace, patience=min(settings.pace.patience, most))


def namespace(records: Array) -> dict[str, Any]:
    """Return the names that all codes use: modules, copies, the records' bytes and room for them."""
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

    def differs(found: Mapping[str, Any]) -> str:
        types = native(records.dtype)
        if list(found) != list(types):
            return "gives other columns"
        checked = {}
        for name, dtype in types.items():
            column = found[name]
            if column.dtype.kind == "O" and dtype.kind == "S":
                column = column.astype(dtype)  # bytes of Python are how these libraries give text back
            if column.dtype != dtype:
                return f"gives {column.dtype.str} for {dtype.str}"
            if not column.flags.c_contiguous:
                return "gives strided views"
            checked[name] = column
        return _other_values(checked, records)

    return differs


def differs_from_records(expected: Array) -> Callable[[Any], str]:
    """Return a check of records against others: where the fields lie, and their values."""

    def differs(found: Any) -> str:
        if _fields(found.dtype) != _fields(expected.dtype):
            return "gives records of another type"
        return _other_values(found, expected)

    return differs


def _other_values(found: Any, records: Array) -> str:
    """Return in which field values differ: looked at a block of rows after the other, as in a cache."""
    for start in range(0, len(records), _BLOCK):
        rows = slice(start, start + _BLOCK)
        for name in records.dtype.names or ():
            if not np.array_equal(found[name][rows], records[name][rows]):
                return f"gives other values in {name}"
    return ""


def _fields(dtype: np.dtype[Any]) -> tuple[Any, ...]:
    fields = dtype.fields or {}
    return dtype.itemsize, [(name, *fields[name][:2]) for name in dtype.names or ()]


def timed(case: Case, label: str) -> Entry | None:
    """Return the entry of a label, if it was timed."""
    return next((entry for entry in case.timed() if entry.label == label), None)


def share(ours: Entry, other: Entry) -> float:
    """Return our time over another's."""
    return median(ours) / median(other)
