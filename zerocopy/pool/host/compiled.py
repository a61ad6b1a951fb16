"""The compiled core's functions for NumPy's allocator, and their self-test in this process.

NumPy calls its allocator from C, where a Python function cannot be used: arrays that outlive the
interpreter are freed after its end. The C library has ``aligned_alloc``, but neither an aligned
``calloc`` nor an aligned ``realloc``; these functions add them.

- ``fresh(ctx, size)``: aligned malloc. Blocks below 1 KiB come from NumPy's own cache while its
  blocks are aligned; for large blocks it requests huge pages, as NumPy does.
- ``zeroed(ctx, n, size)``: aligned calloc. From :data:`LAZY` on, whole pages of the block are
  dropped instead of written: they read as zero, and take no memory until they are used.
- ``sparse(ctx, n, size)``: NumPy's calloc below :data:`LAZY`, ``zeroed`` from this size on.
- ``resized(ctx, ptr, size)``: aligned realloc.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

#: From this size on glibc's calloc always maps new pages, which it does not write
#: (DEFAULT_MMAP_THRESHOLD_MAX), so that such zeros take no memory with it either.
LAZY = 32 << 20
#: From this size on NumPy requests huge pages (indicate_hugepages in its alloc.c).
HUGE = 4 << 20
NEVER = 2 * sys.maxsize + 1


class NotCompiledError(Exception):
    """The functions cannot be used here, for the reason in the message."""


def load(originals: dict[str, int], huge: int, lazy: int) -> dict[str, int]:
    """Return the addresses of the functions after setting NumPy's own functions and the thresholds.

    No thread may run in the functions meanwhile: call it before NumPy uses them.
    """
    # Imported here because the extension imports NumPy.
    from zerocopy import _native

    functions = getattr(_native.core, "allocator_functions", None)
    if functions is None:
        raise NotCompiledError(_native.why_not or f"it has no such functions on {sys.platform}")
    at: dict[str, int] = functions(originals["malloc"], originals["calloc"], huge, lazy)
    return at


def callables(at: dict[str, int]) -> dict[str, Any]:
    """Return functions as Python callables that hold the GIL, which NumPy's cache requires."""
    word = ctypes.c_size_t
    return {name: ctypes.PYFUNCTYPE(word, *[word] * (2 if name == "fresh" else 3))(at[name]) for name in at}


# Around the limits of NumPy's cache, of a page, and of dropping pages.
_TRIED = (1, 100, 1023, 1024, 5000, 100_000)
_TRIED_LAZY = 64 << 10


def misbehaviour(originals: dict[str, int]) -> str:
    """Test each function with NumPy's own functions and this kernel; return the first error, or "".

    Emulators such as QEMU may ignore the request to drop pages. The tests use low thresholds, so
    that they touch few pages.
    """
    call = callables(load(originals, huge=_TRIED_LAZY, lazy=_TRIED_LAZY))
    word = ctypes.c_size_t
    free = ctypes.PYFUNCTYPE(None, word, word, word)(originals["free"])
    for size in _TRIED:
        block = call["fresh"](0, size)
        if not block or block % 64:
            return f"fresh({size}) returned {block:#x}"
        ctypes.memset(block, 0xAA, size)  # so that the next block is not zero by chance
        free(0, block, size)
        for name in ("zeroed", "sparse"):
            block = call[name](0, 1, size)
            wanted = name == "zeroed" or size >= _TRIED_LAZY
            if not block or (wanted and block % 64):
                return f"{name}({size}) returned {block:#x}"
            if ctypes.string_at(block, size).strip(b"\0"):
                return f"{name}({size}) is not zero"
            ctypes.memset(block, 0xAA, size)
            for other in (size * 3, max(1, size // 2)):
                block = call["resized"](0, block, other)
                if not block or block % 64:
                    return f"resized({other}) returned {block:#x}"
                kept = min(size, other)
                if ctypes.string_at(block, kept) != b"\xaa" * kept:
                    return f"resized({other}) lost the content"
            free(0, block, other)
    if call["zeroed"](0, NEVER, 2) or call["sparse"](0, NEVER, 2):
        return "an allocation of more than the address space succeeded"
    return ""
