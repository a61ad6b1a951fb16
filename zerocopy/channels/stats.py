"""The state of a channel: items that were put, slots and readers."""

from __future__ import annotations

from typing import NamedTuple

from zerocopy.channels import ring as protocol
from zerocopy.channels.memory import Holder
from zerocopy.channels.ring import CLOSED, DROPPED, HEAD, Ring


class QueueReader(NamedTuple):
    """A reader of a queue.

    Attributes
    ----------
    pid : int
    taken : int
        The number of the last item that it took.
    """

    pid: int
    taken: int


class ChannelStats(NamedTuple):
    """The state of a channel, now.

    Attributes
    ----------
    published, dropped : int
        Items that were put, and that were not put because no slot was free (``full="drop"``).
    slots : int
    readers : list of QueueReader
        Of a queue, those that are alive; empty with ``mode="latest"``.
    closed : bool
    """

    published: int
    dropped: int
    slots: int
    readers: list[QueueReader]
    closed: bool


def read_stats(ring: Ring, holder: Holder) -> ChannelStats:
    """Return the state of a channel, now.

    Parameters
    ----------
    ring : Ring
    holder : Holder
        Of any process that has the channel open.
    """
    readers = []
    for entry in range(protocol.ENTRIES * ring.is_queue):
        pid, position = protocol.reader_at(ring, holder, entry)
        if position:
            readers.append(QueueReader(pid, position - 1))
    published, dropped, closed = (holder.words[word] for word in (HEAD, DROPPED, CLOSED))
    return ChannelStats(published, dropped, ring.slots, readers, bool(closed))
