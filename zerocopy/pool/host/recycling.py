"""The C library's settings under which large blocks are kept, for the modes that want that."""

from __future__ import annotations

import ctypes

from zerocopy.errors import PoolUnavailableError
from zerocopy.pool.host import c_library
from zerocopy.pool.host.c_library import (
    M_ARENA_MAX,
    M_MMAP_MAX,
    M_MMAP_THRESHOLD,
    M_TOP_PAD,
    M_TRIM_THRESHOLD,
)

#: No block is a mapping of its own, which would be unmapped when it is freed; nothing goes back to
#: the system by itself; and threads share one heap: those of their own take no block above 64 MB.
_KEEPING = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_ARENA_MAX, 1))

_MIB = 1 << 20

_holders: set[str] = set()
_lazy = False


def hold(who: str) -> None:
    """Keep large blocks from now on; the caller holds the lock of changes.

    Raises
    ------
    PoolUnavailableError
        The C library refuses; its settings are what they were.
    """
    global _lazy
    if not _holders:
        for setting, value in _KEEPING:
            if not _set(setting, value):
                _set_back()
                raise PoolUnavailableError(
                    f"host={who!r}", f"the C library refuses mallopt({setting}, {value})", "leave host= out"
                )
        from zerocopy.pool.host import data_handler

        # Kept blocks are no fresh pages, and calloc would have to write all of them: large
        # arrays of zeros, which cost nothing before, would be slow and no longer sparse.
        _lazy = data_handler.refusal() is None
        if _lazy:
            data_handler.want("lazy")
            _lazy = not data_handler.without_stubs()
    _holders.add(who)


def release(who: str) -> str:
    """Let large blocks go again when nobody else holds them, and return what cannot be brought back."""
    from zerocopy.pool.host import data_handler

    _holders.discard(who)
    if _holders:
        return ""
    told = data_handler.unwant("lazy")
    _set_back()
    c_library.trim()
    kept = (
        "glibc no longer adapts its threshold for mappings to what is freed (it stays at 32 MiB, where "
        "that ends), and threads that began meanwhile go on sharing one heap"
    )
    return "; ".join(filter(None, (told, kept)))


def describe() -> str:
    """Return what is kept, in a line."""
    zeros = (
        "zeros of 32 MiB and more stay untouched until they are used"
        if _lazy
        else "zeros in kept blocks are written at once"
    )
    return f"the C library keeps freed blocks of any size until trim(); {zeros}"


def _set(setting: int, value: int) -> bool:
    return bool(c_library.library().mallopt(ctypes.c_int(setting), ctypes.c_int(value)))


def _set_back() -> None:
    """Set what was set when the process began; a threshold that adapts is set to where that ends."""
    started = c_library.at_start
    _set(M_MMAP_MAX, started("MALLOC_MMAP_MAX_", "mmap_max", 65536))
    _set(M_MMAP_THRESHOLD, started("MALLOC_MMAP_THRESHOLD_", "mmap_threshold", 32 * _MIB))
    _set(M_TRIM_THRESHOLD, started("MALLOC_TRIM_THRESHOLD_", "trim_threshold", 64 * _MIB))
    _set(M_TOP_PAD, started("MALLOC_TOP_PAD_", "top_pad", 128 << 10))
    _set(M_ARENA_MAX, started("MALLOC_ARENA_MAX", "arena_max", 0))
