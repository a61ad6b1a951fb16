"""Questions about tables: methods to convert a table, each checked, then timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest, Method as _Method, imported, installed, refusal, used
from benchmarks.suite import Case, Settings, Task
from benchmarks.tables.data import MAKERS, aliases, made, spans, spans_of_frame, x64
from benchmarks.timing import Statement

Array = np.ndarray[Any, Any]

#: Libraries by the objects that need them: a method whose library is missing is left out.
_NEEDS = {"d": "polars", "df": "pandas", "dn": "pandas", "rel": "duckdb"}
_NEEDS |= dict.fromkeys(("ds", "ds_torch", "ds_numpy", "ds_jax"), "datasets")


@dataclass(frozen=True)
class Method(_Method):
    """One method to convert; with ``slow`` it takes seconds, and is left out with ``--quick``."""

    slow: bool = False

    def missing(self) -> list[str]:
        """Return the libraries that it uses and that are not installed."""
        needed = {_NEEDS[name] for name in used(self.code) & _NEEDS.keys()}
        return [*super().missing(), *(name for name in needed if not installed(name))]


@dataclass(frozen=True)
class Question:
    """One case: a table and the methods to convert it, zerocopy first.

    `table` returns ``t``, the pyarrow.Table that all methods start from, and ``extra(t)`` further names.
    ``reads(result)`` returns a dict of arrays, or another value that :func:`differ` compares.
    """

    name: str
    table: Callable[[], Any]
    methods: Sequence[Method]
    reads: Callable[[Any], Any]
    frameworks: tuple[str, ...] = ()
    extra: Callable[[Any], Mapping[str, Any]] = lambda table: {}

    def run(self, settings: Settings) -> list[Case]:
        """Check the methods, then time those that pass."""
        with x64():
            table = self.table()
            able = [m.code for m in self.methods if not (m.missing() or (settings.quick and m.slow))]
            objects = {name for code in able for name in used(code) & MAKERS.keys()}
            names = imported("zc", *able) | made(table, objects) | dict(self.extra(table))
            contest = Contest()
            case = contest.case(self.name)
            for method in self.methods:
                refused, copies = self.check(method, names, table, able)
                note = ", ".join(filter(None, [method.note, copies]))
                contest.add(case, method.code, method.role, Statement(method.code, names), refused, note)
            return contest.time(settings.pace)

    def check(
        self, method: Method, names: Mapping[str, Any], table: Any, able: Sequence[str]
    ) -> tuple[str, str]:
        """Return why a result is wrong, or nothing; and whether it copies."""
        if method.missing():
            return "is not installed", ""
        if method.code not in able:
            return "takes seconds: not with --quick", ""
        copies = []

        def wrong() -> str:
            result = Statement(method.code, names).value()
            if method.role == "reference":  # other work, for comparison
                return ""
            converted = self.reads(result)
            refused = differ(converted, self.reads(Statement(self.methods[0].code, names).value()))
            memory = spans(table) + (spans_of_frame(names["dn"]) if "dn" in used(method.code) else [])
            copies.append("" if refused else _copies(converted, memory))
            return refused

        return refusal(wrong), "".join(copies)


def tasks(questions: Callable[[], Sequence[Question]], settings: Settings) -> list[Task]:
    return [
        Task(q.name, partial(q.run, settings))
        for q in questions()
        if all(settings.wants(name) and installed(name) for name in q.frameworks)
    ]


def tensors(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict of tensors as arrays, and of pairs of values and mask as pairs of arrays."""
    pairs = {name: pair(value) for name, value in result.items()}
    return {
        str(name): tuple(map(array, value)) if isinstance(value, tuple) else array(value)
        for name, value in pairs.items()
    }


def pair(value: Any) -> Any:
    """Return zerocopy's values and mask as a pair, as code by hand has them; other objects unchanged."""
    return (value.values, value.mask) if isinstance(value, zc.Masked) else value


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
