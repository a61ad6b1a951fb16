"""A contest between methods to convert a table: each is checked, then timed in turns."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contest import Contest, refusal
from benchmarks.suite import Case, Settings, Task
from benchmarks.tables.data import MAKERS, MODULES, aliases, installed, namespace, spans, spans_of_frame, x64
from benchmarks.timing import Statement

Array = np.ndarray[Any, Any]

#: Libraries by the names that need them: a method whose library is missing is left out.
_NEEDS = {"d": "polars", "df": "pandas", "dn": "pandas", "rel": "duckdb"}
_NEEDS |= dict.fromkeys(("ds", "ds_torch", "ds_numpy", "ds_jax"), "datasets")


@dataclass(frozen=True)
class Method:
    """One method to convert, as a user would write it.

    Attributes
    ----------
    code : str
        An expression with the names in :mod:`benchmarks.tables.data`.
    role : str
        One of :data:`benchmarks.suite.ROLES`.
    note : str
        A fact that a reader needs.
    slow : bool
        Whether it takes seconds: left out with ``--quick``.
    fails : str
        How its result is known to be wrong, if it is common code all the same.
    """

    code: str
    role: str = "idiom"
    note: str = ""
    slow: bool = False
    fails: str = ""

    def names(self) -> set[str]:
        """Return the names that the expression uses."""
        return {node.id for node in ast.walk(ast.parse(self.code)) if isinstance(node, ast.Name)}

    def installed(self) -> bool:
        """Whether the libraries that it uses are installed."""
        used = self.names()
        return installed(
            *(MODULES[n] for n in used & MODULES.keys()), *(_NEEDS[n] for n in used & _NEEDS.keys())
        )


@dataclass(frozen=True)
class Question:
    """One case: a table and the methods to convert it, zerocopy first.

    Attributes
    ----------
    name : str
        The case.
    table : callable
        Returns ``t``, the pyarrow.Table that all methods start from.
    methods : sequence of Method
    extra : callable, optional
        ``extra(t) -> dict`` with further names.
    reads : callable
        ``reads(result) -> dict[str, array]``, or another value that :func:`differ` compares.
    frameworks : tuple of str
        The frameworks that ``--frameworks`` must include.
    """

    name: str
    table: Callable[[], Any]
    methods: Sequence[Method]
    reads: Callable[[Any], Any]
    frameworks: tuple[str, ...] = ()
    extra: Callable[[Any], Mapping[str, Any]] = lambda table: {}

    def wanted(self, settings: Settings) -> bool:
        """Whether its frameworks are installed and wanted."""
        return all(settings.wants(name) and installed(name) for name in self.frameworks)

    def names(self, table: Any, quick: bool = False) -> dict[str, Any]:
        """Return the names of all methods that can run here, without slow ones in a quick run."""
        able = [method for method in self.methods if method.installed() and not (quick and method.slow)]
        used = sorted(set().union(*(method.names() for method in able)))
        return namespace(table, (name for name in used if name in MODULES or name in MAKERS)) | dict(
            self.extra(table)
        )

    def run(self, settings: Settings) -> list[Case]:
        """Check the methods, then time those that pass."""
        with x64():
            table = self.table()
            names = self.names(table, settings.quick)
            contest = Contest()
            case = contest.case(self.name)
            for method in self.methods:
                refused, copies = self.check(method, names, table, settings)
                note = ", ".join(filter(None, [method.note, copies]))
                statement = Statement(method.code, names)
                contest.add(case, method.code, method.role, statement, refused, note)
            return contest.time(settings.pace)

    def check(
        self, method: Method, names: Mapping[str, Any], table: Any, settings: Settings | None = None
    ) -> tuple[str, str]:
        """Return why a result is wrong, or nothing; and whether it copies."""
        if not method.installed():
            return "is not installed", ""
        if method.slow and settings is not None and settings.quick:
            return "takes seconds: not with --quick", ""
        copies = []

        def wrong() -> str:
            result = Statement(method.code, names).value()
            if method.role == "reference":  # other work, for comparison
                return ""
            converted = self.reads(result)
            refused = differ(converted, self.reads(Statement(self.methods[0].code, names).value()))
            memory = spans(table) + (spans_of_frame(names["dn"]) if "dn" in method.names() else [])
            copies.append("" if refused else _copies(converted, memory))
            return refused

        return refusal(wrong), "".join(copies)


def tasks(questions: Callable[[], Sequence[Question]], settings: Settings) -> list[Task]:
    """Return a task for each question whose frameworks are installed and wanted."""
    return [Task(q.name, partial(q.run, settings)) for q in questions() if q.wanted(settings)]


def tensors(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict of tensors as arrays, and of pairs of values and mask as pairs of arrays."""
    return {
        str(name): tuple(map(array, value)) if isinstance(value, tuple) else array(value)
        for name, value in result.items()
    }


def array(tensor: Any) -> Any:
    """Return a tensor on the host as an array that aliases it; other objects are returned unchanged."""
    if isinstance(tensor, np.ndarray) and not isinstance(tensor, np.ma.MaskedArray):
        return tensor
    if hasattr(tensor, "__array__") and hasattr(tensor, "dtype"):
        return np.asarray(tensor)
    return tensor


def differ(result: Any, expected: Any, where: str = "") -> str:
    """Return how two results differ, or nothing."""
    at = f" in {where}" if where else ""
    if type(result) is not type(expected):
        return f"gives a {type(result).__qualname__}, not a {type(expected).__qualname__}{at}"
    if isinstance(expected, dict):
        if list(result) != list(expected):
            return f"gives other columns{at}"
        return next((wrong for k, v in expected.items() if (wrong := differ(result[k], v, str(k)))), "")
    if isinstance(expected, tuple):  # values and mask: values under the mask are undefined
        (values, mask), (values_, mask_) = result, expected
        wrong = differ(mask, mask_, f"{where} (mask)")
        if wrong or not isinstance(values, np.ndarray):
            return wrong or differ(values, values_, where)
        return differ(values[~mask], values_[~mask_], where)
    if not isinstance(expected, np.ndarray):
        return "" if result == expected else f"gives other values{at}"
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return f"gives {result.dtype}{list(result.shape)}, not {expected.dtype}{list(expected.shape)}{at}"
    if not np.array_equal(result, expected, equal_nan=expected.dtype.kind == "f"):
        return f"gives other values{at}"
    if expected.ndim > 1 and (result.flags.c_contiguous, result.flags.f_contiguous) != (
        expected.flags.c_contiguous,
        expected.flags.f_contiguous,
    ):
        return "gives the other order"
    return ""


def _copies(result: Any, memory: list[tuple[int, int]]) -> str:
    """Return how many arrays of a result are copies, or nothing."""
    values = result.values() if isinstance(result, dict) else [result]
    arrays = [v[0] if isinstance(v, tuple) else v for v in values]
    fresh = [a for a in arrays if not (isinstance(a, np.ndarray) and aliases(a, memory))]
    if not fresh:
        return ""
    return "copies" if len(fresh) == len(arrays) else f"copies {len(fresh)} of {len(arrays)}"
