"""Selected fields to columns: other fields should not cost time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import zerocopy as zc
from benchmarks.goals import NOISE, Promise, judge, labelled, ratio
from benchmarks.layout.contest import (
    FRESH,
    Method,
    Transposition,
    at_least,
    by_code,
    differs_from,
    namespace,
)
from benchmarks.layout.data import LAYOUTS, Layout, records, size
from benchmarks.layout.moves import COPIES
from benchmarks.suite import Case, Section, Settings, Task

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
    """Return a task for each record type and selection of fields."""
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

SECTIONS = (
    Section(
        "fields", "some of the 13 fields of a particle, to columns", tasks, "rivals", partial(judge, PROMISES)
    ),
)
