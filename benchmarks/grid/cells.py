"""The cells: kinds of objects, the pairs of each, and their contest."""

from __future__ import annotations

import math
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from time import perf_counter_ns
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import Contest, imported, installed
from benchmarks.goals import Promise, fastest, judge, ratio as ratio_to
from benchmarks.grid import hand
from benchmarks.suite import Case, Section, Settings, Suite, Task
from benchmarks.tables.data import x64
from benchmarks.timing import Raised, Statement
from zerocopy._engine.memory import blocks
from zerocopy.errors import ZeroCopyError
from zerocopy.protocols.array_interface import aligned_copy

TABLES = ("pandas", "polars", "pyarrow", "duckdb", "nanoarrow")
ARRAYS = ("numpy", "torch", "jax", "tensorflow")
MEAN, WORST = 0.8, 1.05
#: Candidates that are timed: the fastest of a trial.
TIMED = 3
_LONG = 5_000_000  # ns: one call is enough

Make = Callable[[str], Any]


@dataclass(frozen=True)
class Kind:
    """Objects of one kind, from each source to each other target.

    ``make(framework)`` returns the object, ``code(source, target)`` the candidates by hand; `options` are
    those of ``zc.convert``.
    """

    name: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    make: Make
    code: Callable[[str, str], list[str]]
    options: str = ""

    def pairs(self, settings: Settings) -> list[tuple[str, str]]:
        """Return the pairs of installed frameworks that the settings want."""
        usable = [name for name in (*TABLES, *ARRAYS) if settings.wants(name) and installed(name)]
        return [(a, b) for a in self.sources for b in self.targets if a != b and a in usable and b in usable]


def _values(rows: int, seed: int) -> Any:
    return aligned_copy(np.random.default_rng(seed).random(rows))


def _columns(rows: int, count: int, nulls: bool = False, text: bool = False) -> Any:
    """Return a pyarrow.Table of float64; with nulls in each third column, and text in each fifth."""
    import pyarrow as pa

    arrays = []
    for i in range(count):
        values = _values(rows, i)
        if text and i % 5 == 4:
            words = [None if nulls and j % 11 == 0 else f"row {v:.4f}" for j, v in enumerate(values)]
            arrays.append(pa.array(words))
        elif nulls and i % 3 == 0:
            arrays.append(pa.array(values, mask=np.arange(rows) % 7 == 0))
        else:
            arrays.append(pa.array(values))
    return pa.table(arrays, names=[f"c{i}" for i in range(count)])


def _table(framework: str, rows: int, count: int, nulls: bool = False, text: bool = False) -> Any:
    table = _columns(rows, count, nulls, text)
    if framework == "pandas":  # as users have it: one block of NumPy's memory, and text
        return table.to_pandas()
    if framework == "polars":
        return import_module("polars").from_arrow(table)
    return zc.convert(table, framework)


def _series(framework: str, nulls: bool = False, text: bool = False) -> Any:
    (column,) = _columns(1000, 5, nulls, text).select(["c4" if text else "c0"]).columns
    array = column.chunk(0)
    return array.to_pandas() if framework == "pandas" else zc.convert(array, framework)


def _dict(framework: str, rows: int, count: int) -> Any:
    return {f"c{i}": zc.convert(_values(rows, i), framework) for i in range(count)}


def _matrix(framework: str, rows: int, count: int) -> Any:
    return zc.convert(aligned_copy(_values(rows * count, 0).reshape(rows, count)), framework)


def _kinds() -> Iterator[Kind]:
    every, single = (*TABLES, *ARRAYS), tuple(name for name in TABLES if name != "duckdb")
    yield Kind("array of 1,000", ARRAYS, TABLES, lambda f: zc.convert(_values(1000, 0), f), hand.arrays)
    yield Kind("series of 1,000", single, every, _series, hand.series)
    nulls = partial(_series, nulls=True)
    yield Kind("series, nulls", single, TABLES, nulls, hand.series)
    yield Kind("series, text", single, TABLES, partial(_series, nulls=True, text=True), hand.series)
    for rows, count in ((1000, 10), (100, 300)):
        size = f"{rows:,} x {count}"
        numbers = partial(_table, rows=rows, count=count)
        yield Kind(f"table {size}", TABLES, TABLES, numbers, hand.tables)
        mixed = partial(numbers, nulls=True, text=True)
        yield Kind(f"table {size}, nulls and text", TABLES, TABLES, mixed, hand.tables)
        yield Kind(f"dict {size}", ARRAYS, TABLES, partial(_dict, rows=rows, count=count), hand.from_dict)
        yield Kind(
            f"matrix {size}",
            ARRAYS,
            TABLES,
            partial(_matrix, rows=rows, count=count),
            hand.from_matrix,
            ", names=names",
        )
        yield Kind(f"table {size} to a dict", TABLES, ARRAYS, numbers, hand.columns)
        yield Kind(f"table {size} to a matrix", TABLES, ARRAYS, numbers, hand.to_matrix, ', layout="matrix"')


KINDS = tuple(_kinds())


# -- checks -----------------------------------------------------------------------------


def content(result: Any) -> Any:
    """Return what must be equal: types, labels and values; NaN counts as null, as in pandas."""
    kind = type(result), str(getattr(result, "dtypes", ""))  # pandas' and polars' types of columns
    if isinstance(result, dict):
        return {str(name): content(value) for name, value in result.items()}
    if type(result).__module__.partition(".")[0] not in (*TABLES, "_duckdb"):
        return kind, np.asarray(result)
    name = getattr(result, "name", None)
    arrow = zc.convert(result, "pyarrow", copy=None)
    if hasattr(arrow, "column_names"):
        return kind, {n: _plain(c) for n, c in zip(arrow.column_names, arrow.columns, strict=True)}
    return kind, name or "", _plain(arrow)


def _plain(array: Any) -> Any:
    """Return a kind of type and values; the layouts of text in Arrow count as one type."""
    kind = "text" if "string" in str(array.type) else str(array.type)
    if kind != "double":
        return kind, array.to_pylist()
    values = [x for chunk in getattr(array, "chunks", [array]) for x in chunk.to_pylist()]
    return kind, np.array([math.nan if x is None else x for x in values])


def same(a: Any, b: Any) -> bool:
    """Whether two contents are equal."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (
            a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(type(a) is type(b) and a == b)


def _shares(x: Any, result: Any) -> int:
    """Return 2 if each block of a result lies in the source's memory, 1 if some do, and 0 if none does."""
    try:
        ours, theirs = (sorted(view.bounds for view in blocks(obj) if view.size) for obj in (x, result))
    except ZeroCopyError:
        return 0  # a query
    starts = [low for low, _ in ours]
    places = [(low, bisect_left(starts, high) - 1) for low, high in theirs]
    hits = [place >= 0 and ours[place][1] > low for low, place in places]
    return any(hits) + (bool(hits) and all(hits))


def _trial(code: str, names: Mapping[str, Any], expected: Any) -> float | str:
    """Return the least time of some calls in nanoseconds, or why the code is left out."""
    try:
        statement = Statement(code, names)
        if not same(content(statement.value()), expected):
            return "gives other types or values"
        loop = statement.loop()
        first = loop(range(1), perf_counter_ns)
        return first if first > _LONG else min(loop(range(2), perf_counter_ns) for _ in range(5)) / 2
    except Exception as error:  # noqa: BLE001 - any error is the result of the check
        return Raised.of(error).why


def contest(kind: Kind, pair: tuple[str, str], settings: Settings) -> list[Case]:
    """Check the candidates of a cell, and time the fastest of them with zerocopy in turns."""
    source, target = pair
    with x64(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(1001):  # then zerocopy loads its names, and the module's __getattr__ no longer runs
            _ = zc.convert
        x = kind.make(source)
        codes = kind.code(source, target)
        names = imported("zc", *codes) | {"x": x}
        if "names=" in kind.options:
            names["names"] = [f"c{i}" for i in range(x.shape[1])]
        call = f'zc.convert(x, "{target}"{kind.options})'
        ours = Statement(call, names).value()
        expected, shares = content(ours), _shares(x, ours)
        trials = {code: _trial(code, names, expected) for code in codes}
        able = sorted((t, code) for code, t in trials.items() if not isinstance(t, str))
        turns = Contest()
        case = turns.case(f"{source} -> {target}, {kind.name}")
        turns.add(case, call, "ours", Statement(call, names))
        for _, code in able:
            copies = _shares(x, Statement(code, names).value()) < shares
            role, note = ("narrow", "copies") if copies else ("idiom", "")
            if sum(entry.role == role for entry in case.entries) < TIMED:
                turns.add(case, code, role, Statement(code, names), note=note)
        case.figures = {"candidates": len(trials), "correct": len(able)}
        turns.time(settings.pace)
    return [case]


#: zerocopy's time over that of the fastest code by hand that aliases where zerocopy does.
ratio = ratio_to(fastest("idiom"))

PROMISES = (
    Promise(f"fastest by hand: {WORST}x at most", ratio, WORST),
    Promise(f"fastest by hand, geometric mean: {MEAN}x at most", ratio, MEAN, mean="cells"),
)


def tasks(settings: Settings) -> list[Task]:
    return [
        Task(f"{a} -> {b}, {kind.name}", partial(contest, kind, (a, b), settings))
        for kind in KINDS
        for a, b in kind.pairs(settings)
    ]


SECTIONS = (
    Section(
        "cells",
        "one object of each kind, float64, default options",
        tasks,
        "contest",
        partial(judge, PROMISES),
    ),
)

SUITE = Suite(
    "grid",
    "each pair in which one side is a table framework, compared with the fastest correct code by hand",
    SECTIONS,
    frameworks=(*TABLES, *ARRAYS),
    distributions=(*("duckdb", "nanoarrow", "pandas", "polars", "pyarrow"), *ARRAYS),
)
