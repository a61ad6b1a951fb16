"""Whole records to columns and back, with reused and with fresh memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import geometric_mean
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.goals import Promise, judge, labelled, ratio
from benchmarks.layout.contest import (
    FRESH,
    LOOP,
    Method,
    Transposition,
    at_least,
    by_code,
    differs_from,
    namespace,
    share,
)
from benchmarks.layout.copies import cores
from benchmarks.layout.data import LAYOUTS, Array, Layout, memory, native, records, size
from benchmarks.suite import Case, Goal, Section, Settings, Task, median

#: zerocopy without its compiled core, and the goal of its speed relative to an ordinary copy.
COLUMNS_BY_NUMBA, ROWS_BY_NUMBA = "columns_by_numba(r, o)", "rows_by_numba(c, r)"
BY_NUMBA_TO_COPY = 0.7

ORDINARY, STREAMED = "copy(w, raw)", "stream(w, raw)"
PER_FIELD = "{f: np.ascontiguousarray(r[f]) for f in r.dtype.names}"

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
        f"ordinary copy: np.copyto of as many bytes as the records by blocks, {_THREADS}",
        "ordinary copy",
        gives="w",
    ),
    Method(
        STREAMED,
        "reference",
        f"non-temporal copy: of as many bytes as the records, {_THREADS}",
        "non-temporal copy",
        gives="w",
    ),
)


def _loop_methods(names: str, gives: str) -> tuple[Method, Method]:
    """Return the Numba loops for this dtype, with one thread and with all."""
    common = {"gives": gives, "refuses": _foreign}
    return (
        Method(f"{names}(r, *columns)", "idiom", f"{LOOP}, one thread", "Numba loop", **common),
        Method(
            f"{names}_parallel(r, *columns)",
            "idiom",
            f"{LOOP}, parallel=True",
            "Numba loop, parallel",
            **common,
        ),
    )


def _by_numba(code: str, function: str, gives: str) -> Method:
    note = f"Numba loop of zerocopy: {function} without the compiled core"
    return Method(code, "reference", note, "zerocopy with Numba", gives=gives)


_UNSTRUCTURED = "rf.structured_to_unstructured(r).T"

TO_COLUMNS = (
    Method("zc.aos_to_soa(r, out=o)", "ours", "", "zerocopy", gives="o"),
    Method("zc.aos_to_soa(r)", "ours", FRESH, "zerocopy, fresh memory"),
    *COPIES,
    _by_numba(COLUMNS_BY_NUMBA, "aos_to_soa", "o"),
    Method("for f in o: np.copyto(o[f], r[f])", "idiom", "", "np.copyto per field", gives="o"),
    Method(PER_FIELD, "idiom", FRESH, "np.ascontiguousarray per field"),
    Method(f"np.copyto(m, {_UNSTRUCTURED})", gives="dict(zip(o, m))", refuses=_mixed),
    Method(f"np.ascontiguousarray({_UNSTRUCTURED})", "idiom", FRESH, reads="dict(zip(o, y))", refuses=_mixed),
    *_loop_methods("split", "o"),
    Method("pd.DataFrame(r)", "library", FRESH, reads="{f: y[f].to_numpy() for f in y}"),
    Method("pl.from_numpy(r)", "library", FRESH, reads="{s.name: s.to_numpy() for s in y}"),
    Method(
        "{f: pa.array(np.ascontiguousarray(r[f])) for f in r.dtype.names}",
        "library",
        FRESH,
        reads="{f: column.to_numpy(zero_copy_only=False) for f, column in y.items()}",
    ),
)

TO_ROWS = (
    Method("zc.soa_to_aos(c, dtype, out=r)", "ours", "", "zerocopy", gives="r"),
    Method("zc.soa_to_aos(c, dtype)", "ours", FRESH, "zerocopy, fresh memory"),
    *COPIES,
    _by_numba(ROWS_BY_NUMBA, "soa_to_aos", "r"),
    Method("for f in c: r[f] = c[f]", "idiom", "", "assignment per field", gives="r"),
    Method("np.rec.fromarrays([*c.values()], dtype=dtype)", "idiom", FRESH),
    Method("rf.unstructured_to_structured(m.T, dtype)", "idiom", FRESH, refuses=_mixed),
    *_loop_methods("merge", "r"),
    Method("pd.DataFrame(c, copy=False).to_records(index=False)", "library", FRESH),
    Method("pl.DataFrame(c).to_numpy(structured=True)", "library", FRESH),
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
    return Transposition(layout.case, names, targets, differs_from(r))


def to_rows(layout: Layout, nbytes: int) -> Transposition:
    """Return the contest of columns to records."""
    source = records(layout.dtype, nbytes // layout.dtype.itemsize)
    c = zc.aos_to_soa(source, copy=True)
    r = memory(source.nbytes).view(layout.dtype)
    names = namespace(source) | {"r": r, "c": c, "columns": [*c.values()]} | _loops(layout.dtype, "merge")
    if not _mixed(layout.dtype):
        names["m"] = np.stack([*c.values()])
    return Transposition(layout.case, names, [names["w"], r], differs_from(source))


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
    return Transposition(layout.case, names, [], differs_from(r))


IN_FRESH = (
    Method("zc.aos_to_soa(r)", "ours", FRESH),
    Method("zc.soa_to_aos(c, dtype)", "ours", FRESH),
    Method("r.copy()", "reference", FRESH),
    # NumPy copies records more slowly than bytes: this shows the speed of the memory.
    Method("raw.copy()", "reference", f"{FRESH}, the same bytes, not as records"),
)


def _tasks(
    make: Callable[[Layout, int], Transposition], methods: Sequence[Method], settings: Settings
) -> list[Task]:
    at_least(settings, max(layout.dtype.itemsize for layout in LAYOUTS))
    return [Task(layout.case, partial(_run, make, methods, layout, settings)) for layout in LAYOUTS]


def _run(
    make: Callable[[Layout, int], Transposition],
    methods: Sequence[Method],
    layout: Layout,
    settings: Settings,
) -> list[Case]:
    contest = make(layout, size(settings))
    case = contest.run(by_code(methods), settings)
    source: Array = contest.names["r"]
    case.figures = {"bytes a record": layout.dtype.itemsize, "records": len(source)}
    rates = {
        # With enough digits that rounding again gives the figures of the page.
        f"GB/s {method.name or method.code}": round(source.nbytes / median(entry), 6)
        for method in methods
        if method.role in ("ours", "reference") and (entry := labelled(method.code)(case))
    }
    case.figures |= rates
    text = ", ".join(f"{name.removeprefix('GB/s ')} {rate:.1f}" for name, rate in rates.items())
    case.remarks.append(f"GB/s, records counted once: {text}")
    return [case]


# -- goals ------------------------------------------------------------------------


def _times_as_fast(name: str, times: float, ours: str, other: str, **which: Any) -> Promise:
    """Return the promise that zerocopy is `times` times as fast as another method."""
    return Promise(name, ratio(labelled(other), labelled(ours)), 1 / times, **which)


def _goals(
    where: str, promises: Sequence[Promise], numba: str, methods: Sequence[Method], cases: Sequence[Case]
) -> list[Goal]:
    """Judge the promises, and compare zerocopy with each other method, and its Numba loops with a copy."""
    judged = judge(promises, cases)
    for case in cases:
        ours, in_fresh = (labelled(method.code)(case) for method in methods[:2])
        for entry in case.timed("idiom", "library") if ours else ():
            against = f"{case.name} against {entry.label}"
            others = "a Numba loop for the dtype" if entry.note.startswith(LOOP) else "every other method"
            judged.append(Goal(f"{where}: ahead of {others}", against, share(ours, entry), 1, "x"))
            if entry.note == FRESH and in_fresh is not None:
                name = f"{where}, fresh memory on both sides: ahead"
                judged.append(Goal(name, against, share(in_fresh, entry), 1, "x"))
    shares = [v for case in cases if (v := ratio(labelled(ORDINARY), labelled(numba))(case)) is not None]
    if shares:
        name = f"{where}, Numba without the core: {BY_NUMBA_TO_COPY} times as fast as an ordinary copy"
        judged.append(Goal(name, "geometric mean", geometric_mean(shares), 1 / BY_NUMBA_TO_COPY, "x"))
    return judged


_MANY = tuple(layout.case for layout in LAYOUTS if layout.name.startswith("64 x"))
_FEW = tuple(layout.case for layout in LAYOUTS if layout.case not in _MANY)
_WIDE = tuple(layout.case for layout in LAYOUTS if layout.dtype.itemsize > WIDE)
_NARROW = tuple(layout.case for layout in LAYOUTS if layout.case not in _WIDE)
_COLUMNS, _ROWS = TO_COLUMNS[0].code, TO_ROWS[0].code

_TO_COLUMNS = (
    *(
        _times_as_fast(f"to columns: {times} times as fast as {what} copy", times, _COLUMNS, code)
        for times, what, code in (
            (COLUMNS_TO_COPY, "an ordinary", ORDINARY),
            (COLUMNS_TO_STREAM, "a non-temporal", STREAMED),
        )
    ),
    *(
        _times_as_fast(
            f"to columns: {times} times as fast as np.ascontiguousarray per field{which}",
            times,
            _COLUMNS,
            PER_FIELD,
            cases=cases,
        )
        for times, which, cases in ((TO_PER_FIELD, "", _FEW), (TO_64_FIELDS, " (64 fields)", _MANY))
    ),
)
_TO_ROWS = tuple(
    _times_as_fast(
        f"to rows, {which}: {times} times as fast as an ordinary copy", times, _ROWS, ORDINARY, cases=cases
    )
    for which, times, cases in (
        (f"up to {WIDE} bytes", ROWS_TO_COPY, _NARROW),
        ("wider records", WIDE_ROWS_TO_COPY, _WIDE),
    )
)
_FRESH = tuple(
    _times_as_fast(f"{name}, fresh memory: as fast as r.copy()", 1, method.code, "r.copy()")
    for method, name in zip(IN_FRESH, ("to columns", "to rows"), strict=False)
)

SECTIONS = (
    Section(
        "to-columns",
        "records to columns (AoS to SoA); the output is reused except with fresh memory",
        partial(_tasks, to_columns, TO_COLUMNS),
        "rivals",
        partial(_goals, "to columns", _TO_COLUMNS, COLUMNS_BY_NUMBA, TO_COLUMNS),
    ),
    Section(
        "to-rows",
        "columns to records (SoA to AoS); the output is reused except with fresh memory",
        partial(_tasks, to_rows, TO_ROWS),
        "rivals",
        partial(_goals, "to rows", _TO_ROWS, ROWS_BY_NUMBA, TO_ROWS),
    ),
    Section(
        "fresh",
        "each call allocates, writes and frees memory",
        partial(_tasks, fresh, IN_FRESH),
        "rivals",
        partial(judge, _FRESH),
    ),
)
