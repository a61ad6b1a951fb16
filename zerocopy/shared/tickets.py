"""Tickets: a sender keeps shared memory until its receiver has opened it.

A pipe or a queue holds bytes, and no object that could keep memory. For each handle in flight the
sender therefore keeps its `Shared` under a ticket, and sends the ticket with the handle. The receiver
opens the handle and then redeems the ticket: it writes to the ticket's slot, which lies in a memfd of
the sender. When the sender issues a ticket, it inspects a few earlier ones, and frees the objects of
those that are redeemed.

A slot has 8 bytes: the number of its ticket, in the highest bit whether the ticket is redeemed, and in the
next one whether a receiver had no memory to open the object. It can be opened later, but its sender does not
wait for that before it exits. No number is used twice, so that bytes that are loaded a second time cannot
redeem another ticket.
"""

from __future__ import annotations

import os
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from zerocopy import forks
from zerocopy.shared.descriptors import object_quota, with_reserve
from zerocopy.shared.segment import FileMapping, mapped_memfd, seal_size
from zerocopy.shared.segment_file import OtherUserError, open_memfd

NAME = "zerocopy-tickets"
#: How many tickets are inspected when one is issued: more than one, so that their number goes down.
_INSPECTED = 8
#: The kernel allocates only the pages of slots that are written.
_MAX_SLOTS = 1 << 20
_WORD = struct.Struct("<Q")
_REDEEMED, _FAILED = 1 << 63, 1 << 62


class Ticket(NamedTuple):
    """Where a receiver writes that it has opened a handle.

    Attributes
    ----------
    pid, fd, inode : int
        The sending process, its file descriptor of the memfd of slots, and the memfd's inode.
    slot, number : int
        The position of the slot, and the number of the ticket.
    """

    pid: int
    fd: int
    inode: int
    slot: int
    number: int


_FIELDS = struct.Struct("<IIQQQ")


class InFlight(NamedTuple):
    """Objects that were sent and have not been received.

    Attributes
    ----------
    objects, nbytes : int
    """

    objects: int
    nbytes: int


class Tickets:
    """The handles in flight of this process, up to a limit.

    Parameters
    ----------
    limit : int
        Bytes of the objects in flight. A first object may have more.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> tickets = Tickets()
    >>> ticket = tickets.issue(zc.share(np.zeros(1000)))
    >>> tickets.in_flight()
    InFlight(objects=1, nbytes=8000)
    >>> redeem(ticket)  # in the receiver
    >>> tickets.in_flight()
    InFlight(objects=0, nbytes=0)
    """

    def __init__(self, limit: int = 1 << 30) -> None:
        self.limit = limit
        #: The most tickets; None: a quarter of the file descriptors that the process may have.
        self.most: int | None = None
        self._lock = forks.plain_lock()
        #: The slot, the word once the ticket is redeemed, and the `Shared`.
        self._pending: deque[tuple[int, bytes, Any]] = deque()
        self._free: list[int] = []
        self._nbytes = self._used = self._number = 0
        #: A memfd to which other processes of this user may write; `FileMapping` closes it.
        self._slots: FileMapping | None = None
        os.register_at_fork(after_in_child=self._forget)

    def issue(self, shared: Any) -> bytes | None:
        """Keep a `Shared` until the ticket is redeemed, and return the ticket's bytes.

        Returns None if the limit is reached, or if the kernel gives no memory or descriptor for slots:
        send the object itself then.
        """
        with self._lock:
            redeemed = self._take_redeemed(_INSPECTED)
            ticket = self._issue(shared) if self._has_room(shared.nbytes) else None
        del redeemed  # without the lock, because this frees memory
        return ticket

    def in_flight(self) -> InFlight:
        """Free redeemed tickets, and return how much is left."""
        with self._lock:
            redeemed = self._take_redeemed(len(self._pending))
            result = InFlight(len(self._pending), self._nbytes)
        del redeemed
        return result

    def has_room(self, nbytes: int) -> bool:
        """Free the memory of some redeemed tickets, and return whether the limit permits `nbytes` more."""
        with self._lock:
            redeemed = self._take_redeemed(_INSPECTED)
            permitted = self._has_room(nbytes)
        del redeemed
        return permitted

    def release(self) -> None:
        """Give up all objects in flight; receiving them raises `StaleHandleError`."""
        with self._lock:
            pending, self._pending = self._pending, deque()
            self._free += [slot for slot, _, _ in pending]
            self._nbytes = 0
        del pending

    def wait(self, seconds: float, may_receive: Callable[[], bool] = lambda: False) -> None:
        """Wait until all tickets are redeemed or failed, for `seconds`, and then while `may_receive()`."""
        end, pause = time.monotonic() + seconds, 0.0005
        while self._is_awaited() and (time.monotonic() < end or may_receive()):
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def _is_awaited(self) -> bool:
        """Whether an object in flight has a receiver that may still open it."""
        self.in_flight()
        with self._lock:
            slots = self._slots
            return slots is not None and any(
                os.pread(slots.fd, _WORD.size, slot * _WORD.size)
                != _WORD.pack(_WORD.unpack(redeemed)[0] ^ _REDEEMED | _FAILED)
                for slot, redeemed, _ in self._pending
            )

    def _forget(self) -> None:
        """In a forked child: the tickets and their slots are the parent's."""
        self._pending, self._free, self._slots = deque(), [], None
        self._nbytes = self._used = self._number = 0

    def _has_room(self, nbytes: int) -> bool:
        if not self._pending:
            return True
        most = object_quota() if self.most is None else self.most
        return self._nbytes + nbytes <= self.limit and len(self._pending) < min(most, _MAX_SLOTS)

    def _issue(self, shared: Any) -> bytes | None:
        slot = self._free[-1] if self._free else self._used
        try:
            if self._slots is None:
                slots = mapped_memfd(NAME, _MAX_SLOTS * _WORD.size)
                seal_size(slots.fd)
                self._slots = slots
            os.pwrite(self._slots.fd, _WORD.pack(self._number + 1), slot * _WORD.size)
        except OSError:
            return None
        if self._free:
            self._free.pop()
        else:
            self._used += 1
        self._number += 1
        self._pending.append((slot, _WORD.pack(self._number | _REDEEMED), shared))
        self._nbytes += shared.nbytes
        return _FIELDS.pack(os.getpid(), self._slots.fd, self._slots.inode, slot, self._number)

    def _take_redeemed(self, count: int) -> list[Any]:
        """Inspect the tickets inspected longest ago, and return the objects of redeemed ones."""
        slots = self._slots
        # A daemon closes all descriptors, also those of segments.
        if slots is not None and not slots.has_descriptor():
            objects = [shared for _, _, shared in self._pending]
            self._forget()
            return objects
        objects = []
        for _ in range(min(count, len(self._pending))):
            slot, redeemed, shared = self._pending.popleft()
            if slots is None or os.pread(slots.fd, _WORD.size, slot * _WORD.size) != redeemed:
                self._pending.append((slot, redeemed, shared))
                continue
            self._free.append(slot)
            self._nbytes -= shared.nbytes
            objects.append(shared)
        return objects


def redeem(ticket: bytes) -> None:
    """Let the sender free the object of a ticket; no effect if the sender has ended."""
    _set(ticket, _REDEEMED)


def fail(ticket: bytes) -> None:
    """Mark a ticket whose object this process lacks the memory to open: its sender need not wait."""
    _set(ticket, _FAILED)


def _set(ticket: bytes, mark: int) -> None:
    try:
        with_reserve(_mark, Ticket(*_FIELDS.unpack(ticket)), mark)
    except (OSError, OtherUserError):
        return  # the ticket stays, and the sender's limit bounds its memory


def _mark(fields: Ticket, mark: int) -> None:
    fd = open_memfd(f"/proc/{fields.pid}/fd/{fields.fd}", NAME, fields.inode, os.O_RDWR)
    try:
        at = fields.slot * _WORD.size
        if at + _WORD.size > os.fstat(fd).st_size:
            return
        (word,) = _WORD.unpack(os.pread(fd, _WORD.size, at))
        is_ours = word & ~(_REDEEMED | _FAILED) <= fields.number  # else a later ticket has the slot
        if is_ours if mark == _REDEEMED else word == fields.number:
            os.pwrite(fd, _WORD.pack(fields.number | mark), at)
    finally:
        os.close(fd)
