"""Contenders that are processes, which take turns block by block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.children import Side, started
from benchmarks.suite import Case, Entry
from benchmarks.timing import Pace, Raised, Timing, take_turns

#: The mode of the process without a pool.
WITHOUT = "off"


def label(mode: str) -> str:
    """Return the label of a mode in tables."""
    return "without" if mode == WITHOUT else f"host={mode!r}"


def sides(*modes: str) -> AbstractContextManager[list[Side]]:
    """Start a process for each mode; they end at the end of the block."""
    return started(Side(label(mode), mode) for mode in modes)


#: Nanoseconds per call, one for each block, by label; or what the contender raised.
Samples = dict[str, list[float] | Raised]


def turns(code: str, contenders: Iterable[Side], pace: Pace) -> Samples:
    """Time a statement in each process, in turns; the children have created its names."""

    def begin(side: Side) -> tuple[int, int]:
        calls = side.ask("calls", code, pace.block)
        return calls, side.ask("block", code, calls)

    def sample(side: Side, calls: int, before: list[Any]) -> float:
        return side.ask("block", code, calls) / calls

    samples, _, raised = take_turns({side.label: side for side in contenders}, pace, begin, sample)
    return {**samples, **raised}


def contest(name: str, several: Sequence[Samples], roles: Mapping[str, str] | None = None) -> Case:
    """Return a case with the samples of several sets of processes."""
    entries = []
    for one in several[0]:
        results = [samples[one] for samples in several]
        raised = next((result for result in results if isinstance(result, Raised)), None)
        timing = raised or Timing.of([sample for result in results for sample in result])
        role = roles[one] if roles else "idiom" if one == label(WITHOUT) else "ours"
        entries.append(Entry(one, role, timing))
    return Case(name, entries)
