"""Whole records to columns and back, with reused and with fresh memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import geometric_mean
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.layout.contest import (
    FRESH,
    LOOP,
    Method,
    Transposition,
    at_least,
    differs_from_columns,
    differs_from_records,
    namespace,
    share,
    timed,
)
from benchmarks.layout.copies import cores
from benchmarks.layout.data import LAYOUTS, Array, Layout, memory, native, records, size
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median

#: zerocopy without its compiled core, and the goal of its speed relative to an ordinary copy.
COLUMNS_BY_NUMBA, ROWS_BY_NUMBA = "columns_by_numba(r, o)", "rows_by_numba(c, r)"
BY_NUMBA_TO_COPY = 0.7

ORDINARY, STREAMED = "copy(w, raw)", "stream(w, raw)"

#: Goals: speed relative to an ordinary and to a non-temporal copy.
COLUMNS_TO_COPY, COLUMNS_TO_STREAM = 1.10, 0.85
ROWS_TO_COPY, WIDE_ROWS_TO_COPY = 1.05, 0.8
#: Records with more bytes are wide.
WIDE = 64
#: Goals: speed relative to ``np.ascontiguousarray`` of each field, in general and with 64 fields.
TO_PER_FIELD, TO_64_FIELDS = 4, 15


def _mixed(dtype: np.dtype[Any]) -> str:
    """Return why records are not a matrix, or nothing."""
    return "its fields are not of one type" if len(set(native(dtype).values())) > 1 else ""


def _foreign(dtype: np.dtype[Any]) -> str:
    """Return why Numba does not support a record type, or nothing."""
    swapped = any(not dtype[name].isnative for name in dtype.names or ())
    return "Numba has no types in the other byte order" if swapped else ""


_THREADS = f"{cores()} threads" if cores() > 1 else "one thread"

COPIES = (
    Method(
        ORDINARY,
        "reference",
        "ordinary copy",
        f"ordinary copy: np.copyto of as many bytes as the records, {_THREADS}",
        gives="w",
    ),
    Method(
        STREAMED,
        "reference",
        "non-temporal copy",
        f"non-temporal copy: of as many bytes as the records, {_THREADS}",
        gives="w",
    ),
)

TO_COLUMNS = (
    Method("zc.aos_to_soa(r, out=o)", "ours", "zerocopy", gives="o"),
    Method("zc.aos_to_soa(r)", "ours", "zerocopy, fresh memory", FRESH),
    *COPIES,
    Method(
        COLUMNS_BY_NUMBA,
        "reference",
        "zerocopy with Numba",
        "Numba loop of zerocopy: aos_to_soa without the compiled core",
        gives="o",
    ),
    Method("for f in o: np.copyto(o[f], r[f])", "idiom", "np.copyto per field", gives="o"),
    Method(
        "{f: np.ascontiguousarray(r[f]) for f in r.dtype.names}",
        "idiom",
        "np.ascontiguousarray per field",
        FRESH,
    ),
    Method(
        "np.copyto(m, rf.structured_to_unstructured(r).T)",
        "idiom",
        "structured_to_unstructured, np.copyto",
        gives="dict(zip(o, m))",
        refuses=_mixed,
    ),
    Method(
        "np.ascontiguousarray(rf.structured_to_unstructured(r).T)",
        "idiom",
        "structured_to_unstructured",
        FRESH,
        reads="dict(zip(o, y))",
        refuses=_mixed,
    ),
    Method("split(r, *columns)", "idiom", "Numba loop", f"{LOOP}, one thread", gives="o", refuses=_foreign),
    Method(
        "split_parallel(r, *columns)",
        "idiom",
        "Numba loop, parallel",
        f"{LOOP}, parallel=True",
        gives="o",
        refuses=_foreign,
    ),
    Method("pd.DataFrame(r)", "library", "pandas.DataFrame", FRESH, reads="{f: y[f].to_numpy() for f in y}"),
    Method(
        "pl.from_numpy(r)", "library", "polars.from_numpy", FRESH, reads="{s.name: s.to_numpy() for s in y}"
    ),
    Method(
        "{f: pa.array(np.ascontiguousarray(r[f])) for f in r.dtype.names}",
        "library",
        "pyarrow per field",
        FRESH,
        reads="{f: column.to_numpy(zero_copy_only=False) for f, column in y.items()}",
    ),
)

TO_ROWS = (
    Method("zc.soa_to_aos(c, dtype, out=r)", "ours", "zerocopy", gives="r"),
    Method("zc.soa_to_aos(c, dtype)", "ours", "zerocopy, fresh memory", FRESH),
    *COPIES,
    Method(
        ROWS_BY_NUMBA,
        "reference",
        "zerocopy with Numba",
        "Numba loop of zerocopy: soa_to_aos without the compiled core",
        gives="r",
    ),
    Method("for f in c: r[f] = c[f]", "idiom", "assignment per field", gives="r"),
    Method("np.rec.fromarrays([*c.values()], dtype=dtype)", "idiom", "np.rec.fromarrays", FRESH),
    Method(
        "rf.unstructured_to_structured(m.T, dtype)",
        "idiom",
        "unstructured_to_structured",
        FRESH,
        refuses=_mixed,
    ),
    Method("merge(r, *columns)", "idiom", "Numba loop", f"{LOOP}, one thread", gives="r", refuses=_foreign),
    Method(
        "merge_parallel(r, *columns)",
        "idiom",
        "Numba loop, parallel",
        f"{LOOP}, parallel=True",
        gives="r",
        refuses=_foreign,
    ),
    Method(
        "pd.DataFrame(c, copy=False).to_records(index=False)", "library", "pandas.DataFrame.to_records", FRESH
    ),
    Method("pl.DataFrame(c).to_numpy(structured=True)", "library", "polars.DataFrame.to_numpy", FRESH),
)


def to_columns(layout: Layout, nbytes: int) -> Transposition:
    """Return the contest of records to columns."""
    r = records(layout.dtype, nbytes // layout.dtype.itemsize)
    o = zc.aos_to_soa(r, copy=True)
    names = namespace(r) | {"r": r, "o": o, "columns": [*o.values()]} | _loops(layout.dtype, "split")
    targets = [names["w"], *o.values()]
    if not _mixed(layout.dtype):
        # Like `o`, the rows of one matrix.
        shape = (len(o), len(r))
        names["m"] = memory(r.nbytes).view(next(iter(o.values())).dtype).reshape(shape)
        targets.append(names["m"])
    return Transposition(layout.case, names, targets, differs_from_columns(r))


def to_rows(layout: Layout, nbytes: int) -> Transposition:
    """Return the contest of columns to records."""
    source = records(layout.dtype, nbytes // layout.dtype.itemsize)
    c = zc.aos_to_soa(source, copy=True)
    r = memory(source.nbytes).view(layout.dtype)
    names = namespace(source) | {"r": r, "c": c, "columns": [*c.values()]} | _loops(layout.dtype, "merge")
    if not _mixed(layout.dtype):
        names["m"] = np.stack([*c.values()])
    return Transposition(layout.case, names, [names["w"], r], differs_from_records(source))


def _loops(dtype: np.dtype[Any], name: str) -> dict[str, Any]:
    try:
        from benchmarks.layout import loops
    except ImportError:
        return {}  # the methods that need them are left out
    make = getattr(loops, name)
    names = {"columns_by_numba": loops.columns_by_numba, "rows_by_numba": loops.rows_by_numba}
    return names | {name: make(dtype, parallel=False), f"{name}_parallel": make(dtype, parallel=True)}


def fresh(layout: Layout, nbytes: int) -> Transposition:
    """Return the contest with ``r.copy()``: each call allocates, writes and frees memory."""
    r = records(layout.dtype, nbytes // layout.dtype.itemsize)
    names = {"zc": zc, "dtype": r.dtype, "r": r, "c": zc.aos_to_soa(r, copy=True)}
    names["raw"] = r.view(np.uint8)
    columns, rows = differs_from_columns(r), differs_from_records(r)

    def differs(result: Any) -> str:
        return columns(result) if isinstance(result, dict) else rows(result)

    return Transposition(layout.case, names, [], differs)


IN_FRESH = (
    Method("zc.aos_to_soa(r)", "ours", note=FRESH),
    Method("zc.soa_to_aos(c, dtype)", "ours", note=FRESH),
    Method("r.copy()", "reference", note=FRESH),
    # NumPy copies records more slowly than bytes: this shows the speed of the memory.
    Method("raw.copy()", "reference", note=f"{FRESH}, the same bytes, not as records"),
)


def _tasks(
    make: Callable[[Layout, int], Transposition], methods: Sequence[Method], settings: Settings
) -> list[Task]:
    """Return a task for each record type."""
    at_least(settings, max(layout.dtype.itemsize for layout in LAYOUTS))
    return [Task(layout.case, partial(_run, make, methods, layout, settings)) for layout in LAYOUTS]


def _run(
    make: Callable[[Layout, int], Transposition],
    methods: Sequence[Method],
    layout: Layout,
    settings: Settings,
) -> list[Case]:
    contest = make(layout, size(settings))
    case = contest.run(methods, settings)
    source: Array = contest.names["r"]
    case.figures = {"bytes a record": layout.dtype.itemsize, "records": len(source)}
    rates = {
        # With enough digits that rounding again gives the figures of the page.
        f"GB/s {method.name or method.code}": round(source.nbytes / median(entry), 6)
        for method in methods
        if method.role in ("ours", "reference") and (entry := timed(case, method.code))
    }
    case.figures |= rates
    text = ", ".join(f"{name.removeprefix('GB/s ')} {rate:.1f}" for name, rate in rates.items())
    case.remarks.append(f"GB/s, records counted once: {text}")
    return [case]


# -- goals ------------------------------------------------------------------------


def _goal(name: str, case: str, ours: Entry, other: Entry | None, times: float) -> list[Goal]:
    """Return the goal that zerocopy is `times` times as fast."""
    return [] if other is None else [Goal(name, case, share(ours, other), 1 / times, "x")]


def _column_goals(cases: Sequence[Case]) -> list[Goal]:
    judged: list[Goal] = []
    for case in cases:
        ours = timed(case, TO_COLUMNS[0].code)
        if ours is None:
            continue
        ordinary, streamed = timed(case, ORDINARY), timed(case, STREAMED)
        name = f"to columns: {COLUMNS_TO_COPY} times as fast as an ordinary copy"
        judged += _goal(name, case.name, ours, ordinary, COLUMNS_TO_COPY)
        name = f"to columns: {COLUMNS_TO_STREAM} times as fast as a non-temporal copy"
        judged += _goal(name, case.name, ours, streamed, COLUMNS_TO_STREAM)
        times = TO_64_FIELDS if case.name.startswith("64 x") else TO_PER_FIELD
        each = next((e for e in case.timed("idiom") if e.label.startswith("{f: np.ascontig")), None)
        name = f"to columns: {times} times as fast as np.ascontiguousarray per field"
        judged += _goal(name + " (64 fields)" * (times == TO_64_FIELDS), case.name, ours, each, times)
        judged += _ahead("to columns", case, ours, timed(case, TO_COLUMNS[1].code))
    return judged + _numba_goal("to columns", cases, COLUMNS_BY_NUMBA)


def _row_goals(cases: Sequence[Case]) -> list[Goal]:
    judged: list[Goal] = []
    for case in cases:
        ours = timed(case, TO_ROWS[0].code)
        if ours is None:
            continue
        wide = case.figures["bytes a record"] > WIDE
        times = WIDE_ROWS_TO_COPY if wide else ROWS_TO_COPY
        which = "wider records" if wide else f"up to {WIDE} bytes"
        name = f"to rows, {which}: {times} times as fast as an ordinary copy"
        judged += _goal(name, case.name, ours, timed(case, ORDINARY), times)
        judged += _ahead("to rows", case, ours, timed(case, TO_ROWS[1].code))
    return judged + _numba_goal("to rows", cases, ROWS_BY_NUMBA)


def _numba_goal(where: str, cases: Sequence[Case], code: str) -> list[Goal]:
    """Compare the Numba loops of zerocopy with an ordinary copy, by the geometric mean of all records."""
    pairs = [(timed(case, code), timed(case, ORDINARY)) for case in cases]
    shares = [share(ours, other) for ours, other in pairs if ours and other]
    if not shares:
        return []
    name = f"{where}, Numba without the core: {BY_NUMBA_TO_COPY} times as fast as an ordinary copy"
    return [Goal(name, "geometric mean", geometric_mean(shares), 1 / BY_NUMBA_TO_COPY, "x")]


def _ahead(where: str, case: Case, ours: Entry, in_fresh: Entry | None) -> list[Goal]:
    """Compare with each other method; with fresh memory, zerocopy has it too."""
    judged: list[Goal] = []
    for entry in case.timed("idiom", "library"):
        against = f"{case.name} against {entry.label}"
        others = "a Numba loop for the dtype" if entry.note.startswith(LOOP) else "every other method"
        judged += _goal(f"{where}: ahead of {others}", against, ours, entry, 1)
        if entry.note == FRESH and in_fresh is not None:
            judged += _goal(f"{where}, fresh memory on both sides: ahead", against, in_fresh, entry, 1)
    return judged


def _fresh_goals(cases: Sequence[Case]) -> list[Goal]:
    judged: list[Goal] = []
    for case in cases:
        copied = timed(case, "r.copy()")
        for method, name in zip(IN_FRESH, ("to columns", "to rows"), strict=False):
            ours = timed(case, method.code)
            if ours is not None:
                judged += _goal(f"{name}, fresh memory: as fast as r.copy()", case.name, ours, copied, 1)
    return judged


SECTIONS = (
    Section(
        "to-columns",
        "records to columns (AoS to SoA); the output is reused except with fresh memory",
        partial(_tasks, to_columns, TO_COLUMNS),
        "rivals",
        _column_goals,
    ),
    Section(
        "to-rows",
        "columns to records (SoA to AoS); the output is reused except with fresh memory",
        partial(_tasks, to_rows, TO_ROWS),
        "rivals",
        _row_goals,
    ),
    Section(
        "fresh",
        "each call allocates, writes and frees memory",
        partial(_tasks, fresh, IN_FRESH),
        "rivals",
        _fresh_goals,
    ),
)
