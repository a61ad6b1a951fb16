"""``Reader``: the items of a channel, as one process receives them."""

from __future__ import annotations

import asyncio
import mmap
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from zerocopy import forks
from zerocopy.channels import ring as protocol
from zerocopy.channels.items import Items
from zerocopy.channels.memory import LONGEST_WAIT, ChannelMemory, Holder
from zerocopy.channels.ring import FREED, HEAD, WAITING, Ring, Taken
from zerocopy.errors import ChannelClosedError, ChannelTimeoutError, OptionError, SharedMemoryError
from zerocopy.errors.tracebacks import public
from zerocopy.formatting import shown
from zerocopy.shared.linux import resource
from zerocopy.shared.reading import was_written

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0002, 0.005
#: How often a reader tries to lease an item after its time is over: the writer may reuse its slot meanwhile.
_LAST_TRIES, _LAST_PAUSE = 20, 0.001


def deadline(timeout: Any) -> float | None:
    """Return the time at which a timeout ends, or None without a limit.

    Raises
    ------
    OptionError
        It is not a number of seconds.
    """
    if timeout is None:
        return None
    try:
        if isinstance(timeout, (int, float)) and timeout >= 0:
            return time.monotonic() + timeout
    except OverflowError:
        pass
    why = f"timeout={shown(timeout)} is invalid"
    raise OptionError("channel()", why, "pass seconds, or None to wait without a limit")


class Place(NamedTuple):
    """Where the parts of a channel lie: the byte of the first word and slot, and the bytes of a slot."""

    words: int
    first_slot: int
    slot_bytes: int


def _page_faults() -> int:
    """Return how many page faults all threads of this process had; 0 if the kernel does not count them."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_minflt + usage.ru_majflt  # a page in swap is a major fault


class _Leases:
    """The leases of one reader. Its arrays keep it, so that it outlives the reader.

    Finalizers of batches and of the reader run in any thread, and within any call. They append to a deque,
    and carry out what it holds unless another thread does.
    """

    def __init__(self, memory: ChannelMemory, ring: Ring, place: Place) -> None:
        self.ring = ring
        self._place, self._channel = place, memory
        self.holder = Holder(memory, place.words, ring.words)
        self._mapped = memory.map_privately()
        self.check_unlocked = partial(memory.check_unlocked, self._mapped)
        self._address: int = self._mapped.address
        self.lock = forks.plain_lock()
        #: Slots to release; -1: the reader has ended.
        self._dropped: deque[int] = deque()
        self.counts = [0] * ring.slots
        self._faults = [0] * ring.slots
        #: The number of the last item that was taken.
        self.entry, self.last = 0, 0
        if ring.is_queue:
            registered = protocol.register(ring, self.holder, os.getpid(), memory.taken)
            if registered is None:
                why = f"the channel has {protocol.ENTRIES} readers already"
                raise SharedMemoryError("", why, "close a reader first")
            self.entry, self.last = registered

    def interface(self, slot: int, nbytes: int) -> dict[str, Any]:
        """Return the bytes of a slot as NumPy's array interface."""
        first = self._address + self._place.first_slot + slot * self._place.slot_bytes
        return {"shape": (nbytes,), "typestr": "|u1", "data": (first, False), "version": 3}

    def keep(self, slot: int) -> None:
        """Count a lease of a slot; the lock is held."""
        if not self.counts[slot]:
            self._faults[slot] = _page_faults()
        self.counts[slot] += 1

    def give_back(self, slot: int) -> None:
        """End a lease, or the registration of the reader (-1)."""
        self._dropped.append(slot)
        self.free_dropped()

    def free_dropped(self) -> None:
        """Release the slots of dropped batches, unless another thread holds the lock; it does so then."""
        while self._dropped and self.lock.acquire(False):
            try:
                slot = self._dropped.popleft() if self._dropped else None
                if slot is not None:
                    self._free(slot)
            finally:
                self.lock.release()

    def hold_all_slots(self) -> bool:
        """Whether batches hold all slots; those that another thread has not released yet are released."""
        with self.lock:
            while self._dropped:
                self._free(self._dropped.popleft())
            is_full = all(self.counts)
        self.free_dropped()
        return is_full

    def _free(self, slot: int) -> None:
        if slot < 0:
            if self.ring.is_queue and self.entry >= 0 and self.holder.is_usable:
                self._channel.taken = max(self._channel.taken, self.last)
                protocol.leave(self.ring, self.holder, self.entry)
                self._wake_writer()
            self.entry = -1
            return
        self.counts[slot] -= 1
        if self.counts[slot] or not self.holder.is_usable:
            return
        try:
            self._restore(slot)
        finally:
            self.holder.unlock(self.ring.slot_byte(slot))
            self._wake_writer()

    def _restore(self, slot: int) -> None:
        """Drop this process's copies of pages that were written, which would hide the next item.

        NumPy's read-only flag does not prevent them: frameworks without such a flag alias the memory. The
        first write to a page is a page fault: without any since the lease began, no page is looked at.
        """
        if 0 < self._faults[slot] == _page_faults():
            return
        first = self._place.first_slot + slot * self._place.slot_bytes
        if was_written(self._address + first, self._place.slot_bytes):
            self._mapped.madvise(mmap.MADV_DONTNEED, first, self._place.slot_bytes)

    def _wake_writer(self) -> None:
        if self.holder.words[WAITING]:
            self.holder.words[FREED] += 1
            self.holder.wake(FREED)


class _Lease:
    """A slot that is not written while an array uses its memory; -1 until it has one."""

    __slots__ = ("__array_interface__", "_leases", "slot")
    __array_interface__: dict[str, Any]

    def __init__(self, leases: _Leases) -> None:
        self._leases, self.slot = leases, -1

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.slot >= 0 and not is_exiting():
            self._leases.give_back(self.slot)


class Reader:
    """Reads the items of a channel; :meth:`zerocopy.Channel.read` returns it.

    It is an iterator, and an asynchronous iterator, of batches. It ends when the writer has closed the
    channel and all items were read. A batch aliases the memory of its slot, which is not written again while
    an array of the batch exists in this process. A write to a batch in a framework without read-only arrays
    changes it for this process only. An item counts as read when it was returned, or its conversion failed.
    """

    def __init__(
        self,
        memory: ChannelMemory,
        ring: Ring,
        items: Items,
        place: Place,
        to: Any,
        timeout: float | None,
        options: dict[str, Any],
    ) -> None:
        self._ring, self._items, self._to, self._timeout, self._options = ring, items, to, timeout, options
        self._has_ended = False
        self._leases = _Leases(memory, ring, place)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    @public
    def __next__(self) -> Any:
        lease = self._next(self._timeout)
        if lease is None:
            raise StopIteration
        return self._batch(lease)

    async def __anext__(self) -> Any:
        end = deadline(self._timeout)
        pause, tries = _SHORTEST_PAUSE, 0
        while True:
            lease, is_over = self._try()
            if lease is not None:
                return self._batch(lease)
            if is_over:
                raise StopAsyncIteration
            tries = self._check_time(end, self._timeout, tries, self._leases.last)
            await asyncio.sleep(pause)  # not a wait in a thread: cancelling it would lose an item
            pause = min(2 * pause, _LONGEST_PAUSE)

    def newest(self, timeout: float | None) -> Any:
        """Return the newest batch, which may be that of the call before; wait only for the first."""
        lease = self._next(timeout, again=True)
        if lease is None:
            self._has_ended = False  # another process may write
            why = "the writer closed the channel before it put an item"
            raise ChannelClosedError("", why, "put a batch before channel.close()")
        return self._batch(lease)

    def close(self) -> None:
        """End reading: a queue keeps no items for this reader. Batches that were read stay valid."""
        self._leases.give_back(-1)

    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_exiting() and hasattr(self, "_leases"):
            self.close()

    def _take(self, last: int) -> Taken | None:
        leases = self._leases
        if self._ring.is_queue:
            return protocol.take_next(self._ring, leases.holder, leases.entry, last)
        return protocol.take_newest(self._ring, leases.holder, last)

    def _next(self, timeout: float | None, again: bool = False) -> _Lease | None:
        """Return the next item's lease, or None at the end; `again`: or that of the call before."""
        end = deadline(timeout)
        tries = 0
        while True:
            head = self._leases.holder.words[HEAD]
            lease, is_over = self._try(again)
            if lease is not None or is_over:
                return lease
            tries = self._check_time(end, timeout, tries, 0 if again else self._leases.last)
            if tries:
                time.sleep(_LAST_PAUSE)
            left = LONGEST_WAIT if end is None else end - time.monotonic()
            self._leases.holder.wait(HEAD, head, left)

    def _check_time(self, end: float | None, timeout: float | None, tries: int, last: int) -> int:
        """Raise if an item cannot come in time; return how often it was tried after that time."""
        if self._leases.hold_all_slots():
            why = f"this process holds batches in all {self._ring.slots} slots, so that no item can be put"
            remedy = "drop batches, read with copy=True, or create the channel with more slots="
            raise ChannelTimeoutError("Channel.read()", why, remedy, code="channel-full")
        if end is None or time.monotonic() < end:
            return 0
        if tries < _LAST_TRIES and self._leases.holder.words[HEAD] > last:
            return tries + 1
        why = f"no item arrived within {timeout:g} seconds"
        raise ChannelTimeoutError(
            "Channel.read()", why, "pass a longer timeout=, or check that the writer runs"
        )

    def _try(self, again: bool = False) -> tuple[_Lease | None, bool]:
        """Return the lease of an item if there is one, and whether no other will come."""
        leases = self._leases
        try:
            leases.check_unlocked()
        except SharedMemoryError:
            self.close()  # munlockall keeps the copies
            raise
        leases.free_dropped()
        lease = _Lease(leases)
        try:
            with leases.lock:
                if self._has_ended:  # another thread may have got the end
                    return None, True
                if leases.entry < 0:
                    why = "the reader was closed"
                    raise ChannelClosedError("Channel.read()", why, "call channel.read() again")
                last = 0 if again else leases.last
                taken, state = self._take(last), protocol.OPEN
                if taken is None:
                    state = protocol.state(leases.holder)
                    taken = self._take(last) if state else None  # it may have been published before the end
                if taken is not None:
                    leases.keep(taken.slot)
                    lease.slot = taken.slot
                    leases.last = taken.number
        finally:
            leases.free_dropped()
        if taken is not None:
            return lease, False
        if state == protocol.ABANDONED:
            why = "the writer has ended without channel.close()"
            remedy = "call next() again when another process writes"
            raise ChannelClosedError("Channel.read()", why, remedy)
        self._has_ended = state == protocol.FINISHED
        if self._has_ended and self._ring.is_queue:
            leases.give_back(-1)  # a later writer does not wait for this reader
        return None, self._has_ended

    def _batch(self, lease: _Lease) -> Any:
        lease.__array_interface__ = self._leases.interface(lease.slot, self._items.nbytes)
        memory = np.asarray(lease)
        memory.flags.writeable = False
        return self._items.read(memory, self._to, self._options)
