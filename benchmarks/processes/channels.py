"""Frames from one process to others: the channel and other ways, in turns.

Latency is the time from the start of handing over a frame until the last reader has the array and has read
one byte of each of its pages. ``put`` and "copy" hand over a frame that was computed before; ``slot`` and
"loan" write the frame within the clock, in the memory that readers see. "stream" is the time of a frame when
the writer does not wait for readers; they are at most some frames behind.
"""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np

import zerocopy as zc
from benchmarks.contest import installed
from benchmarks.goals import Promise, figure, judge, labelled, ratio
from benchmarks.processes.frames import IN_SHARED_MEMORY, SLOTS, WAYS, Way
from benchmarks.suite import Case, Entry, Section, Settings, Suite, Task
from benchmarks.timing import Pace, Raised, Timing, take_turns

SIZES = {"4 kB": 4 << 10, "4 MB": 4 << 20, "64 MB": 64 << 20}
_READERS = {"1 reader": 1, "3 readers": 3}
#: The measures of a row; a case is one of them.
P50, P99, STREAM = MEASURES = ("p50", "p99", "stream")
#: In the names of cases in which the writer computes frames in shared memory.
IN_PLACE = " in place"
COPIED = "frames copied"
_ROUNDS, _BLOCK = 40, 15_000_000
_PATIENCE, _QUICK_PATIENCE = 2_000_000_000, 200_000_000
_MOST_FRAMES = 60


@dataclass(frozen=True)
class _Contender:
    """A function that hands over the frame of a number, and its way."""

    way: Way
    hand_over: Callable[[int], Any]

    def latency(self, number: int) -> int:
        start = perf_counter_ns()
        self.hand_over(number)
        return max(self.way.times(number)) - start

    def stream(self, frames: int) -> float:
        """Return the nanoseconds of a frame in a stream: readers report the last one."""
        start = perf_counter_ns()
        for _ in range(frames - 1):
            self.hand_over(0)
        self.hand_over(1)
        return (max(self.way.times(1)) - start) / frames


def _begin(contender: _Contender) -> tuple[int, int]:
    """Warm up; return the frames of a turn, and its duration."""
    for number in range(1, 2 * SLOTS):
        contender.latency(number)
    each = statistics.median(contender.latency(number) for number in range(1, SLOTS))
    frames = round(min(max(_BLOCK // each, 2), _MOST_FRAMES))
    return frames, round(each * (2 * frames + SLOTS))


def _turn(contender: _Contender, frames: int, before: list[Any]) -> tuple[list[int], float]:
    """Return latencies, and the time of a frame in a stream; the first frame of a turn is not counted."""
    latencies = [contender.latency(1 + number % 250) for number in range(frames + 1)]
    return latencies[1:], contender.stream(frames + SLOTS)


def _row(name: str, nbytes: int, readers: int, settings: Settings) -> list[Case]:
    left_out, contenders, roles = [], {}, {}
    with ExitStack() as stack:
        for kind in WAYS:
            if not installed(kind.package):
                left_out.append(Entry(kind.__name__, kind.role, left_out="is not installed"))
                continue
            try:
                way = stack.enter_context(closing(kind(nbytes, readers)))
            except Exception as error:  # noqa: BLE001 - the others are measured without it
                left_out.append(Entry(kind.__name__, kind.role, left_out=Raised.of(error).why))
                continue
            for label, hand_over in way.hand_over.items():
                contenders[label], roles[label] = _Contender(way, hand_over), kind.role
        patience = _QUICK_PATIENCE if settings.quick else _PATIENCE
        pace: Pace = replace(settings.pace, rounds=min(settings.pace.rounds, _ROUNDS), patience=patience)
        samples, _, raised = take_turns(contenders, pace, _begin, _turn)
    cases = []
    for where, copied in zip(("", IN_PLACE), _copied(nbytes), strict=True):
        several = [Case(f"{measure}{where}, {name}") for measure in MEASURES]
        several[0].figures[COPIED] = copied
        for label, role in roles.items():
            if (label in IN_SHARED_MEMORY) == bool(where):
                for case, timing in zip(several, _timings(samples[label]), strict=True):
                    case.entries.append(Entry(label, role, raised.get(label, timing)))
        cases += several
    for case in cases[: len(MEASURES)]:
        case.entries += left_out
    return cases


def _timings(turns: Sequence[tuple[list[int], float]]) -> list[Timing | Raised | None]:
    """Return the timings of `MEASURES`."""
    latencies = [latency for several, _ in turns for latency in several]
    if len(latencies) < 2:
        return [None] * len(MEASURES)
    late = statistics.quantiles(latencies, n=100, method="inclusive")[98]
    p50 = Timing.of(latencies)
    return [p50, replace(p50, median=late), Timing.of([stream for _, stream in turns])]


def _copied(nbytes: int) -> list[float]:
    """Return how often `put` and `slot` copy a frame: into the slot, or to memory allocated for it."""
    channel = zc.channel({"frame": ((nbytes,), "u1")})
    reader = channel.read()
    frame = np.ones(nbytes, np.uint8)

    def put() -> int:
        channel.put({"frame": frame})
        return nbytes

    def write() -> int:
        with channel.slot() as slot:
            slot["frame"].fill(1)
        return 0

    return [_allocated(call, reader) / nbytes for call in (put, write)]


def _allocated(call: Callable[[], int], reader: Any) -> int:
    """Return the bytes that a call copies, and those that are allocated for it and for reading it."""
    call(), next(reader)  # allocations of the first call are not for its frame
    tracemalloc.start()
    try:
        copied = call()
        batch = next(reader)
        return copied + tracemalloc.get_traced_memory()[1] * bool(batch)
    finally:
        tracemalloc.stop()


def _tasks(settings: Settings) -> list[Task]:
    if not settings.wants("numpy"):
        return []
    sizes = {f"{nbytes} bytes": nbytes for nbytes in settings.sizes} or dict(SIZES)
    readers = dict(_READERS)
    if settings.quick:
        sizes.pop("64 MB", None)
        readers.popitem()
    rows = [(f"{size}, {several}", sizes[size], readers[several]) for size in sizes for several in readers]
    return [Task(name, partial(_row, name, *numbers, settings), seconds=20) for name, *numbers in rows]


_PUT = tuple(f"{P50}, 4 MB, {readers}" for readers in _READERS)
_SLOT = tuple(f"{P50}{IN_PLACE}, 4 MB, {readers}" for readers in _READERS)
#: The others of the goals, by the start of their labels.
_OTHERS = ("multiprocessing", "torch", "ZeroMQ", "Ray")

PROMISES = (
    Promise("put over a copy into iceoryx2's sample", ratio(labelled("iceoryx2")), 1.2, cases=_PUT),
    Promise("slot over iceoryx2's sample", ratio(labelled("iceoryx2")), 1.2, cases=_SLOT),
    *(Promise(f"put over {name}", ratio(labelled(name)), 0.2, cases=_PUT) for name in _OTHERS),
    Promise("put: frames copied", figure(COPIED), 1.01, "", cases=_PUT),
    Promise("slot: frames copied", figure(COPIED), 0.01, "", cases=_SLOT),
)

SUITE = Suite(
    "channels",
    "frames from one process to others: channels, iceoryx2, queues, ZeroMQ and Ray",
    (
        Section(
            "frames", "4 kB, 4 MB and 64 MB to 1 and 3 readers", _tasks, "series", partial(judge, PROMISES)
        ),
    ),
    frameworks=("numpy",),
    distributions=("numpy", "torch", "iceoryx2", "pyzmq", "ray"),
)
