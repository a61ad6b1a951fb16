"""A chain of RMM's memory resources: base, limit, counters, tracking and log, all in C++."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zerocopy.errors import PoolUnavailableError
from zerocopy.formatting.printable import printable
from zerocopy.pool import shutdown
from zerocopy.pool.limits import Limit
from zerocopy.pool.settings import Settings

INSTALL = "pip install rmm-cu13 for CUDA 13, or rmm-cu12 for CUDA 12: see nvidia-smi"
# RMM's pool sizes and counters are multiples of it (rmm::CUDA_ALLOCATION_ALIGNMENT).
ALIGNMENT = 256
# Bins of 256 KiB to 4 MiB, as in RMM's guide; the pool serves larger blocks.
_BINS = tuple(1 << exponent for exponent in range(18, 23))
# RMM's own bins allocate 128 blocks each when they are created, 992 MiB in all.
_BIN_BYTES = 128 << 20
_MOST_BLOCKS = 128
#: A limit of RMM's adaptor that no sum of allocations reaches.
_UNLIMITED = 1 << 62


def load(asked: str) -> Any:
    """Import ``rmm.mr``."""
    try:
        import rmm.mr as mr
    except ImportError as error:
        missing = error.name in ("rmm", "rmm.mr")
        why = "RMM is not installed" if missing else f"RMM cannot be imported: {error}"
        raise PoolUnavailableError(asked, why, INSTALL, code="not-installed") from error
    return mr


@dataclass(slots=True)
class Gauge:
    """The limit of an allocator in Python, which can change while its memory is in use.

    RMM's adaptor counts without the GIL. It has counted a request before it calls the allocator, so
    threads that allocate at the same time cannot exceed the limit together.
    """

    limit: int | None
    limiting: Any = None

    def check(self) -> None:
        """Raise MemoryError if the memory in use, with the present request, exceeds the limit."""
        limit, limiting = self.limit, self.limiting
        if limit is not None and limiting is not None and limiting.get_allocated_bytes() > limit:
            raise MemoryError("the limit of the pool")


@dataclass(slots=True)
class Chain:
    """Resources from the device upwards; None for those that the options do not need."""

    base: Any  # allocates
    limiting: Any
    count: Any  # counts outstanding memory
    delta: Any  # counts since the previous read
    tracking: Any
    logging: Any
    top: Any  # receives the requests
    gauge: Gauge | None = None  # of an allocator in Python


def build(mr: Any, settings: Settings, limit: Limit | None, upstream: Any = None) -> Chain:
    """Build a chain; most kinds allocate memory here, and may fail."""
    gauge = None
    if settings.kind == "custom" and not isinstance(settings.allocator, mr.DeviceMemoryResource):
        gauge = Gauge(None if limit is None else limit.nbytes)
    base = top = _base(mr, settings, limit, upstream, gauge)
    limiting = tracking = logging = None
    if gauge is not None:
        gauge.limiting = limiting = top = mr.LimitingResourceAdaptor(top, _UNLIMITED)
    elif limit is not None:
        limiting = top = mr.LimitingResourceAdaptor(top, limit.nbytes)
    count = top = mr.StatisticsResourceAdaptor(top)
    delta = top = mr.StatisticsResourceAdaptor(top)
    if settings.track:
        tracking = top = mr.TrackingResourceAdaptor(top, capture_stacks=True)
    if settings.log is not None:
        logging = top = mr.LoggingResourceAdaptor(top, settings.log)
    return Chain(base, limiting, count, delta, tracking, logging, top, gauge)


def reserved(base: Any) -> int | None:
    """Return the reserved bytes of RMM's pool, also under bins or prefetching; None without one."""
    while base is not None:
        if hasattr(base, "pool_size"):
            return int(base.pool_size())
        base = base.get_upstream() if hasattr(base, "get_upstream") else None
    return None


def _base(mr: Any, settings: Settings, limit: Limit | None, upstream: Any, gauge: Gauge | None) -> Any:
    """Return the resource that allocates, by kind."""
    kind, initial, allocator = settings.kind, settings.initial or 0, settings.allocator
    if kind == "custom":
        return allocator if gauge is None else mr.CallbackMemoryResource(*_callbacks(allocator, gauge))
    if kind == "rmm:async":
        return mr.CudaAsyncMemoryResource(
            settings.initial, settings.release_threshold, enable_ipc=settings.ipc
        )
    if upstream is None:
        upstream = mr.ManagedMemoryResource() if kind == "managed" else mr.CudaMemoryResource()
    if kind == "rmm:arena":
        return mr.ArenaMemoryResource(upstream, settings.initial if limit is None else limit.nbytes)
    maximum = None if limit is None else limit.nbytes // ALIGNMENT * ALIGNMENT
    initial = -(-initial // ALIGNMENT) * ALIGNMENT
    pool = mr.PoolMemoryResource(upstream, initial if maximum is None else min(initial, maximum), maximum)
    if kind == "rmm:binning":
        binning = mr.BinningMemoryResource(pool)
        for size, blocks in bins(maximum):
            binning.add_bin(size, mr.FixedSizeMemoryResource(pool, size, blocks))
        return binning
    return mr.PrefetchResourceAdaptor(pool) if kind == "managed" else pool


def bins(limit: int | None) -> list[tuple[int, int]]:
    """Return the block sizes of the bins, and how many blocks each takes at once.

    All bins together first take 128 MiB, and an eighth of the limit at most: a small limit has fewer bins.
    """
    share = _BIN_BYTES if limit is None else min(_BIN_BYTES, limit // 8)
    sizes = list(_BINS)
    while sizes and sum(sizes) > share:
        sizes.pop()
    return [(size, min(_MOST_BLOCKS, share // sum(sizes))) for size in sizes]


#: Error of a Python allocator by thread: RMM replaces it by one without a message.
raised: dict[int, BaseException] = {}


def _callbacks(user: Any, gauge: Gauge) -> tuple[Callable[[int, Any], int], Callable[[int, int, Any], None]]:
    """Return an allocator's functions in the form that RMM calls."""
    # Kept in a closure: CPython clears module names at shutdown, when frameworks still free.
    ended, park, thread, errors, show = (
        shutdown.in_progress,
        shutdown.park,
        threading.get_ident,
        raised,
        _show,
    )
    shutdown.wait_for_threads()

    def allocate(nbytes: int, stream: Any) -> int:
        park()
        gauge.check()
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
        except BaseException as error:  # noqa: BLE001 - C++ frames cannot propagate it
            show(error, user)

    return allocate, deallocate


def _address(user: Any, ptr: Any) -> int:
    """Check the result of a custom allocator."""
    if isinstance(ptr, bool) or not hasattr(ptr, "__index__"):
        raise TypeError(f"{type(user).__name__}.allocate() returned {ptr!r}, which is not an address")
    if int(ptr) <= 0:
        raise MemoryError(f"{type(user).__name__}.allocate() returned {ptr}")
    return int(ptr)


def _show(error: BaseException, user: Any) -> None:
    """Print an error that cannot be raised, as Python does for finalizers."""
    name = printable(type(user).__name__)
    print(f"{name}.deallocate() raised, and its memory may be lost:", file=sys.stderr)
    traceback.print_exception(error)
