"""Columns of Python objects, whose cells are vectors of one length, to one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.suite import Case, Goal, Section, Settings, Task, median
from benchmarks.tables.contest import Method, Question, array

ROWS, WIDTH = 20_000, 768
#: Rows of lists, whose numbers are Python objects.
LISTS = 2_000
STACK, LIST_STACK = 1.0, 1.5  # goals relative to np.stack


def _table(rows: int) -> Any:
    import pyarrow as pa

    values = np.random.default_rng(0).random(rows * WIDTH, np.float32)
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(pa.array(values), WIDTH)})


def _objects(table: Any, lists: bool = False) -> dict[str, Any]:
    """Return the vectors as a series of arrays, as ``pandas.read_parquet`` does, or of lists."""
    import pandas as pd

    matrix = table["vector"].combine_chunks().flatten().to_numpy().reshape(len(table), WIDTH)
    return {"s": pd.Series([row.tolist() if lists else row.copy() for row in matrix])}


def questions(rows: int = ROWS, lists: int = LISTS) -> list[Question]:
    """Return a question for cells that are arrays, and one for lists."""
    methods = [
        Method('zc.convert(s, "torch")', "ours"),
        Method("torch.from_numpy(np.stack(s))", "idiom"),
        Method("torch.from_numpy(np.array(s.tolist()))", "idiom"),
    ]
    frameworks = ("pandas", "torch", "pyarrow")
    return [
        Question("arrays -> torch", partial(_table, rows), methods, array, frameworks, _objects),
        Question(
            "lists -> torch",
            partial(_table, lists),
            methods,
            array,
            frameworks,
            partial(_objects, lists=True),
        ),
    ]


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each type of cells."""
    return [Task(q.name, partial(q.run, settings)) for q in questions() if q.wanted(settings)]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare zerocopy with ``np.stack``."""
    judged = []
    for case in cases:
        (ours,) = case.timed("ours")
        limit = STACK if case.name.startswith("arrays") else LIST_STACK
        for entry in case.timed("idiom"):
            if "np.stack" in entry.label:
                ratio = median(ours) / median(entry)
                judged.append(Goal(f"np.stack: {limit}x at most", case.name, ratio, limit, "x"))
    return judged


SECTIONS = (
    Section(
        "objects",
        f"{ROWS:,} arrays of {WIDTH} float32, or {LISTS:,} lists, as objects to one tensor",
        tasks,
        "rivals",
        goals,
    ),
)
