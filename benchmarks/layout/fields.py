"""Selected fields to columns, and the time by the number of records, compared with NumPy per field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.goals import NOISE, Promise, judge, labelled, ratio
from benchmarks.layout.contest import FRESH, Method, Transposition, at_least, by_code, differs_from, namespace
from benchmarks.layout.data import LAYOUTS, PARTICLE, Array, Layout, records, size
from benchmarks.layout.moves import COPIES
from benchmarks.suite import Case, Goal, Section, Settings, Task

_WANTED = (["x"], ["id", "vy", "t"])
_LAYOUTS = tuple(layout for layout in LAYOUTS if layout.name in ("particle", "particle, aligned"))

METHODS = (
    Method("zc.aos_to_soa(r, fields=fields, out=o)", "ours", gives="o"),
    Method("zc.aos_to_soa(r, fields=fields)", "ours", note=FRESH),
    Method("for f in fields: np.copyto(o[f], r[f])", "idiom", gives="o"),
    Method("{f: np.ascontiguousarray(r[f]) for f in fields}", "idiom", FRESH),
    COPIES[0],  # of whole records: the cost of reading and writing all bytes
)


def name_of(layout: Layout, wanted: Sequence[str]) -> str:
    """Return the name of a case."""
    return f"{', '.join(wanted)} of {len(layout.dtype)} fields, {layout.case}"


def contest(layout: Layout, wanted: Sequence[str], nbytes: int) -> Transposition:
    """Return the contest for selected fields of a record type."""
    r = records(layout.dtype, nbytes // layout.dtype.itemsize)
    o = zc.aos_to_soa(r, fields=wanted, copy=True)
    names = namespace(r) | {"r": r, "o": o, "fields": wanted}
    chosen = r[list(wanted)]  # a view
    return Transposition(name_of(layout, wanted), names, [names["w"], *o.values()], differs_from(chosen))


def tasks(settings: Settings) -> list[Task]:
    at_least(settings, max(layout.dtype.itemsize for layout in _LAYOUTS))
    return [
        Task(name_of(layout, wanted), partial(_run, layout, wanted, settings))
        for layout in _LAYOUTS
        for wanted in _WANTED
    ]


def _run(layout: Layout, wanted: Sequence[str], settings: Settings) -> list[Case]:
    case = contest(layout, wanted, size(settings)).run(by_code(METHODS), settings)
    case.figures = {
        "bytes a record": layout.dtype.itemsize,
        "bytes wanted of a record": sum(layout.dtype[name].itemsize for name in wanted),
    }
    return [case]


PROMISES = tuple(
    Promise(
        f"some fields{memory}: not slower than NumPy per field, within noise ({NOISE}x)",
        ratio(labelled(METHODS[i + 2].code), labelled(METHODS[i].code)),
        NOISE,
    )
    for i, memory in ((0, ""), (1, ", fresh memory"))
)


_ROWS = (1, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000, 10_000_000)

#: The goal for one record, as a multiple of NumPy's time: the calls of both take longer than the copies.
_ONE_RECORD = 1.5


def by_assignment(columns: Mapping[str, Array], dtype: np.dtype[Any]) -> Array:
    """Return new records of columns."""
    records = np.empty(len(next(iter(columns.values()))), dtype)
    for name, column in columns.items():
        records[name] = column
    return records


#: zerocopy and the same work with NumPy.
PAIRS = (
    (
        Method("zc.aos_to_soa(r, out=o)", "ours", gives="o"),
        Method("for f in o: np.copyto(o[f], r[f])", name="np.copyto per field", gives="o"),
    ),
    (
        Method("zc.aos_to_soa(r)", "ours"),
        Method(
            "{f: np.ascontiguousarray(r[f]) for f in r.dtype.names}", name="np.ascontiguousarray per field"
        ),
    ),
    (
        Method("zc.soa_to_aos(o, dtype, out=r)", "ours", gives="r"),
        Method("for f in o: r[f] = o[f]", name="assignment per field", gives="r"),
    ),
    (
        Method("zc.soa_to_aos(o, dtype)", "ours"),
        Method("by_assignment(o, dtype)", name="np.empty, assignment per field"),
    ),
)


def sizes_contest(rows: int) -> Transposition:
    """Return the contest for `rows` records; the input of one direction is the output of the other."""
    r = records(PARTICLE.dtype, rows)
    expected = r.copy()
    names = {"np": np, "zc": zc, "r": r, "o": zc.aos_to_soa(r, copy=True), "dtype": r.dtype}
    names["by_assignment"] = by_assignment
    return Transposition(f"{rows:,} records", names, [], differs_from(expected))


def sizes_tasks(settings: Settings) -> list[Task]:
    largest = 100_000 if settings.quick else max(_ROWS)
    return [
        Task(f"{rows:,} records", partial(_run_sizes, rows, settings)) for rows in _ROWS if rows <= largest
    ]


def _run_sizes(rows: int, settings: Settings) -> list[Case]:
    # By name, because columns are too narrow for code.
    methods = {method.name or method.code: method for pair in PAIRS for method in pair}
    case = sizes_contest(rows).run(methods, settings)
    case.figures = {"bytes of records": PARTICLE.dtype.itemsize * rows}
    return [case]


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Compare zerocopy with NumPy for each number of records."""
    name = f"any number of records: not slower than NumPy per field, within noise ({NOISE}x)"
    return [
        Goal(name, f"{case.name}, {ours.code}", value, _ONE_RECORD if case.name[:2] == "1 " else NOISE, "x")
        for case in cases
        for ours, theirs in PAIRS
        if (value := ratio(labelled(theirs.name), labelled(ours.code))(case)) is not None
    ]


SECTIONS = (
    Section(
        "fields", "some of the 13 fields of a particle, to columns", tasks, "rivals", partial(judge, PROMISES)
    ),
    Section("sizes", f"time by the number of records: {PARTICLE.case}", sizes_tasks, "series", goals),
)
