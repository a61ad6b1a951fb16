"""Settings of the C library under which it keeps large blocks, for the modes that need them."""

from __future__ import annotations

import ctypes

from zerocopy.errors import PoolOptionError, PoolUnavailableError
from zerocopy.formatting.units import format_bytes
from zerocopy.pool.host import c_library, data_handler
from zerocopy.pool.host.c_library import (
    M_ARENA_MAX,
    M_MMAP_MAX,
    M_MMAP_THRESHOLD,
    M_TOP_PAD,
    M_TRIM_THRESHOLD,
)

#: Blocks are not separate mappings, which free() unmaps; the heap is not trimmed; and threads share
#: one heap, because thread heaps hold no block above 64 MB.
_KEEPING = ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1), (M_ARENA_MAX, 1))

_MIB = 1 << 20

#: The largest value of mallopt(3).
_MOST = 2**31 - 1

_users: set[str] = set()
_limit: int | None = None
_lazy = False


def enable(user: str) -> None:
    """Keep large blocks from now on; the caller holds `mode.CHANGING`."""
    global _lazy, _limit
    if not _users:
        _limit = None
        for setting, value in _KEEPING:
            if not _set(setting, value):
                _restore()
                raise PoolUnavailableError(
                    f"host={user!r}",
                    f"the C library refuses mallopt({setting}, {value})",
                    "leave host= out",
                    code="allocator-settings",
                )
        # calloc would have to clear kept blocks: large arrays of zeros, which are free on new
        # pages, would become slow and take memory at once.
        is_lazy = data_handler.refusal() is None
        if is_lazy:
            data_handler.enable("lazy")
            is_lazy = not data_handler.why_not_compiled()
        _lazy = is_lazy
    _users.add(user)


def disable(user: str) -> str:
    """Restore the settings when no other mode needs them; return what cannot be restored."""
    _users.discard(user)
    if _users:
        return ""
    leftover = data_handler.disable("lazy")
    _restore()
    c_library.trim()
    kept = (
        "glibc no longer adapts its mmap threshold (it stays at 32 MiB, the maximum), and threads "
        "that were started meanwhile keep sharing one heap"
    )
    return "; ".join(filter(None, (leftover, kept)))


def keep_at_most(limit: int | None) -> None:
    """Limit the free memory at the end of the heap, and trim to the limit; None keeps all."""
    asked = f"set_limit({limit}, device='host')"
    if limit is not None and limit > _MOST:
        raise PoolOptionError(
            asked,
            f"the C library's limit is an int: at most {_MOST} bytes",
            "pass a smaller limit, or None, which keeps all freed memory",
            code="limit-range",
        )
    if not _set(M_TRIM_THRESHOLD, -1 if limit is None else limit):
        raise PoolUnavailableError(
            asked,
            "the C library refuses the setting",
            "call pool.trim() instead",
            code="allocator-settings",
        )
    global _limit
    _limit = limit
    if limit is not None:
        c_library.trim(limit)


def describe() -> str:
    """Return one line about the blocks that are kept."""
    if _lazy:
        zeros = "zeros of 32 MiB and more take no memory until they are used"
    else:
        zeros = "zeros in kept blocks are written at once"
        missing = data_handler.why_not_compiled()
        if missing:
            zeros += f", which the compiled core avoids ({missing})"
    limit = _limit
    kept = "until trim()" if limit is None else f"up to {format_bytes(limit)} at the end of its heap"
    return f"the C library keeps freed blocks of any size {kept}; {zeros}"


def _set(setting: int, value: int) -> bool:
    return bool(c_library.library().mallopt(ctypes.c_int(setting), ctypes.c_int(value)))


def _restore() -> None:
    """Restore the settings of the process start; an adaptive threshold is set to its maximum."""
    started = c_library.at_start
    _set(M_MMAP_MAX, started("MALLOC_MMAP_MAX_", "mmap_max", 65536))
    _set(M_MMAP_THRESHOLD, started("MALLOC_MMAP_THRESHOLD_", "mmap_threshold", 32 * _MIB))
    _set(M_TRIM_THRESHOLD, started("MALLOC_TRIM_THRESHOLD_", "trim_threshold", 64 * _MIB))
    _set(M_TOP_PAD, started("MALLOC_TOP_PAD_", "top_pad", 128 << 10))
    _set(M_ARENA_MAX, started("MALLOC_ARENA_MAX", "arena_max", 0))
