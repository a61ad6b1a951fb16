"""Keeps the handles of objects that were sent, so that all recipients of an object share one segment."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import ref

from zerocopy import forks
from zerocopy.shared.objects import Shared

#: Bytes of shared memory that are kept for further recipients after all transfers have ended.
LIMIT = 256 << 20


class _Entry(NamedTuple):
    obj: ref[Any]
    shared: ref[Shared]
    message: dict[str, Any]


class KeptHandles:
    """The handles of objects that are alive, with the messages that contain them.

    A transfer keeps its handles itself. Afterwards the last ones are kept, up to `limit` bytes of memory.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._entries: dict[int, _Entry] = {}
        self._recent: OrderedDict[int, Shared] = OrderedDict()
        self._bytes = 0
        self._lock = forks.lock()  # re-entrant: a finalizer can run while it is held

    def find(self, obj: Any) -> tuple[Shared, dict[str, Any]] | None:
        """Return the handle of an object and its message, or None."""
        with self._lock:
            entry = self._entries.get(id(obj))
            if entry is None or entry.obj() is not obj:
                return None
            shared = entry.shared()
            if shared is None:
                return None
            self._keep(id(obj), shared)
            return shared, entry.message

    def add(self, obj: Any, shared: Shared, message: dict[str, Any]) -> None:
        """Add the handle of an object; it is dropped with the object."""
        key = id(obj)
        with suppress(TypeError), self._lock:  # the type has no weak references
            self._entries[key] = _Entry(ref(obj, lambda gone: self._forget(key, gone)), ref(shared), message)
            self._keep(key, shared)

    def clear(self) -> None:
        """Drop all handles that are not in flight."""
        with self._lock:
            self._entries.clear()
            self._recent.clear()
            self._bytes = 0

    def _keep(self, key: int, shared: Shared) -> None:
        self._drop(key)
        self._recent[key] = shared
        self._bytes += shared.nbytes
        while self._bytes > self.limit:
            self._drop(next(iter(self._recent)))

    def _drop(self, key: int) -> None:
        shared = self._recent.pop(key, None)
        if shared is not None:
            self._bytes -= shared.nbytes

    def _forget(self, key: int, obj: ref[Any]) -> None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and entry.obj is obj:
                del self._entries[key]
                self._drop(key)


kept = KeptHandles()
