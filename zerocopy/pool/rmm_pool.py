"""The kinds ``"rmm"``, ``"managed"`` and ``"custom"``: a chain of RMM's memory resources.

From the device upwards: what allocates, `Limiting` where there is a cap, `Statistics`,
`Tracking` and `Logging` where they are asked for. RMM does all of it in C++; what is here
puts it together, and keeps it alive as long as memory of it may be out.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from zerocopy.errors import PoolUnavailableError
from zerocopy.pool import exits
from zerocopy.pool.ledger import Leak
from zerocopy.pool.limits import Limit
from zerocopy.pool.settings import Settings
from zerocopy.pool.stats import Stats
from zerocopy.protocols import cuda_driver, cuda_pool

INSTALL = "pip install rmm-cu13 for CUDA 13, or rmm-cu12 for CUDA 12: nvidia-smi says which"
# RMM asks for the sizes of its pool as multiples of this (rmm::CUDA_ALLOCATION_ALIGNMENT).
_ALIGNMENT = 256
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
        import rmm.mr
    except ImportError as error:
        why = (
            "RMM is not installed" if error.name in ("rmm", "rmm.mr") else f"RMM cannot be imported: {error}"
        )
        raise PoolUnavailableError(asked, why, INSTALL) from error
    return rmm.mr


class RMMPool:
    """Allocates from RMM's resources on one device.

    Parameters
    ----------
    device : int
    settings : Settings
    cap : Limit or None
    upstream : rmm.mr.DeviceMemoryResource, optional
        What the pool gets its memory from; ``cudaMalloc`` by default.

    Raises
    ------
    PoolUnavailableError
        RMM is not installed, or it cannot build the chain here: no driver, no memory left.
    """

    #: Counts each allocation, whoever asks.
    follows = True

    def __init__(self, device: int, settings: Settings, cap: Limit | None, upstream: Any = None) -> None:
        self.device = device
        self._settings = settings
        self._cap = cap
        self._upstream = upstream
        # Re-entrant: what a collection frees meanwhile comes back here.
        self._lock = threading.RLock()
        _pools.add(self)
        self._build()

    def _build(self) -> None:
        asked = f"install_pool({self._settings.kind!r})"
        mr = load(asked)
        try:
            self._on_device(lambda: self._chain(mr))
        # RMM raises RuntimeError for most of the driver's errors, MemoryError for some: so
        # it does without a driver, where nothing of memory is amiss.
        except (RuntimeError, MemoryError) as error:
            why, remedy = f"RMM cannot build it on device {self.device}: {error}", "see nvidia-smi"
            reason = cuda_driver.missing() if self._settings.kind != "custom" else None
            if reason is not None:
                why, remedy = reason.why, reason.remedy
            raise PoolUnavailableError(asked, why, remedy) from error

    def _on_device(self, build: Callable[[], None]) -> None:
        if self._settings.kind == "custom" or self._upstream is not None:
            build()  # memory of somebody else's, on whatever there is
            return
        with cuda_driver.on_device(self.device):
            cuda_driver.hold(self.device)
            build()

    def _chain(self, mr: Any) -> None:
        settings, cap = self._settings, self._cap
        self._base = top = _BASES[settings.kind](mr, settings, cap, self._upstream)
        self._limiting = None
        if cap is not None:
            self._limiting = top = mr.LimitingResourceAdaptor(top, cap.nbytes)
        self._statistics = top = mr.StatisticsResourceAdaptor(top)
        self._flush: Callable[[], None] = lambda: None
        self._tracking = None
        if settings.track:
            self._tracking = top = mr.TrackingResourceAdaptor(top, capture_stacks=True)
        if settings.log is not None:
            top = mr.LoggingResourceAdaptor(top, settings.log)
            self._flush = top.flush
            # The chain lives to the end, where nobody calls its destructor.
            atexit.register(top.flush)
        self._top = top
        self._last = Stats(0, 0)
        # For good: destroyed while a framework still has memory, or when the interpreter has
        # gone, a pool would call into what is no more. `release` takes it back.
        _keep(top)

    # -- memory -------------------------------------------------------------------

    def allocate(self, nbytes: int, stream: int) -> int:
        """Return the address of memory that work on the stream may use from here on."""
        with self._lock:
            return int(self._top.allocate(nbytes, _stream(stream)))

    def deallocate(self, ptr: int, nbytes: int, stream: int) -> None:
        """Free memory after what the stream has been given."""
        with self._lock:
            self._top.deallocate(ptr, nbytes, _stream(stream))

    def resource(self, mr: Any) -> Any:
        """Return the uppermost resource, for RMM's own users."""
        return self._top

    # -- figures ------------------------------------------------------------------

    def stats(self) -> Stats:
        """Return the figures of the innermost scope."""
        return self._last if self._statistics is None else self._read(self._statistics.allocation_counts)

    def _read(self, counts: Any) -> Stats:
        size = getattr(self._base, "pool_size", None)
        return Stats(
            counts.current_bytes,
            counts.peak_bytes,
            size() if size is not None else None,
            counts.current_count,
            counts.total_bytes,
            counts.total_count,
        )

    def in_use(self) -> int:
        """Return the bytes that count against the cap."""
        if self._limiting is None:
            return self.stats().current_bytes
        return int(self._limiting.get_allocated_bytes())

    def begin(self) -> Stats:
        """Begin a scope of statistics; return the figures before it."""
        return self._read(self._statistics.push_counters())

    def end(self) -> Stats:
        """End the innermost scope; return its figures."""
        return self._read(self._statistics.pop_counters())

    def outstanding(self) -> list[Leak]:
        """Return what RMM's tracking has of allocations that were not freed."""
        if self._tracking is None:
            return []
        text = self._tracking.get_outstanding_allocations_str()
        return [
            Leak(int(match[2]), self.device, int(match[1], 16), stack=match[3])
            for match in re.finditer(_TRACKED, text)
        ]

    def remarks(self) -> list[str]:
        """Return what a report has to say: nothing."""
        return []

    def settle(self) -> int | None:
        """Nothing to settle: nobody else has a hand in it."""
        return None

    def trim(self) -> int:
        """Give the pool back and begin a fresh one, where nothing of it is out; return how many bytes.

        RMM's pool returns nothing to the device while it lives.
        """
        with self._lock:
            before = self.stats()
            if before.current_bytes or self._settings.kind == "custom":
                return 0
            old = self._top
            self._build()
            _let_go(old)
            return max(0, (before.reserved_bytes or 0) - (self.stats().reserved_bytes or 0))

    def release(self, in_use: bool = False) -> None:
        """Give the pool up: at once if nothing of it is out, otherwise with the process.

        A framework that goes on using it asks through us, and is refused; or holds a resource itself.
        """
        with self._lock:
            self._flush()
            if not self._top or self.stats().current_bytes:
                return
            self._last = self.stats()
            top, self._top, self._base, self._limiting = self._top, None, None, None
            self._statistics = self._tracking = None
            _let_go(top)


# -- what allocates, by kind ------------------------------------------------------------


def _pool(mr: Any, settings: Settings, cap: Limit | None, upstream: Any) -> Any:
    maximum = None if cap is None else cap.nbytes // _ALIGNMENT * _ALIGNMENT
    initial = -(-(settings.initial or 0) // _ALIGNMENT) * _ALIGNMENT
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
    # In names of this function's, for those of a module are gone when the interpreter ends,
    # and frameworks free then too.
    user, ended, park = settings.allocator, exits.ended, exits.park
    exits.wait_for_threads()

    def allocate(nbytes: int, stream: Any) -> int:
        park()
        return int(user.allocate(nbytes, stream.__cuda_stream__()[1]))

    def deallocate(ptr: int, nbytes: int, stream: Any) -> None:
        park()
        if not ended():
            user.deallocate(ptr, nbytes, stream.__cuda_stream__()[1])

    return mr.CallbackMemoryResource(allocate, deallocate)


_BASES: dict[str, Callable[[Any, Settings, Limit | None, Any], Any]] = {
    "rmm": _pool,
    "rmm:arena": _arena,
    "rmm:binning": _binning,
    "rmm:async": _async,
    "managed": _managed,
    "custom": _custom,
}


def check_managed(device: int) -> None:
    """Check that a device can use more managed memory than it has.

    Raises
    ------
    PoolUnavailableError
        It has no concurrent managed access: then all must fit (CUDA C++ Programming Guide,
        "Unified Memory Programming").
    """
    if not cuda_pool.pages_managed_memory(device):
        raise PoolUnavailableError(
            "install_pool('managed')",
            f"device {device} has no concurrent managed access: it cannot use more memory than it has",
            "use kind='rmm'; Linux and a card of the Pascal generation or later have it",
        )


# -- streams, and what is kept alive ------------------------------------------------------

# "0x7f36: 777 B : callstack:" and the lines of the stack, as tracking_resource_adaptor prints.
_TRACKED = re.compile(r"^(0x[0-9a-f]+): (\d+) B : callstack:\n(.*?)(?=^0x[0-9a-f]+: \d+ B|\Z)", re.S | re.M)


class _Handle:
    """A stream by its number, in the form that RMM takes (``__cuda_stream__``, cuda.core)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


# In a child of a fork the threads are gone that may have held a lock.
_pools: WeakSet[RMMPool] = WeakSet()


def _unlock() -> None:
    for pool in _pools:
        pool._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock)


_streams: dict[int, Any] = {}


def _stream(handle: int) -> Any:
    found = _streams.get(handle)
    if found is None:
        from rmm.pylibrmm.stream import Stream

        found = Stream(_Handle(handle))
        if handle <= 2:  # the default ones are for ever; other numbers are used again
            _streams[handle] = found
    return found


def _keep(resource: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


def _let_go(resource: Any) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(resource))
