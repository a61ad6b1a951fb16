"""The page of the loader suite."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.formats import format_duration, format_quantity, format_speedup
from benchmarks.loader.goals import (
    ELSEWHERE,
    FEWER,
    PEAK,
    PER_VALUE,
    PROMISES,
    Promise,
    times,
)
from benchmarks.loader.turns import TIMES
from benchmarks.pages.words import picture, table
from benchmarks.results import read_case
from benchmarks.suite import Case, Entry, median

TITLE = "Benchmarks of the loader"
ABOUT = "Epochs of batches from Parquet files, compared with pyarrow that only reads the same files."

#: Replaces "All contenders of a row run in one process": DataLoader has workers.
CONTENDERS = "The contenders of a row take turns in one run"
#: Fewer where an epoch takes longer than a quarter of a second.
ROUNDS = "at most 15"

_ALT = "Time of an epoch as a multiple of the time in which pyarrow reads the same file, by contender"

_UNITS = """\
"x" is the time of an epoch as a multiple of the bound: pyarrow reads the same file row group by row group,
one thread ahead, with its own threads for the columns of a row group, and does nothing with them. It has
pyarrow's default options: one thread reads the bytes of a row group, then all threads decode its columns. The
loader lets each thread read its own columns (`pre_buffer=False`), so it may take less time than the bound.
"""

_METHOD = """\
## Method

- **Data.** The file has 28 columns of float32 and a label of float32, of random values, in 8 row groups. It
  has no compression and no dictionaries, so that pyarrow decodes it at almost the speed of a memcpy. This is
  the hardest case for a loader: files with compression have a slower bound. Its pages are in the page cache
  of the system, so that no figure includes a disk. A batch has 8,192 rows.
- **Turns.** A turn of a contender is an epoch of the bound and an epoch of the contender, one after the
  other; which comes first changes from turn to turn. A ratio is the median of the ratios of the turns. An
  epoch drops its batches. Before it is timed, an epoch of each contender must have all rows: their number,
  and for the numbers the sum of their labels.
- **Outside of the clock.** `zc.loader` is created before the clock runs, and each turn is its next epoch,
  with the buffers of the epoch before. *created for the epoch* has its creation within the clock: footer,
  plan, new buffers. Workers of DataLoader run before the clock does, and so does the conversion of the file
  to an Arrow file by Hugging Face datasets, which then reads mapped memory.
- **Fewer rows.** Slow contenders read a smaller file. They have a table of their own, with the loader and
  the bound on the same file. No figure is extrapolated from one size to another.
- **Random orders differ.** `shuffle=True` permutes the order of row groups, and the rows of a window; the
  table states its rows. *Table.take* and *a permutation* permute the rows of one row group. DataLoader
  and datasets permute all rows.
- **Bytes** are counted by address: those of the batches that are inside of the columns that pyarrow decoded,
  inside of a buffer that a kernel of the loader has written, and elsewhere.
- **Memory** is the peak of resident memory in a fresh process, minus the memory before the loader was
  created, as the median of 3 processes.
"""

_WAITING = """\
The consumer multiplies matrices for {time} per batch in one thread, so that one of the cores is free to read.
"x" is the time of the epoch as a multiple of the computation alone: at 1.00x, reading adds no time.
"""

_SECTIONS = {"order": "In the order of the file", "shuffle": "In a random order"}


def body(data: dict[str, Any]) -> list[str]:
    """Return the page after its head."""
    sections = {
        name.partition("/")[2]: [read_case(case) for case in cases]
        for name, cases in data["sections"].items()
    }
    cases = [case for section in sections.values() for case in section]
    # Sections of a results file may be of later runs.
    notes = [f"{data['note']}\n"] if "note" in data else []
    parts = [*notes, picture("loader", _ALT), _UNITS, f"## Goals\n\n{goals_table(cases)}\n"]
    for name, title in _SECTIONS.items():
        parts.append(f"## {title}\n\n{_contests(sections.get(name, []))}")
    real = [*sections.get("flights", []), *sections.get("files", [])]
    parts += [
        f"## Targets\n\n{_targets(sections.get('targets', []))}\n",
        f"## Real files\n\n{_contests(real)}",
        f"## A consumer that computes\n\n{_waiting(sections.get('waiting', []))}\n",
        f"## Bytes written after decoding\n\n{_copies(sections.get('copies', []))}\n",
        f"## Memory\n\n{_memory(sections.get('memory', []))}\n",
    ]
    return [*parts, _METHOD, f"## What falls short\n\n{shortfalls(cases)}"]


def goals_table(cases: Iterable[Case]) -> str:
    """Return the table of goals: the limit, what others take, the loader's figure, and whether it is met."""
    rows, every = [], list(cases)
    for promise in PROMISES:
        concerned = ((case, promise.measure(case)) for case in _of(promise, every))
        judged = [(case, value) for case, value in concerned if value is not None]
        if not judged:
            continue
        worst = max(value for _, value in judged)
        missed = [case.name for case, value in judged if value > promise.limit]
        others = _others(promise, [case for case, _ in judged], every)
        met = f"no ({', '.join(missed)})" if missed else "yes"
        rows.append([promise.name, _limit(promise), others, _show(promise, worst), met])
    return table(["goal", "limit", "others", "zc.loader", "met"], rows)


def _of(promise: Promise, cases: list[Case]) -> list[Case]:
    return [case for case in cases if case.name in promise.cases]


def _others(promise: Promise, judged: list[Case], every: list[Case]) -> str:
    """Return the range of the ratios of others; with those of the same mode on fewer rows."""
    if promise.unit not in ("x", "speedup") or not any(map(times(), judged)):
        return "-"
    names = {case.name.removesuffix(FEWER) for case in judged}
    ratios = [
        case.figures[TIMES + entry.label]
        for case in every
        if case.name.removesuffix(FEWER) in names
        for entry in case.timed("idiom", "library")
        if TIMES + entry.label in case.figures and promise.others in ("", entry.label)
    ]
    shown = [format_quantity(value, "x") for value in (min(ratios), max(ratios))] if ratios else []
    return " to ".join(dict.fromkeys(shown)) or "-"


def _limit(promise: Promise) -> str:
    if promise.unit == "speedup":
        return f"at least {1 / promise.limit:.0f}x faster"
    return _show(promise, promise.limit)


def _show(promise: Promise, value: float) -> str:
    if promise.unit == "speedup":
        return format_speedup(1 / value)
    return f"{value:g}" if promise.unit == "writes" else format_quantity(value, promise.unit)


def _contests(cases: list[Case]) -> str:
    return "".join(f"### {_title(case)}\n\n{_contest(case)}\n" for case in cases)


def _title(case: Case) -> str:
    """Return the name of a case with its rows, and those of its window."""
    rows = f"{case.figures['rows']:,.0f} rows" if "rows" in case.figures else ""
    window = case.figures.get("rows of the window")
    facts = [rows, f"`shuffle=True` has windows of {window:,.0f} rows" if window else ""]
    return f"{case.name.removesuffix(FEWER)} ({', '.join(filter(None, facts))})"


def _contest(case: Case) -> str:
    """Return a row for each contender by its ratio; the bound first."""
    bound = [entry for entry in case.timed("reference") if TIMES + entry.label not in case.figures]
    others = [entry for entry in case.timed() if TIMES + entry.label in case.figures]
    others.sort(key=lambda entry: case.figures[TIMES + entry.label])
    rows = [[_label(entry), _ratio(case, entry), format_duration(median(entry)), _speed(case, entry)]
            for entry in (*bound, *others)]  # fmt: skip
    left_out = [f"\n> `{entry.label}` {entry.left_out}\n" for entry in case.entries if entry.left_out]
    return table(["", "x", "time of an epoch", "million rows per second"], rows) + "\n" + "".join(left_out)


def _label(entry: Entry) -> str:
    return f"**{entry.label}**" if entry.role == "ours" else entry.label


def _ratio(case: Case, entry: Entry) -> str:
    value = case.figures.get(TIMES + entry.label)
    return "1" if value is None else format_quantity(value, "x")


def _speed(case: Case, entry: Entry) -> str:
    return f"{case.figures['rows'] / median(entry) * 1e3:.3g}"


def _targets(cases: list[Case]) -> str:
    """Return a row for each target and a column for each mode, as multiples of the bound."""
    labels = list(dict.fromkeys(entry.label for case in cases for entry in case.timed("ours")))
    rows = []
    for label in labels:
        ratios = [case.figures.get(TIMES + label) for case in cases]
        shown = ["-" if value is None else format_quantity(value, "x") for value in ratios]
        rows.append([f"`{label}`", *shown])
    return table(["", *(case.name for case in cases)], rows)


def _waiting(cases: list[Case]) -> str:
    parts = []
    for case in cases:
        compute = next((value for name, value in case.figures.items() if name.startswith("nanoseconds")), 0.0)
        parts.append(_WAITING.format(time=format_duration(compute)) + "\n" + _contest(case))
    return "\n".join(parts)


def _copies(cases: list[Case]) -> str:
    """Return the share of the bytes of the batches by where they are."""
    kinds = ("in decoded columns", "in a buffer of rows", "in columns of one batch")
    heads = ["", *kinds, "elsewhere", "writes of a byte"]
    names = (*(f"bytes {kind}" for kind in kinds), ELSEWHERE)
    rows = []
    for case in cases:
        total = case.figures["bytes of the batches"]
        shares = [f"{case.figures[name] / total:.0%}" for name in names]
        rows.append([case.name, *shares, f"{case.figures[PER_VALUE]:.2g}"])
    text = "Batches whose rows are in two row groups are joined: they are *elsewhere*."
    return f"{table(heads, rows)}\n\n{text}"


def _memory(cases: list[Case]) -> str:
    rows = []
    for case in cases:
        names = [name.removeprefix(PEAK) for name in case.figures if name.startswith(PEAK)]
        for name in names:
            figures = [case.figures[kind + name] for kind in (PEAK, "Arrow's pool, ", "buffers of rows, ")]
            rows.append([f"{case.name}: {name}", *(format_quantity(each, "bytes") for each in figures)])
    remarks = list(dict.fromkeys(remark for case in cases for remark in case.remarks))
    heads = ["", "peak of the process", "peak of Arrow's pool", "buffers"]
    return f"{table(heads, rows)}\n\n" + "\n".join(f"{remark}." for remark in remarks)


def shortfalls(cases: Iterable[Case]) -> str:
    """Return the missed goals, and the contenders with the same order of rows that are faster."""
    lines, every = [], list(cases)
    for promise in PROMISES:
        for case in _of(promise, every):
            value = promise.measure(case)
            if value is not None and value > promise.limit:
                lines.append(f"- **{promise.name}**: {_show(promise, value)}; the goal is {_limit(promise)}.")
    for case in every:
        own = times()(case)
        if own is None:
            continue
        for entry in case.timed("idiom", "library"):
            other = case.figures[TIMES + entry.label]
            if other < own:
                ratios = f"{format_quantity(other, 'x')} instead of {format_quantity(own, 'x')}"
                lines.append(f"- **{_title(case)}**: {entry.label} takes less time: {ratios}.")
    best = "All goals are met, and no contender takes less time than `zc.loader`."
    return "\n".join(lines or [best]) + "\n"
