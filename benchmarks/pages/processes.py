"""The page of the processes suite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.formats import format_duration, format_quantity
from benchmarks.pages.words import picture, series, table
from benchmarks.processes.engines import ENGINES
from benchmarks.processes.goals import PROMISES, Measure, Promise
from benchmarks.processes.scale import curves
from benchmarks.results import read_case
from benchmarks.suite import Case, Entry, median

TITLE = "Benchmarks of processes and machines"
ABOUT = "Arrays and tables between processes, compared with what each engine does without zerocopy."

#: Replaces "All contenders of a row run in one process": an exchange has two.
CONTENDERS = "The contenders of a row take turns in one run"
#: Fewer where an exchange takes longer than 0.1 s.
ROUNDS = "at most 15"

_UNITS = """\
"x" is the time of a memcpy of the same bytes, onto memory that was written to before, in the same turns.
Arrays are 64 MiB of float32, and tables 80 MB: 10 columns of float64 with 1,000,000 rows. The column
*without zerocopy* is the same exchange by the call that the line below the table names.
"""

_GOALS = """\
Over several frameworks, *without zerocopy* is the range, and *zerocopy* is the worst.
"""

_ALT = "Time from one process to another as a multiple of a memcpy, without and with zerocopy, by engine"
_PICTURE = "Cost of opening and sharing by the number of leases, of live segments and of workers"

_SECTIONS = {
    "pickle": "Pickle protocol 5",
    "share": "share()",
    "open": "Opening a handle",
    **{name: about for name, (_, about) in ENGINES.items()},
}


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    sections = {
        name.partition("/")[2]: [read_case(case) for case in cases]
        for name, cases in data["sections"].items()
    }
    cases = [case for section in sections.values() for case in section]
    parts = [picture("processes", _ALT), _UNITS, f"## Goals\n\n{_GOALS}\n{goals_table(cases)}\n"]
    parts += [
        f"## {title}\n\n{rows_table(sections[name])}\n"
        for name, title in _SECTIONS.items()
        if sections.get(name)
    ]
    if sections.get("readers"):
        parts.append(_scale(data, sections))
    return parts


def goals_table(cases: Iterable[Case], promises: Iterable[Promise] = PROMISES) -> str:
    """Return the table of goals: the limit, the figures without and with zerocopy, and the misses."""
    rows = []
    for promise in promises:
        concerned = [case for case in cases if promise.concerns(case)]
        values = _values(concerned, promise.measure)
        if not values:
            continue
        worst = max(values)
        rows.append(
            [
                promise.name,
                _limit(promise),
                _range(_values(concerned, promise.without), promise.unit),
                _show(worst, promise.unit),
                "yes" if worst <= promise.limit else _missed(promise, concerned),
            ]
        )
    return table(["goal", "limit", "without zerocopy", "zerocopy", "met"], rows)


def _limit(promise: Promise) -> str:
    return f"{promise.limit:,.0f} B" if promise.unit == "bytes" else f"{_show(promise.limit, promise.unit)}"


def _missed(promise: Promise, cases: Iterable[Case]) -> str:
    """Return the frameworks that miss a goal, each with its figure over the limit."""
    missed = []
    for case in cases:
        value = promise.measure(case)
        if value is not None and value > promise.limit:
            framework = case.name.rpartition(", ")[2]
            over = f"{value / promise.limit:.2g} times" if promise.limit else _show(value, promise.unit)
            missed.append(f"{framework}: {over}")
    return f"no ({', '.join(missed)})"


def _values(cases: Iterable[Case], measure: Measure) -> list[float]:
    return [value for case in cases if (value := measure(case)) is not None]


def _show(value: float, unit: str) -> str:
    return format_duration(value) if unit == "ns" else format_quantity(value, unit)


def _range(values: list[float], unit: str) -> str:
    shown = [_show(value, unit) for value in (min(values), max(values))] if values else []
    return " to ".join(dict.fromkeys(shown)) or "-"


def rows_table(cases: list[Case]) -> str:
    """Return a row for each case: without and with zerocopy, in multiples of the memcpy; other figures."""
    has_reference = any(case.timed("reference") for case in cases)
    figures = list(dict.fromkeys(name for case in cases for name in case.figures))
    heads = ["", "without zerocopy", "zerocopy", *(["reference"] if has_reference else []), *figures]
    rows = []
    for case in cases:
        reference = case.fastest("reference")
        row = [case.name, *(_time(case.fastest(role), reference) for role in ("idiom", "ours"))]
        row += [_time(reference, None)] if has_reference else []
        rows.append(row + [_figure(case, name) for name in figures])
    labels = dict.fromkeys(entry.label for case in cases for entry in case.timed("idiom"))
    remarks = list(dict.fromkeys(remark for case in cases for remark in case.remarks))
    left_out = [f"{case.name}: {e.label} {e.left_out}" for case in cases for e in case.entries if e.left_out]
    without = [f"Without zerocopy: {', '.join(f'`{label}`' for label in labels)}."] if labels else []
    lines = [*without, *remarks, *left_out]
    return table(heads, rows) + "".join(f"\n\n> {line}" for line in lines)


def _time(entry: Entry | None, reference: Entry | None) -> str:
    if entry is None:
        return "-"
    shown = format_duration(median(entry))
    if reference is None:
        return shown
    return f"{format_quantity(median(entry) / median(reference), 'x')} ({shown})"


def _figure(case: Case, name: str) -> str:
    if name not in case.figures:
        return "-"
    return format_quantity(case.figures[name], "bytes" if "bytes" in name else "")


def _scale(data: dict[str, Any], sections: dict[str, list[Case]]) -> str:
    parts = ["## One more reader, segment, worker\n", picture("processes-scale", _PICTURE)]
    for name, title in (("readers", "Readers"), ("segments", "Segments"), ("workers", "Workers")):
        if sections.get(name):
            parts.append(series_by_kind(data, f"processes/{name}", title))
    parts.append(_thousand(sections["readers"]))
    return "\n".join(parts)


def series_by_kind(data: dict[str, Any], section: str, title: str) -> str:
    """Return a table for each set of labels: small and large segments have different ones."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for case in data["sections"][section]:
        groups.setdefault(tuple(entry["label"] for entry in case["entries"]), []).append(case)
    tables = []
    for cases in groups.values():
        text = series(data | {"sections": {section: cases}}, section, title)
        tables.append(text.partition("\n\n")[2])
    return f"### {title}\n\n" + "\n".join(tables)


_PAPER = """\
### 1,000 workers

Assumptions: one machine; each worker is a process; a worker shares with readers by handles, which carry the
place of the memory, so that no process or lock is common to all workers.

- **Readers of one segment.** Each has a file description, a lease and a mapping of its own. The kernel keeps
  the leases of a segment in a list, which it reads when a lease is taken and when the owner looks for
  readers. Measured with {most:,} leases in 16 processes: {opening} to open, instead of {opening_few} with 1;
  {check} for the owner's check, instead of {check_few}. One more lease adds {per_open} to an open and
  {per_check} to a check. Reading 64 MiB takes at least a thousand times as long.
- **Segments of one owner.** A segment needs a mapping, and 2 file descriptors (1 from Python 3.13 on, where
  `mmap` does not duplicate it). With the usual soft limit of 1,024 descriptors, an owner has 500 live
  segments, or 1,000; `ulimit -n` raises it. `vm.max_map_count`, 65,530 by default, permits 65,000. Objects
  of up to 64 KiB lie in common segments of 1 MiB and need neither.
- **A reader of 1,000 workers** that keeps one object of each has 1,000 mappings, and 2,000 descriptors (1,000
  from Python 3.13 on): above the soft limit of 1,024. An integration that meets the limit raises
  `SharedMemoryError` with the code `no-file-descriptor`.
- **All to all.** 1,000 workers with an object of each other worker: 1,000,000 mappings and 2,000,000
  descriptors on the machine, below `fs.file-max`; each takes about 1 KB of kernel memory: 3 GB. Drop
  results that are no longer needed.
- **CPU.** A worker's share and open take the same CPU time with 1 and with 16 workers: they have no lock in
  common. With more workers than cores, each waits for its turn on a core; this is not part of the figures.
"""


def _thousand(cases: list[Case]) -> str:
    points = curves(cases)
    opens, checks = points["open"], points["recycle check"]
    few, most = min(opens), max(opens)

    def slope(times: dict[float, float]) -> str:
        return format_duration(max(0.0, times[most] - times[few]) / max(most - few, 1))

    return _PAPER.format(
        most=int(most),
        opening=format_duration(opens[most]),
        opening_few=format_duration(opens[few]),
        check=format_duration(checks[most]),
        check_few=format_duration(checks[few]),
        per_open=slope(opens),
        per_check=slope(checks),
    )
