"""A chain of RMM's memory resources: what allocates, its cap, its counters, tracking, a log.

RMM does all of it in C++; what is here puts it together.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zerocopy.errors import PoolUnavailableError
from zerocopy.pool import exits
from zerocopy.pool.limits import Limit
from zerocopy.pool.settings import Settings

INSTALL = "pip install rmm-cu13 for CUDA 13, or rmm-cu12 for CUDA 12: nvidia-smi says which"
# RMM asks for the sizes of its pool as multiples of this, and counts in them
# (rmm::CUDA_ALLOCATION_ALIGNMENT).
ALIGNMENT = 256
# Bins of 256 KiB to 4 MiB, as RMM's guide has them; what is larger is the pool's.
_BINS = (18, 22)


def load(asked: str) -> Any:
    """Import ``rmm.mr``.

    Raises
    ------
    PoolUnavailableError
        RMM is not installed, or does not import.
    """
    try:
        import rmm.mr as mr
    except ImportError as error:
        missing = error.name in ("rmm", "rmm.mr")
        why = "RMM is not installed" if missing else f"RMM cannot be imported: {error}"
        raise PoolUnavailableError(asked, why, INSTALL) from error
    return mr


@dataclass(slots=True)
class Chain:
    """Resources from the device upwards.

    Attributes
    ----------
    base : rmm.mr.DeviceMemoryResource
        What allocates.
    limiting : rmm.mr.LimitingResourceAdaptor or None
    count : rmm.mr.StatisticsResourceAdaptor
        What is out, whoever counts what besides.
    segment : rmm.mr.StatisticsResourceAdaptor
        What there was since it was read last.
    tracking : rmm.mr.TrackingResourceAdaptor or None
    logging : rmm.mr.LoggingResourceAdaptor or None
    top : rmm.mr.DeviceMemoryResource
        The uppermost, which is asked.
    """

    base: Any
    limiting: Any
    count: Any
    segment: Any
    tracking: Any
    logging: Any
    top: Any


def build(mr: Any, settings: Settings, cap: Limit | None, upstream: Any = None) -> Chain:
    """Put a chain together; of RMM's kinds that takes memory, and may fail."""
    base = top = _BASES[settings.kind](mr, settings, cap, upstream)
    limiting = tracking = logging = None
    if cap is not None:
        limiting = top = mr.LimitingResourceAdaptor(top, cap.nbytes)
    count = top = mr.StatisticsResourceAdaptor(top)
    segment = top = mr.StatisticsResourceAdaptor(top)
    if settings.track:
        tracking = top = mr.TrackingResourceAdaptor(top, capture_stacks=True)
    if settings.log is not None:
        logging = top = mr.LoggingResourceAdaptor(top, settings.log)
    return Chain(base, limiting, count, segment, tracking, logging, top)


def reserved(base: Any) -> int | None:
    """Return the bytes that RMM's pool has taken, below bins or prefetching too; None without one."""
    while base is not None:
        if hasattr(base, "pool_size"):
            return int(base.pool_size())
        base = base.get_upstream() if hasattr(base, "get_upstream") else None
    return None


# -- what allocates, by kind ------------------------------------------------------------


def _pool(mr: Any, settings: Settings, cap: Limit | None, upstream: Any) -> Any:
    maximum = None if cap is None else cap.nbytes // ALIGNMENT * ALIGNMENT
    initial = -(-(settings.initial or 0) // ALIGNMENT) * ALIGNMENT
    if maximum is not None:
        initial = min(initial, maximum)
    return mr.PoolMemoryResource(upstream or mr.CudaMemoryResource(), initial, maximum)


def _arena(mr: Any, settings: Settings, cap: Limit | None, upstream: Any) -> Any:
    size = settings.initial if cap is None else cap.nbytes
    return mr.ArenaMemoryResource(upstream or mr.CudaMemoryResource(), size)


def _binning(mr: Any, settings: Settings, cap: Limit | None, upstream: Any) -> Any:
    return mr.BinningMemoryResource(_pool(mr, settings, cap, upstream), *_BINS)


def _async(mr: Any, settings: Settings, cap: Limit | None, upstream: Any) -> Any:
    return mr.CudaAsyncMemoryResource(settings.initial, settings.release_threshold)


def _managed(mr: Any, settings: Settings, cap: Limit | None, upstream: Any) -> Any:
    return mr.PrefetchResourceAdaptor(_pool(mr, settings, cap, upstream or mr.ManagedMemoryResource()))


def _custom(mr: Any, settings: Settings, cap: Limit | None, upstream: Any) -> Any:
    if isinstance(settings.allocator, mr.DeviceMemoryResource):
        return settings.allocator
    return mr.CallbackMemoryResource(*_callbacks(settings.allocator))


#: What an allocator in Python raised, by thread: RMM turns it into an error without a message.
raised: dict[int, BaseException] = {}


def _callbacks(user: Any) -> tuple[Callable[[int, Any], int], Callable[[int, int, Any], None]]:
    """Return an allocator's functions as RMM calls them."""
    # In names of this function's, for those of a module are gone when the interpreter ends,
    # and frameworks free then too.
    ended, park, thread, errors, told = exits.ended, exits.park, threading.get_ident, raised, _tell
    exits.wait_for_threads()

    def allocate(nbytes: int, stream: Any) -> int:
        park()
        try:
            return _address(user, user.allocate(nbytes, stream.__cuda_stream__()[1]))
        except BaseException as error:
            errors[thread()] = error
            raise

    def deallocate(ptr: int, nbytes: int, stream: Any) -> None:
        park()
        if ended():
            return
        try:
            user.deallocate(ptr, nbytes, stream.__cuda_stream__()[1])
        except BaseException as error:  # noqa: BLE001 - C++ waits for the answer, and takes no other
            told(error, user)

    return allocate, deallocate


def _address(user: Any, ptr: Any) -> int:
    """Check what an allocator returned."""
    if isinstance(ptr, bool) or not hasattr(ptr, "__index__"):
        raise TypeError(f"{type(user).__name__}.allocate() returned {ptr!r}, and not an address")
    if int(ptr) <= 0:
        raise MemoryError(f"{type(user).__name__}.allocate() returned {ptr}")
    return int(ptr)


def _tell(error: BaseException, user: Any) -> None:
    """Print an error that nobody can be given, as Python does with those of finalizers."""
    print(f"{type(user).__name__}.deallocate() raised, and its memory may be lost:", file=sys.stderr)
    traceback.print_exception(error)


_BASES: dict[str, Callable[[Any, Settings, Limit | None, Any], Any]] = {
    "rmm": _pool,
    "rmm:arena": _arena,
    "rmm:binning": _binning,
    "rmm:async": _async,
    "managed": _managed,
    "custom": _custom,
}
