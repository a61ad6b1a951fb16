"""``private_map``: a map of a file whose pages a process can write to without changing the file."""

from __future__ import annotations

import mmap
import platform
import sys

#: mmap(2): a private mapping does not reserve memory for all of its pages, so that a file can exceed the
#: memory of the machine. Python has the constant since 3.13.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0)
if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64"):
    _NO_RESERVE = _NO_RESERVE or 0x4000


def private_map(descriptor: int, size: int) -> mmap.mmap:
    """Map the first `size` bytes of an open file; ``OSError`` or ``ValueError`` if the system refuses."""
    if not _NO_RESERVE:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)
    flags, access = mmap.MAP_PRIVATE | _NO_RESERVE, mmap.PROT_READ | mmap.PROT_WRITE
    return mmap.mmap(descriptor, size, flags, access)
