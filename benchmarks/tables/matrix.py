"""Columns to one matrix: in both orders, and without a copy if they are in one allocation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.conversion.inputs import NOISE
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.tables.contest import Method, Question, array, tasks
from benchmarks.tables.data import COLUMNS, ROWS, block, floats, installed, namespace, x64
from benchmarks.timing import Statement, measure

_SMALL = 1_000  # rows

_PYARROW = {
    ("numpy", "C"): [
        Method("b.to_tensor(row_major=True).to_numpy()", "documented"),
        Method('d.to_numpy(order="c")', "library"),
        Method("np.column_stack([c.chunk(0).to_numpy() for c in t.columns])"),
        Method("np.stack([c.chunk(0).to_numpy() for c in t.columns], axis=1)"),
        Method("np.ascontiguousarray(df.to_numpy())", "library", fails="gives object"),
    ],
    ("numpy", "F"): [
        Method("b.to_tensor(row_major=False).to_numpy()", "documented"),
        Method('d.to_numpy(order="fortran")', "library"),
        Method("np.stack([c.chunk(0).to_numpy() for c in t.columns]).T"),
        Method("np.asfortranarray(df.to_numpy())", "library", fails="gives object"),
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
            [Method(f'zc.convert({name}, "{target}", layout="matrix:{order}")', "ours"), *listed],
            array,
            (source, target),
        )
        for source, name, methods in (("pyarrow", "t", _PYARROW), ("polars", "d", _POLARS))
        for (target, order), listed in methods.items()
    ]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare zerocopy with the fastest call of pyarrow and polars."""
    judged = []
    for case in cases:
        ours, theirs = case.fastest("ours"), case.fastest("documented", "library")
        if ours and theirs:
            name = f"matrix: as fast as pyarrow's to_tensor and polars, within noise ({NOISE}x)"
            judged.append(Goal(name, case.name, median(ours) / median(theirs), NOISE, "x"))
    return judged


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
    by_label = {}
    wanted = ("t", "d", "b") if installed("polars") else ("t", "b")
    for rows in (_SMALL, ROWS):
        by_label[f"{rows:,} rows"] = namespace(block(rows), wanted)
    methods = [method for method in BLOCK if method.installed()]
    with x64():
        statements = {
            f"{method.code} {label}": Statement(method.code, names)
            for method in methods
            for label, names in by_label.items()
        }
        for method in methods:
            if method.role == "ours":
                for label, names in by_label.items():
                    wrong = differs(method, names)
                    if wrong:
                        raise AssertionError(f"{method.code} of {label} {wrong}")
        timings = measure(statements, settings.pace)
    return [
        Case(
            method.code, [Entry(label, method.role, timings[f"{method.code} {label}"]) for label in by_label]
        )
        for method in methods
    ]


def differs(method: Method, names: Mapping[str, Any]) -> str:
    """Return how a matrix differs from an alias of the columns of ``t``, or nothing."""
    matrix = array(Statement(method.code, names).value())
    for i, column in enumerate(names["t"].columns):
        values = column.chunk(0).to_numpy()
        if not np.array_equal(matrix[:, i], values):
            return f"gives other values in column {i}"
        if matrix[:, i].__array_interface__["data"][0] != values.__array_interface__["data"][0]:
            return f"copies column {i}"
    return ""


def _block_goals(cases: Sequence[Case]) -> list[Goal]:
    judged = []
    for case in cases:
        if case.timed("ours"):
            small, large = (median(entry) for entry in case.entries)
            name = (
                f"matrix, one allocation: {ROWS:,} rows take as long as {_SMALL:,}, within noise ({NOISE}x)"
            )
            judged.append(Goal(name, case.name, large / small, NOISE, "x"))
    return judged


SECTIONS = (
    Section(
        "matrix",
        f"{ROWS:,} rows x {COLUMNS} columns of float64, to one matrix",
        partial(tasks, questions),
        "rivals",
        goals,
    ),
    Section(
        "block",
        f"the same with {COLUMNS} columns in one allocation: no bytes are copied",
        block_tasks,
        "series",
        _block_goals,
    ),
)
