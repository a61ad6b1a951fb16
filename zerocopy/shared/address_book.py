"""Which owner keeps the memory at an address: blocks of this process, and mappings of others' blocks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any
from weakref import ref

from zerocopy import forks


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
        self._starts: list[int] = []
        self._entries: list[tuple[int, ref[Any]]] = []

    def add(self, first: int, end: int, owner: Any) -> None:
        """Add an owner of the addresses from `first` up to `end`; earlier owners of them are gone."""
        entry = (end, ref(owner))
        with self._lock:
            low, high = bisect_left(self._starts, first), bisect_left(self._starts, end)
            if low and self._entries[low - 1][0] > first:
                low -= 1
            self._starts[low:high], self._entries[low:high] = [first], [entry]
            if len(self._starts) & 0x3FF == 0:
                self._drop_dead()

    def find(self, first: int, end: int) -> Any:
        """Return the owner of all addresses from `first` up to `end`, or None."""
        with self._lock:
            place = bisect_right(self._starts, first) - 1
            if place < 0:
                return None
            limit, owner = self._entries[place]
        return owner() if end <= limit else None

    def _drop_dead(self) -> None:
        alive = [i for i, (_, owner) in enumerate(self._entries) if owner() is not None]
        self._starts[:] = [self._starts[i] for i in alive]
        self._entries[:] = [self._entries[i] for i in alive]
