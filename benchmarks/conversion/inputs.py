"""The cost of a conversion by the size of the array, and by the form of the call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import zerocopy as zc
from benchmarks.contest import Contest, Method
from benchmarks.conversion.contenders import Pair, essential, pairs, sources, targets
from benchmarks.conversion.subjects import SUBJECTS, Subject, aligned_values
from benchmarks.goals import NOISE, Promise, judge, labelled, ratio
from benchmarks.machine import within_memory
from benchmarks.suite import Case, Section, Settings, Task
from benchmarks.timing import Pace

SMALL, LARGE = 2**12, 2**30  # bytes, which the goal compares
SIZES = (4, 64, SMALL, 2**16, 2**20, 2**26, LARGE)
QUICK_SIZES = (4, SMALL, 2**26)
#: The name of an ordinary copy, in results and in the picture.
COPY = "a copy (np.copyto)"


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
    contest = Contest()  # sizes take turns like contenders, because they are compared
    for target in targets(source, settings):
        case = contest.case(f"{source.name} -> {target}", remarks=remarks)
        ours, _ = essential((source.name, target))
        for size, x in arrays.items():
            note = "" if zc.shares_memory(x, zc.convert(x, target)) else "copies"
            contest.add(case, size_name(size), "ours", ours.statement({"x": x}), note=note)
    return contest.time(settings.pace)


def _copies(settings: Settings) -> list[Case]:
    """Time a copy of the same size, between arrays that have been written to."""
    sizes, remarks = _fitting_sizes(settings)
    contest = Contest()
    case = contest.case(COPY, remarks=remarks)
    for size in sizes:
        count = max(size // 4, 1)
        names = {"x": aligned_values(count), "out": aligned_values(count)}
        contest.add(case, size_name(size), "reference", Method("np.copyto(out, x)").statement(names))
    return contest.time(settings.pace)


PROMISES = (
    Promise(
        f"1 GiB takes as long as 4 KiB, within noise ({NOISE}x)",
        ratio(labelled(size_name(SMALL), "ours"), labelled(size_name(LARGE), "ours")),
        NOISE,
    ),
)


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
    names = {"x": x, "y": zc.convert(x, target), "convert": zc.convert}
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
    return calls(" -> ".join(pair), {code: code for code in codes}, names, pace)


def calls(name: str, codes: Mapping[str, str], names: Mapping[str, Any], pace: Pace) -> list[Case]:
    """Time calls of zerocopy in turns, by their labels, without a check."""
    contest = Contest()
    case = contest.case(name)
    for label, code in codes.items():
        contest.add(case, label, "ours", Method(code).statement(names))
    return contest.time(pace)


SIZES_SECTION = Section(
    "sizes",
    "zerocopy, from one element to 1 GiB of float32, and an ordinary copy for comparison",
    size_tasks,
    "series",
    partial(judge, PROMISES),
)
CALLS_SECTION = Section("calls", "zerocopy: forms of the call, and other functions", call_tasks, "figures")
