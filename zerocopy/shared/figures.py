"""How much shared memory this process has: its segments, its handles, and its mappings, for the monitor."""

from __future__ import annotations

import os
from collections import deque
from typing import Any, NamedTuple
from weakref import WeakValueDictionary, ref

from zerocopy import forks

#: How many references to handles there are when dead ones are first removed.
_FEWEST = 1000


class Handles:
    """The `Shared` objects that keep memory for other processes.

    Adding takes 0.3 us of the 10 us of a `share`, where a WeakValueDictionary takes 1 us.
    """

    def __init__(self) -> None:
        self._references: deque[ref[Any]] = deque()
        self._sweep_at = _FEWEST
        self._lock = forks.plain_lock()  # nothing waits for it: a sweep can run signal handlers

    def add(self, shared: Any) -> None:
        """Add an object, without keeping it."""
        self._references.append(ref(shared))
        if len(self._references) > self._sweep_at:
            self._sweep()

    def count(self) -> int:
        """Return how many of the objects are in use and not closed."""
        self._sweep()
        return sum(map(_is_open, self._references.copy()))

    def _sweep(self) -> None:
        """Remove dead references and closed objects, unless a sweep is running."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            references = self._references
            for _ in range(len(references)):
                # Only a sweep removes references, and those in use never leave: `count` may run meanwhile.
                if _is_open(references[0]):
                    references.rotate(-1)
                else:
                    references.popleft()
            self._sweep_at = max(_FEWEST, 2 * len(references))
        finally:
            self._lock.release()


def _is_open(reference: ref[Any]) -> bool:
    """Whether a handle is in use and not closed."""
    shared = reference()
    return shared is not None and not shared.closed


handles = Handles()
#: By identity. `Segment` and `Mapping` add their objects.
segments: WeakValueDictionary[int, Any] = WeakValueDictionary()
mappings: WeakValueDictionary[int, Any] = WeakValueDictionary()

# In a forked child the segments are the parent's. Handles and mappings are copies, which the child can use.
os.register_at_fork(after_in_child=segments.clear)


class SharedFigures(NamedTuple):
    """Counts and bytes, now.

    Attributes
    ----------
    segments, segment_bytes : int
        Segments that this process created, also those that it keeps for reuse.
    handles : int
        `Shared` objects that keep memory for other processes, and were not closed.
    mapped, mapped_bytes : int
        Segments of other processes that are mapped here.
    leases : int
        Locks of this process on segments: one for each mapping, also of its own segments.
    """

    segments: int
    segment_bytes: int
    handles: int
    mapped: int
    mapped_bytes: int
    leases: int


def read_figures() -> SharedFigures:
    """Return how much shared memory this process has now; nothing is opened."""
    own = [each for each in (reference() for reference in segments.valuerefs()) if each is not None]
    open_mappings = [each for each in (reference() for reference in mappings.valuerefs()) if each is not None]
    pid = os.getpid()
    others = {each.inode: each.length for each in open_mappings if each.location.pid != pid}
    return SharedFigures(
        len(own),
        sum(segment.size for segment in own),
        handles.count(),
        len(others),
        sum(others.values()),
        len(open_mappings),
    )
