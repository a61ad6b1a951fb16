"""The cost of one more reader, one more segment and one more worker."""

from __future__ import annotations

import random
import resource
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.children import Side, started
from benchmarks.suite import Case, Entry, Goal, Section, Settings, Task, median
from benchmarks.timing import Timing

#: Figures of a case: what is counted.
LEASES, SEGMENTS, WORKERS = "leases", "live segments", "workers"
#: Goal: the time with the most over the time with the fewest.
GROWTH = 2.0

_READERS, _QUICK_READERS = (1, 2, 4, 8, 16), (1, 2)
#: More leases than processes: each process holds several, with a file description each, as 1,000 readers do.
_LEASES, _QUICK_LEASES = (64, 256, 1_024), (16,)
_SEGMENTS, _QUICK_SEGMENTS = (1, 10, 100, 1_000, 10_000), (1, 50)
_WORKERS, _QUICK_WORKERS = (1, 2, 4, 8, 16), (1, 2)
#: Above 64 KiB a block has a segment.
_LARGE, _SMALL = 68 << 10, 1 << 10
#: Before Python 3.13, `mmap` duplicates the descriptor.
_DESCRIPTORS = 1 if sys.version_info >= (3, 13) else 2
_SPARE_DESCRIPTORS = 600


class Process(Side):
    """A process that runs `benchmarks.processes.worker`."""

    program = "benchmarks.processes.worker"


def processes(count: int) -> AbstractContextManager[list[Process]]:
    """Start processes; they end at the end of the block."""
    return started(Process(f"worker {number}") for number in range(count))


def _readers(settings: Settings) -> list[Case]:
    """Measure with 1 to 16 processes that hold a lease, then with more leases in the same processes."""
    counts, more = (_QUICK_READERS, _QUICK_LEASES) if settings.quick else (_READERS, _LEASES)
    rounds = 20 if settings.quick else 300
    shared = zc.share(np.ones(1 << 20, np.uint8))
    handle = bytes(shared).hex()
    block = shared._keep
    cases = []
    with processes(counts[-1] + 1) as (probe, *readers):
        for count in (*counts, *more):
            each = max(1, count // len(readers))
            for reader in readers[:count]:
                reader.ask("hold", handle, each)
            opened = probe.ask("open", handle, rounds)
            # False: the block has leases, so that nothing changes.
            checked = _samples(partial(block.segment.claim, block.generation), rounds)
            name = f"{count:,} leases in {min(count, len(readers))} processes"
            cases.append(_case(name, {LEASES: count}, {"open": opened, "recycle check": checked}))
    return cases


def _segments(settings: Settings) -> list[Case]:
    counts = _QUICK_SEGMENTS if settings.quick else _SEGMENTS
    return [case for size in (_LARGE, _SMALL) for case in _live(size, counts, 20 if settings.quick else 300)]


def _live(nbytes: int, counts: Sequence[int], rounds: int) -> Iterator[Case]:
    """Measure with live objects of one size; large ones have a segment each."""
    kind = "small" if nbytes == _SMALL else "large"
    limit = min(counts[-1], _room()) if kind == "large" else counts[-1]
    x = np.ones(nbytes, np.uint8)
    placed = zc.shared_empty(nbytes, "u1")
    live: list[Any] = []
    # A random one, because reading the same one again and again finds all of it in caches.
    picked = partial(random.Random(0).choice, live)
    for count in dict.fromkeys(min(count, limit) for count in counts):
        live += [zc.share(x) for _ in range(count - len(live))]
        zc.share(x).close()  # leaves an idle block, so that the next ones are recycled
        timed = {
            f"share, {kind}": _samples(partial(zc.share, x), rounds),
            f"open, {kind}": _samples(_open, rounds, lambda: bytes(picked())),
        }
        if kind == "large":
            timed["share, already shared"] = _samples(partial(zc.share, placed), rounds)
        yield _case(f"{count:,} live, {kind}", {SEGMENTS: count}, timed)


def _open(data: bytes) -> Any:
    return zc.convert(zc.Shared.from_bytes(data), to="numpy")


def _workers(settings: Settings) -> list[Case]:
    """Measure the CPU time of processes that share and open at once; each opens the handle of the next."""
    counts, rounds = (_QUICK_WORKERS, 10) if settings.quick else (_WORKERS, 300)
    repeats = 2 if settings.quick else 5
    nbytes = 1 << 20
    cases = []
    with processes(counts[-1]) as every:
        handles = [one.ask("prepare", nbytes) for one in every]
        for count in counts:
            active = every[:count]
            shares, opens = [], []
            for _ in range(repeats):
                for number, one in enumerate(active):
                    one.start("work", handles[(number + 1) % len(handles)], rounds)
                results = [one.result() for one in active]
                shares.append(statistics.median(share for share, _ in results))
                opens.append(statistics.median(opened for _, opened in results))
            timed = {"share 1 MiB, CPU time": shares, "open, CPU time": opens}
            cases.append(_case(f"{count} workers", {WORKERS: count}, timed))
    return cases


def _samples(call: Callable[..., Any], rounds: int, prepare: Callable[[], Any] | None = None) -> list[int]:
    """Return the nanoseconds of each call; its argument is prepared outside of the clock."""
    samples = []
    for _ in range(rounds):
        arguments = () if prepare is None else (prepare(),)
        start = perf_counter_ns()
        call(*arguments)
        samples.append(perf_counter_ns() - start)
    return samples


def _room() -> int:
    """Return how many segments the limit on descriptors permits, raised as far as this process may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(1, (hard - _SPARE_DESCRIPTORS) // _DESCRIPTORS)


def _case(
    name: str, figures: dict[str, float], samples: dict[str, list[int]] | dict[str, list[float]]
) -> Case:
    entries = [Entry(label, "ours", Timing.of(values)) for label, values in samples.items()]
    return Case(name, entries, figures)


def curves(cases: Sequence[Case]) -> dict[str, dict[float, float]]:
    """Return for each label the medians in nanoseconds, by the count."""
    points: dict[str, dict[float, float]] = {}
    for case in cases:
        for entry in case.timed():
            points.setdefault(entry.label, {})[next(iter(case.figures.values()))] = median(entry)
    return points


def goals(cases: Sequence[Case]) -> list[Goal]:
    """Judge that each cost is constant: with the most, at most `GROWTH` times that with the fewest.

    Leases are judged up to one for each process.
    """
    judged = []
    alone = [case for case in cases if case.figures.get(LEASES, 0) <= _READERS[-1]]
    for label, points in curves(alone).items():
        if len(points) > 1:
            what = next(iter(cases[0].figures))
            name = f"scale: cost with the most {what} over that with the fewest"
            growth = points[max(points)] / points[min(points)]
            judged.append(Goal(name, label, growth, GROWTH, "x"))
    return judged


def _tasks(name: str, measure: Callable[[Settings], list[Case]], settings: Settings) -> list[Task]:
    return [Task(name, partial(measure, settings), seconds=4)] if settings.wants("numpy") else []


SECTIONS = (
    Section("readers", "one segment, by its leases", partial(_tasks, "readers", _readers), "series", goals),
    Section(
        "segments", "by the number of live segments", partial(_tasks, "segments", _segments), "series", goals
    ),
    Section(
        "workers",
        "processes that share and open at once: CPU time, because they share the cores",
        partial(_tasks, "workers", _workers),
        "series",
        goals,
    ),
)
