"""Whether this process has written to privately mapped memory, from ``/proc/self/pagemap``."""

from __future__ import annotations

import mmap
import os

import numpy as np

#: Bits of an entry (Linux, "pagemap, from the userspace perspective"): the page is in memory; it is
#: swapped out; it belongs to a file or to shared memory.
_PRESENT, _SWAPPED, _FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))


def was_written(address: int, nbytes: int) -> bool:
    """Whether a page of a private mapping is a copy, because this process wrote to it.

    Also true if the kernel does not give the information.
    """
    first, last = address // mmap.PAGESIZE, (address + nbytes - 1) // mmap.PAGESIZE
    length = 8 * (last - first + 1)
    try:
        fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        try:
            data = os.pread(fd, length, 8 * first)
        finally:
            os.close(fd)
    except OSError:
        return True
    if len(data) != length:
        return True
    entries = np.frombuffer(data, np.uint64)
    return bool(np.any((entries & (_PRESENT | _SWAPPED) != 0) & (entries & _FILE == 0)))
