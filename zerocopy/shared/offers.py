"""Files that a process's broker gives to readers which know a random number, such as those of CUDA's pools.

Opening ``/proc/PID/fd`` makes a new file description, which lacks what the NVIDIA driver keeps in the old
one. The broker sends the descriptor itself (SCM_RIGHTS).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakValueDictionary


class Offer:
    """A file descriptor that readers may receive while this object exists; it closes the descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_inheritable(fd, False)
        self.number = int.from_bytes(os.urandom(8), "little") | 1  # never 0
        _offers[self.number] = self

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


_offers: WeakValueDictionary[int, Offer] = WeakValueDictionary()


def offered(number: int) -> Offer | None:
    """Return the offer of a number, or None."""
    return _offers.get(number)
