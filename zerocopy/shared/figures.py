"""How much shared memory this process has: its segments, its handles, and its mappings, for the monitor."""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

#: By identity. `Segment`, `Mapping` and `Shared` add their objects.
segments: WeakValueDictionary[int, Any] = WeakValueDictionary()
mappings: WeakValueDictionary[int, Any] = WeakValueDictionary()
#: The `Shared` objects that keep memory for other processes.
handles: WeakValueDictionary[int, Any] = WeakValueDictionary()

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
    own, open_mappings, pid = _alive(segments), _alive(mappings), os.getpid()
    others = {each.inode: each.length for each in open_mappings if each.location.pid != pid}
    return SharedFigures(
        len(own),
        sum(segment.size for segment in own),
        sum(not shared.closed for shared in _alive(handles)),
        len(others),
        sum(others.values()),
        len(open_mappings),
    )


def _alive(objects: WeakValueDictionary[int, Any]) -> list[Any]:
    return [each for each in (reference() for reference in objects.valuerefs()) if each is not None]
