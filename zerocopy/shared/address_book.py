"""Finds the block of this process, or the mapping of another process's block, that keeps an address."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import Any
from weakref import ref

from zerocopy import forks

#: First address, address past the last, owner.
_Entry = tuple[int, int, ref[Any]]
_FIRST = itemgetter(0)
_FEWEST = 1024
# The lock is held for microseconds: after a second, the caller is a finalizer that interrupts the
# thread that holds it. Memory without an entry is copied.
_SECONDS = 1.0


class AddressBook:
    """Owners of ranges of addresses, by weak references; a lookup takes the same time for any number.

    Examples
    --------
    >>> class Owner: pass
    >>> owner, book = Owner(), AddressBook()
    >>> book.add(100, 200, owner)
    >>> book.find(150, 200) is owner, book.find(150, 201), book.find(0, 1)
    (True, None, None)
    """

    def __init__(self) -> None:
        self._lock = forks.plain_lock()
        self._entries: list[_Entry] = []
        self._sweep_at = _FEWEST

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, first: int, end: int, owner: Any) -> None:
        """Add an owner of the addresses from `first` up to `end`; earlier owners of them are gone."""
        entry = (first, end, ref(owner))
        if not self._lock.acquire(True, _SECONDS):
            return
        try:
            entries = self._entries
            low, high = bisect_left(entries, first, key=_FIRST), bisect_left(entries, end, key=_FIRST)
            if low and entries[low - 1][1] > first:
                low -= 1
            entries[low:high] = [entry]
            if len(entries) >= self._sweep_at:
                entries[:] = [each for each in entries if each[2]() is not None]
                self._sweep_at = max(_FEWEST, 2 * len(entries))
        finally:
            self._lock.release()

    def find(self, first: int, end: int) -> Any:
        """Return the owner of all addresses from `first` up to `end`, or None."""
        if not self._lock.acquire(True, _SECONDS):
            return None
        try:
            place = bisect_right(self._entries, first, key=_FIRST) - 1
            entry = self._entries[place] if place >= 0 else None
        finally:
            self._lock.release()
        return entry[2]() if entry is not None and end <= entry[1] else None
