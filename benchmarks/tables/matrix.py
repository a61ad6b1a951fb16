"""Columns to one matrix: in both orders, and without a copy if they are in one allocation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contest import Contest, imported, installed, refusal, used
from benchmarks.goals import NOISE, Promise, fastest, judge, ratio
from benchmarks.suite import Case, Section, Settings, Task, median
from benchmarks.tables.contest import Method, Question, array, tasks
from benchmarks.tables.data import COLUMNS, ROWS, block, floats, made, x64
from benchmarks.timing import Statement

_SMALL = 1_000  # rows

_PYARROW = {
    ("numpy", "C"): [
        Method("b.to_tensor(row_major=True).to_numpy()", "documented"),
        Method('d.to_numpy(order="c")', "library"),
        Method("np.column_stack([c.chunk(0).to_numpy() for c in t.columns])"),
        Method("np.stack([c.chunk(0).to_numpy() for c in t.columns], axis=1)"),
        Method("np.ascontiguousarray(df.to_numpy())", "library"),
    ],
    ("numpy", "F"): [
        Method("b.to_tensor(row_major=False).to_numpy()", "documented"),
        Method('d.to_numpy(order="fortran")', "library"),
        Method("np.stack([c.chunk(0).to_numpy() for c in t.columns]).T"),
        Method("np.asfortranarray(df.to_numpy())", "library"),
    ],
    ("torch", "C"): [
        Method("torch.from_numpy(b.to_tensor(row_major=True).to_numpy())", "documented"),
        Method("d.to_torch().contiguous()", "library"),
        Method("torch.stack([torch.from_dlpack(c.chunk(0)) for c in t.columns], dim=1)"),
        Method("torch.stack([torch.from_dlpack(c.chunk(0)) for c in t.columns]).T.contiguous()"),
    ],
    ("torch", "F"): [
        Method("torch.from_numpy(b.to_tensor(row_major=False).to_numpy())", "documented"),
        Method("d.to_torch()", "library"),
        Method("torch.stack([torch.from_dlpack(c.chunk(0)) for c in t.columns]).T"),
    ],
}
_POLARS = {
    ("numpy", "C"): [Method('d.to_numpy(order="c")', "documented")],
    ("numpy", "F"): [Method('d.to_numpy(order="fortran")', "documented")],
    ("torch", "C"): [Method("d.to_torch().contiguous()", "documented")],
    ("torch", "F"): [Method("d.to_torch()", "documented")],
}


def questions(rows: int = ROWS) -> list[Question]:
    """Return a question for each source, target and order."""
    return [
        Question(
            f"{source} -> {target}, {order} order",
            partial(floats, rows),
            [Method(f'zc.convert({name}, "{target}", layout="matrix", order="{order}")', "ours"), *listed],
            array,
            (source, target),
        )
        for source, name, methods in (("pyarrow", "t", _PYARROW), ("polars", "d", _POLARS))
        for (target, order), listed in methods.items()
    ]


_AS_FAST = f"matrix: as fast as pyarrow's to_tensor and polars, within noise ({NOISE}x)"
PROMISES = (Promise(_AS_FAST, ratio(fastest("documented", "library")), NOISE),)

BLOCK = [
    Method('zc.convert(t, "numpy", layout="matrix")', "ours"),
    Method('zc.convert(t, "torch", layout="matrix")', "ours"),
    Method("d.to_numpy()", "library"),
    Method("b.to_tensor(row_major=False)", "library"),
]


def block_tasks(settings: Settings) -> list[Task]:
    """Return one task: the time by the number of rows, with columns in one allocation."""
    if not all(map(installed, ("pyarrow", "torch"))):
        return []
    return [Task("one allocation", partial(_block, settings))]


def _block(settings: Settings) -> list[Case]:
    methods = [method for method in BLOCK if not method.missing()]
    contest = Contest()
    cases = {method.code: contest.case(method.code) for method in methods}
    with x64():
        for rows in (_SMALL, ROWS):
            table = block(rows)
            names = imported("zc") | made(table, {name for m in methods for name in used(m.code) & {*"tdb"}})
            for method in methods:
                refused = refusal(partial(differs, method, names, table)) if method.role == "ours" else ""
                statement = Statement(method.code, names)
                contest.add(cases[method.code], f"{rows:,} rows", method.role, statement, refused)
        return contest.time(settings.pace)


def differs(method: Method, names: Mapping[str, Any], table: Any) -> str:
    """Return how a matrix differs from an alias of the columns of a table, or nothing."""
    matrix = array(Statement(method.code, names).value())
    for i, column in enumerate(table.columns):
        values = column.chunk(0).to_numpy()
        if not np.array_equal(matrix[:, i], values):
            return f"gives other values in column {i}"
        if matrix[:, i].__array_interface__["data"][0] != values.__array_interface__["data"][0]:
            return f"copies column {i}"
    return ""


def _grown(case: Case) -> float | None:
    """Return the time of the larger block over that of the smaller one."""
    if not case.timed("ours"):
        return None
    small, large = map(median, case.entries)
    return large / small


_CONSTANT = f"matrix, one allocation: {ROWS:,} rows take as long as {_SMALL:,}, within noise ({NOISE}x)"
BLOCK_PROMISES = (Promise(_CONSTANT, _grown, NOISE),)

SECTIONS = (
    Section(
        "matrix",
        f"{ROWS:,} rows x {COLUMNS} columns of float64, to one matrix",
        partial(tasks, questions),
        "rivals",
        partial(judge, PROMISES),
    ),
    Section(
        "block",
        f"the same with {COLUMNS} columns in one allocation: no bytes are copied",
        block_tasks,
        "series",
        partial(judge, BLOCK_PROMISES),
    ),
)
