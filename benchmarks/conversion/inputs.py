"""The cost of a conversion by the size of the array, and by the form of the call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

import zerocopy as zc
from benchmarks.conversion.contenders import Contender, Pair, contenders, namespace, pairs, statement
from benchmarks.conversion.subjects import SUBJECTS, Subject, aligned_values
from benchmarks.machine import available_memory
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Pace, Statement, measure

SMALL, LARGE = 2**12, 2**30  # bytes, which the goal compares
SIZES = (4, 64, SMALL, 2**16, 2**20, 2**26, LARGE)
QUICK_SIZES = (4, SMALL, 2**26)
#: The name of an ordinary copy, in results and in the picture.
COPY = "a copy (np.copyto)"
#: Tolerance for noise of medians on a shared machine.
NOISE = 1.1


def sources(settings: Settings) -> list[Subject]:
    """Return the frameworks to convert from."""
    names = dict.fromkeys(source for source, _ in pairs(settings.wants))
    return [SUBJECTS[name] for name in names]


def targets(source: Subject, settings: Settings) -> list[str]:
    """Return the targets of a source."""
    return [target for name, target in pairs(settings.wants) if name == source.name]


def ours(pair: Pair) -> Contender:
    """Return the contender of zerocopy."""
    return contenders(pair)[0]


def within_memory(sizes: Sequence[int]) -> list[int]:
    """Return the sizes of which three arrays fit in half of the free memory."""
    return [size for size in sizes if size * 6 <= available_memory()] or [min(sizes)]


def size_name(size: int) -> str:
    """Return a size with its unit.

    Examples
    --------
    >>> size_name(4), size_name(4096), size_name(2**30)
    ('4 B', '4 KiB', '1 GiB')
    """
    for unit, bytes_ in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= bytes_ and size % bytes_ == 0:
            return f"{size // bytes_} {unit}"
    return f"{size} B"


def size_tasks(settings: Settings) -> list[Task]:
    """Return a task for each source, whose arrays serve all targets, and one for the copy."""
    origins = sources(settings)
    tasks = [Task(f"from {source.name}", partial(_sizes, source, settings)) for source in origins]
    # Second, so that a run that is cut short has it for comparison.
    return [*tasks[:1], *[Task("a copy", partial(_copies, settings))] * bool(origins), *tasks[1:]]


def _fitting_sizes(settings: Settings) -> tuple[list[int], list[str]]:
    """Return the sizes that fit in memory, and remarks on those that do not."""
    wanted = settings.sizes or (QUICK_SIZES if settings.quick else SIZES)
    sizes = within_memory(sorted(wanted))
    return sizes, [f"not enough memory for {size_name(size)}" for size in wanted if size not in sizes]


def _sizes(source: Subject, settings: Settings) -> list[Case]:
    sizes, remarks = _fitting_sizes(settings)
    arrays = {size: source.make(aligned_values(max(size // 4, 1))) for size in sizes}
    statements = {
        f"{target}, {size_name(size)}": statement(ours((source.name, target)), (source.name, target), x)
        for target in targets(source, settings)
        for size, x in arrays.items()
    }
    # Sizes take turns like contenders, because they are compared.
    timings = measure(statements, settings.pace)
    cases = []
    for target in targets(source, settings):
        case = Case(f"{source.name} -> {target}", remarks=list(remarks))
        for size, x in arrays.items():
            name = size_name(size)
            alias = zc.shares_memory(x, zc.convert(x, target))
            case.entries.append(Entry(name, "ours", timings[f"{target}, {name}"], "" if alias else "copies"))
        cases.append(case)
    return cases


def _copies(settings: Settings) -> list[Case]:
    """Time a copy of the same size, between arrays that have been written to."""
    sizes, remarks = _fitting_sizes(settings)
    statements = {}
    for size in sizes:
        count = max(size // 4, 1)
        names = {"np": np, "x": aligned_values(count), "out": aligned_values(count)}
        statements[size_name(size)] = Statement("np.copyto(out, x)", names)
    timings = measure(statements, settings.pace)
    entries = [Entry(name, "reference", timing) for name, timing in timings.items()]
    return [Case(COPY, entries, remarks=remarks)]


def _size_goals(cases: Sequence[Case]) -> list[Goal]:
    judged = []
    for case in cases:
        by_label = {entry.label: entry for entry in case.timed("ours")}
        small, large = by_label.get(size_name(SMALL)), by_label.get(size_name(LARGE))
        if small and large:
            ratio = median(large) / median(small)
            name = f"1 GiB takes as long as 4 KiB, within noise ({NOISE}x)"
            judged.append(Goal(name, case.name, ratio, NOISE, "x"))
    return judged


def call_tasks(settings: Settings) -> list[Task]:
    """Return a task for each of two pairs: all forms of the call, and other functions."""
    return [
        Task(" -> ".join(pair), partial(_calls, pair, settings.pace))
        for pair in (("numpy", "torch"), ("torch", "numpy"))
        if pair in pairs(settings.wants)
    ]


def _calls(pair: Pair, pace: Pace) -> list[Case]:
    source, target = pair
    x = SUBJECTS[source].make(aligned_values(1000))
    names = namespace(pair) | {"x": x, "y": zc.convert(x, target), "convert": zc.convert}
    codes = (
        f'convert(x, "{target}")',
        f'zc.convert(x, "{target}")',
        f'zc.convert(x, to="{target}")',
        f'zc.convert(x, "{source}")',
        f'zc.convert(x, "{target}", copy=False)',
        f'zc.convert(x, "{target}", device="cpu")',
        f'zc.explain(x, "{target}")',
        "zc.view(x)",
        "zc.shares_memory(x, y)",
    )
    timings = measure({code: Statement(code, names) for code in codes}, pace)
    return [Case(" -> ".join(pair), [Entry(code, "ours", timings[code]) for code in codes])]


SIZES_SECTION = Section(
    "sizes",
    "zerocopy, from one element to 1 GiB of float32, and an ordinary copy for comparison",
    size_tasks,
    "series",
    _size_goals,
)
CALLS_SECTION = Section("calls", "zerocopy: forms of the call, and other functions", call_tasks, "figures")
