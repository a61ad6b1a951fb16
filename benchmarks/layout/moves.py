"""Whole records to columns and back, in memory that is used again and in fresh memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.layout.contest import (
    FRESH,
    LOOP,
    Contest,
    Method,
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

ORDINARY, STREAMED = "copy(w, raw)", "stream(w, raw)"

#: How many times as fast as an ordinary and as a non-temporal copy it has to be.
COLUMNS_TO_COPY, COLUMNS_TO_STREAM = 1.10, 0.85
ROWS_TO_COPY, WIDE_ROWS_TO_COPY = 1.05, 0.8
#: Bytes past which a record is wide.
WIDE = 64
#: How many times as fast as ``np.ascontiguousarray`` of each field, and with 64 fields.
TO_PER_FIELD, TO_64_FIELDS = 4, 15


def _mixed(dtype: np.dtype[Any]) -> str:
    """Return why records are no matrix."""
    return "its fields are not of one type" if len(set(native(dtype).values())) > 1 else ""


def _foreign(dtype: np.dtype[Any]) -> str:
    """Return why Numba has no type for records."""
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


def to_columns(layout: Layout, nbytes: int) -> Contest:
    """Return the contest of records to columns."""
    r = records(layout.dtype, nbytes // layout.dtype.itemsize)
    o = zc.aos_to_soa(r, copy=True)
    names = namespace(r) | {"r": r, "o": o, "columns": [*o.values()]} | _loops(layout.dtype, "split")
    targets = [names["w"], *o.values()]
    if not _mixed(layout.dtype):
        # As `o` is: the rows of one matrix.
        shape = (len(o), len(r))
        names["m"] = memory(r.nbytes).view(next(iter(o.values())).dtype).reshape(shape)
        targets.append(names["m"])
    return Contest(layout.case, names, targets, differs_from_columns(r))


def to_rows(layout: Layout, nbytes: int) -> Contest:
    """Return the contest of columns to records."""
    given = records(layout.dtype, nbytes // layout.dtype.itemsize)
    c = zc.aos_to_soa(given, copy=True)
    r = memory(given.nbytes).view(layout.dtype)
    names = namespace(given) | {"r": r, "c": c, "columns": [*c.values()]} | _loops(layout.dtype, "merge")
    if not _mixed(layout.dtype):
        names["m"] = np.stack([*c.values()])
    return Contest(layout.case, names, [names["w"], r], differs_from_records(given))


def _loops(dtype: np.dtype[Any], name: str) -> dict[str, Any]:
    try:
        from benchmarks.layout import loops
    except ImportError:
        return {}  # then the methods that need them are left out
    make = getattr(loops, name)
    return {name: make(dtype, parallel=False), f"{name}_parallel": make(dtype, parallel=True)}


def fresh(layout: Layout, nbytes: int) -> Contest:
    """Return the contest with ``r.copy()``: memory is taken, written and given back in each call."""
    r = records(layout.dtype, nbytes // layout.dtype.itemsize)
    names = {"zc": zc, "dtype": r.dtype, "r": r, "c": zc.aos_to_soa(r, copy=True)}
    names["raw"] = r.view(np.uint8)
    columns, rows = differs_from_columns(r), differs_from_records(r)

    def differs(found: Any) -> str:
        return columns(found) if isinstance(found, dict) else rows(found)

    return Contest(layout.case, names, [], differs)


IN_FRESH = (
    Method("zc.aos_to_soa(r)", "ours", note=FRESH),
    Method("zc.soa_to_aos(c, dtype)", "ours", note=FRESH),
    Method("r.copy()", "reference", note=FRESH),
    # NumPy is slower at copying records than bytes: so that nobody takes its speed for the memory's.
    Method("raw.copy()", "reference", note=f"{FRESH}, the same bytes and no records"),
)


def _tasks(
    make: Callable[[Layout, int], Contest], methods: Sequence[Method], settings: Settings
) -> list[Task]:
    """One task a type of records."""
    at_least(settings, max(layout.dtype.itemsize for layout in LAYOUTS))
    return [Task(layout.case, partial(_run, make, methods, layout, settings)) for layout in LAYOUTS]


def _run(
    make: Callable[[Layout, int], Contest], methods: Sequence[Method], layout: Layout, settings: Settings
) -> list[Case]:
    contest = make(layout, size(settings))
    case = contest.run(methods, settings)
    source: Array = contest.names["r"]
    case.figures = {"bytes a record": layout.dtype.itemsize, "records": len(source)}
    rates = {
        # So many digits that rounding them again gives what the page, which divides itself, says.
        f"GB/s {method.name or method.code}": round(source.nbytes / median(entry), 6)
        for method in methods
        if method.role in ("ours", "reference") and (entry := timed(case, method.code))
    }
    case.figures |= rates
    said = ", ".join(f"{name.removeprefix('GB/s ')} {rate:.1f}" for name, rate in rates.items())
    case.remarks.append(f"GB/s, records counted once: {said}")
    return [case]


# -- goals ------------------------------------------------------------------------


def _goal(name: str, case: str, ours: Entry, other: Entry | None, times: float) -> list[Goal]:
    """Judge that ours is so many times as fast."""
    return [] if other is None else [Goal(name, case, share(ours, other), 1 / times, "x")]


def _column_goals(cases: Sequence[Case]) -> list[Goal]:
    found: list[Goal] = []
    for case in cases:
        ours = timed(case, TO_COLUMNS[0].code)
        if ours is None:
            continue
        ordinary, streamed = timed(case, ORDINARY), timed(case, STREAMED)
        name = f"to columns: {COLUMNS_TO_COPY} times as fast as an ordinary copy"
        found += _goal(name, case.name, ours, ordinary, COLUMNS_TO_COPY)
        name = f"to columns: {COLUMNS_TO_STREAM} times as fast as a non-temporal copy"
        found += _goal(name, case.name, ours, streamed, COLUMNS_TO_STREAM)
        times = TO_64_FIELDS if case.name.startswith("64 x") else TO_PER_FIELD
        each = next((e for e in case.timed("idiom") if e.label.startswith("{f: np.ascontig")), None)
        name = f"to columns: {times} times as fast as np.ascontiguousarray per field"
        found += _goal(name + " (64 fields)" * (times == TO_64_FIELDS), case.name, ours, each, times)
        found += _ahead("to columns", case, ours, timed(case, TO_COLUMNS[1].code))
    return found


def _row_goals(cases: Sequence[Case]) -> list[Goal]:
    found: list[Goal] = []
    for case in cases:
        ours = timed(case, TO_ROWS[0].code)
        if ours is None:
            continue
        wide = case.figures["bytes a record"] > WIDE
        times = WIDE_ROWS_TO_COPY if wide else ROWS_TO_COPY
        which = "wide ones" if wide else f"up to {WIDE} bytes"
        name = f"to rows, {which}: {times} times as fast as an ordinary copy"
        found += _goal(name, case.name, ours, timed(case, ORDINARY), times)
        found += _ahead("to rows", case, ours, timed(case, TO_ROWS[1].code))
    return found


def _ahead(where: str, case: Case, ours: Entry, in_fresh: Entry | None) -> list[Goal]:
    """Judge that ours is ahead of each other method; and ours in fresh memory of those that take it."""
    found: list[Goal] = []
    for entry in case.timed("idiom", "library"):
        against = f"{case.name} against {entry.label}"
        what = "a Numba loop for the dtype" if entry.note.startswith(LOOP) else "every other method"
        found += _goal(f"{where}: ahead of {what}", against, ours, entry, 1)
        if entry.note == FRESH and in_fresh is not None:
            found += _goal(f"{where}, fresh memory on both sides: ahead", against, in_fresh, entry, 1)
    return found


def _fresh_goals(cases: Sequence[Case]) -> list[Goal]:
    found: list[Goal] = []
    for case in cases:
        copied = timed(case, "r.copy()")
        for method, name in zip(IN_FRESH, ("to columns", "to rows"), strict=False):
            ours = timed(case, method.code)
            if ours is not None:
                found += _goal(f"{name}, fresh memory: as fast as r.copy()", case.name, ours, copied, 1)
    return found


SECTIONS = (
    Section(
        "to-columns",
        "records to columns (AoS to SoA), the output used again unless it says fresh memory",
        partial(_tasks, to_columns, TO_COLUMNS),
        "rivals",
        _column_goals,
    ),
    Section(
        "to-rows",
        "columns to records (SoA to AoS), the output used again unless it says fresh memory",
        partial(_tasks, to_rows, TO_ROWS),
        "rivals",
        _row_goals,
    ),
    Section(
        "fresh",
        "memory is taken from the system, written and given back in each call",
        partial(_tasks, fresh, IN_FRESH),
        "rivals",
        _fresh_goals,
    ),
)
