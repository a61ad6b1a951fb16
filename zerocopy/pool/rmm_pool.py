"""The kinds ``"rmm"``, ``"managed"`` and ``"custom"``: a chain of RMM's resources on one device.

The adaptors of RMM limit, count and record the allocations in C++. `RMMPool` builds the chain anew to trim
it or to change its limit, because RMM's resources are fixed when they are built.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

from zerocopy import forks
from zerocopy.errors import OptionError, PoolClosedError, PoolUnavailableError, Reason, ZeroCopyError
from zerocopy.formatting import format_bytes, printable
from zerocopy.interpreter import shutdown
from zerocopy.pool.limits import Limit
from zerocopy.pool.settings import Settings
from zerocopy.pool.stats import Leak, Stats
from zerocopy.protocols import cuda_driver, cuda_pool

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
# Arenas hold all their memory; a custom allocator manages its own.
_NEVER_TRIMMED = ("rmm:arena", "custom")


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
    top: Any  # receives the requests
    gauge: Gauge | None = None  # of an allocator in Python


def load(asked: str) -> Any:
    """Import ``rmm.mr``."""
    try:
        import rmm.mr as mr
    except ImportError as error:
        missing = error.name in ("rmm", "rmm.mr")
        why = "RMM is not installed" if missing else f"RMM cannot be imported: {error}"
        raise PoolUnavailableError(asked, why, INSTALL, code="not-installed") from error
    return mr


def build(mr: Any, device: int, settings: Settings, limit: Limit | None, upstream: Any = None) -> Chain:
    """Build a chain; most kinds allocate memory here, and may fail."""
    allocator, gauge = settings.allocator, None
    maximum = None if limit is None else limit.nbytes
    if settings.resource is not None:
        base = _own_resource(mr, settings.resource, device)
    elif isinstance(allocator, mr.DeviceMemoryResource):
        base = allocator
    elif allocator is not None:
        gauge = Gauge(maximum)
        base = mr.CallbackMemoryResource(*_callbacks(allocator, gauge))
    else:
        base = _resource_of_kind(mr, settings, maximum, upstream)
    limiting = tracking = None
    top = base
    if gauge is not None or maximum is not None:
        limiting = top = mr.LimitingResourceAdaptor(top, _UNLIMITED if gauge is not None else maximum)
    if gauge is not None:
        gauge.limiting = limiting
    count = top = mr.StatisticsResourceAdaptor(top)
    delta = top = mr.StatisticsResourceAdaptor(top)
    if settings.track:
        tracking = top = mr.TrackingResourceAdaptor(top, capture_stacks=True)
    return Chain(base, limiting, count, delta, tracking, top, gauge)


def _own_resource(mr: Any, resource: Any, device: int) -> Any:
    """Return the resource of ``resource=``, which may be a function of the device."""
    made = resource if hasattr(resource, "allocate") else resource(device)
    if not isinstance(made, mr.DeviceMemoryResource):
        why = f"{type(made).__name__} is not a memory resource of RMM (rmm.mr)"
        raise OptionError("resource=...", why, "pass an allocator in Python as allocator=")
    return made


def _resource_of_kind(mr: Any, settings: Settings, maximum: int | None, upstream: Any) -> Any:
    kind, initial = settings.kind, settings.initial or 0
    if kind == "rmm:async":
        return mr.CudaAsyncMemoryResource(settings.initial, settings.release_threshold)
    if upstream is None:
        upstream = mr.ManagedMemoryResource() if kind == "managed" else mr.CudaMemoryResource()
    if kind == "rmm:arena":
        return mr.ArenaMemoryResource(upstream, settings.initial if maximum is None else maximum)
    maximum = None if maximum is None else maximum // ALIGNMENT * ALIGNMENT
    initial = _aligned(initial)
    pool = mr.PoolMemoryResource(upstream, initial if maximum is None else min(initial, maximum), maximum)
    if kind == "rmm:binning":
        binning = mr.BinningMemoryResource(pool)
        for size, blocks in bins(maximum):
            binning.add_bin(size, mr.FixedSizeMemoryResource(pool, size, blocks))
        return binning
    return mr.PrefetchResourceAdaptor(pool) if kind == "managed" else pool


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


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
_raised: dict[int, BaseException] = {}


def _callbacks(user: Any, gauge: Gauge) -> tuple[Callable[[int, Any], int], Callable[[int, int, Any], None]]:
    """Return an allocator's functions in the form that RMM calls."""
    # Kept in a closure: CPython clears module names at shutdown, when frameworks still free.
    ended, park = shutdown.in_progress, shutdown.park
    thread, errors, show = threading.get_ident, _raised, _show
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


class RMMPool:
    """Allocates from RMM's resources on one device; `upstream` replaces ``cudaMalloc``."""

    def __init__(self, device: int, settings: Settings, limit: Limit | None, upstream: Any = None) -> None:
        self.device = device
        self._settings, self._limit, self._upstream = settings, limit, upstream
        # A custom allocator, and a resource over host memory, may work without a driver.
        self._calls_cuda = upstream is None and (
            settings.kind != "custom" or (settings.resource is not None and cuda_driver.missing() is None)
        )
        # Re-entrant: a garbage collection inside a call may free memory of this pool.
        self._lock = forks.lock()
        self._start = self._peak = 0  # bytes in use at the previous read of RMM's counters, and at most since
        self._earlier = (0, 0)  # bytes and allocations of the chains that were replaced, in total
        self._chain: Chain | None = self._build(limit, f"install_pool({settings.kind!r})")

    def _build(self, limit: Limit | None, asked: str) -> Chain:
        settings = self._settings
        mr = load(asked)
        try:
            with self._current():
                if self._calls_cuda:
                    cuda_driver.hold(self.device)
                chain = build(mr, self.device, settings, limit, self._upstream)
        # RMM raises RuntimeError for most driver errors, and MemoryError for others, such as a
        # missing driver.
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, ZeroCopyError) and not isinstance(error, MemoryError):
                reason = error.reason
            else:
                reason = (cuda_driver.missing() if settings.kind != "custom" else None) or Reason(
                    f"RMM cannot build the pool on device {self.device}: {error}",
                    "check the free memory with nvidia-smi, and pass a smaller size if it is not enough",
                    code="out-of-memory",
                )
            raise PoolUnavailableError(asked, reason.why, reason.remedy, code=reason.code) from error
        # Keep the chain alive past shutdown: its destructor must not run while a framework still
        # has memory, or after the interpreter has ended. `release` drops the reference.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(chain.top))
        if settings.resource is not None:
            self._settings = replace(settings, resource=chain.base)  # a function is called once
        chain.delta.push_counters()
        return chain

    def _current(self) -> AbstractContextManager[Any]:
        """Make the device current: RMM's resources allocate on the current one (rmm, "Multiple devices")."""
        return cuda_driver.on_device(self.device) if self._calls_cuda else nullcontext()

    def allocate(self, nbytes: int, stream: int) -> int:
        """Return the address of memory that later work on the stream may use."""
        with self._lock, self._current():
            try:
                return int(self._open().top.allocate(nbytes, _stream(stream)))
            except Exception as error:
                own = _raised.pop(threading.get_ident(), None)
                if own is None:
                    raise
                try:
                    raise own from error  # the error of a Python allocator
                finally:
                    del own  # its traceback holds this frame

    def deallocate(self, ptr: int, nbytes: int, stream: int) -> None:
        """Free memory, ordered after the work submitted to the stream so far."""
        with self._lock, self._current():
            self._open().top.deallocate(ptr, nbytes, _stream(stream))

    def resource(self, mr: Any) -> Any:
        """Return the uppermost resource, for frameworks that allocate via RMM."""
        return self._open().top

    def _open(self) -> Chain:
        chain = self._chain
        if chain is None:
            remedy = "install another one: zc.install_pool()"
            raise PoolClosedError(f"device {self.device}", "the pool was closed", remedy)
        return chain

    def stats(self) -> Stats:
        """Return the figures now; the totals are those since the pool was built."""
        with self._lock:
            total_bytes, total_count = self._earlier
            if self._chain is None:
                return Stats(0, 0, 0, 0, total_bytes, total_count)
            counts = self._chain.count.allocation_counts
            return Stats(
                counts.current_bytes,
                counts.peak_bytes,
                _reserved(self._chain.base),
                counts.current_count,
                total_bytes + counts.total_bytes,
                total_count + counts.total_count,
            )

    def in_use(self) -> int:
        """Return the bytes that count against the limit."""
        limiting = getattr(self._chain, "limiting", None)  # another thread may close the pool meanwhile
        return self.stats().current_bytes if limiting is None else int(limiting.get_allocated_bytes())

    def charged_bytes(self, nbytes: int) -> int:
        """Return how much an allocation counts against the limit."""
        return _aligned(nbytes)

    def read_peak(self) -> int:
        """Return the most that was in use since the previous read."""
        with self._lock:
            self._keep_peak()
            peak, self._peak = self._peak, 0
            return peak

    def _keep_peak(self) -> None:
        if self._chain is not None:
            counts = self._chain.delta.pop_counters()
            self._chain.delta.push_counters()
            peak = self._start + max(0, counts.peak_bytes)
            self._start = self._chain.count.allocation_counts.current_bytes
            self._peak = max(self._peak, peak, self._start)

    def outstanding(self) -> list[Leak]:
        """Return RMM's record of outstanding allocations."""
        tracking = getattr(self._chain, "tracking", None)
        text = tracking.get_outstanding_allocations_str() if tracking is not None else ""
        return [
            Leak(int(match[2]), self.device, int(match[1], 16), stack=match[3])
            for match in _TRACKED.finditer(text)
        ]

    def trim(self) -> int:
        """Replace the pool by a new one if none of its memory is in use; return the freed bytes.

        RMM's pool returns memory to the device only when it is destroyed. The result is 0 for
        ``"rmm:async"``, whose reserved bytes RMM's Python API does not report.
        """
        with self._lock:
            before = self.stats()
            reserved = before.reserved_bytes
            if self._chain is None or self._settings.kind in _NEVER_TRIMMED or before.current_count:
                return 0
            if reserved is not None and reserved <= (self._settings.initial or 0):
                return 0
            try:
                self._drop(self._build(self._limit, "trim()"))
            except PoolUnavailableError:
                return 0  # not enough memory for a second pool: keep the first
            return max(0, (reserved or 0) - (self.stats().reserved_bytes or 0))

    def check_limit_can_change(self, asked: str, freeing: Sequence[str]) -> None:
        """Raise unless the limit can change now; `freeing` are frameworks that free into the resource."""
        if self._open().gauge is not None:
            return
        asked, in_use = f"{asked} on device {self.device}", self.stats().current_bytes
        if in_use:
            used = f"{format_bytes(in_use)} of the pool are in use"
            why = f"{used}, and RMM's limit is fixed when a pool is built"
            raise PoolUnavailableError(
                asked, why, "free the memory, then change the limit", code="pool-in-use"
            )
        if freeing:
            why = f"{' and '.join(freeing)} must free into the resource from which it allocated"
            raise OptionError(asked, why, "leave it out with frameworks=", code="pool-fixed")

    def set_limit(self, limit: Limit | None, asked: str) -> bool:
        """Change the limit, or replace the pool by one with that limit; return whether it was replaced."""
        with self._lock:
            gauge = self._open().gauge
            if gauge is not None:
                gauge.limit = None if limit is None else limit.nbytes
            else:
                self._drop(self._build(limit, asked))
            self._limit = limit
            return gauge is None

    def release(self, in_use: bool) -> None:
        """Destroy the pool now if none of its memory is in use, otherwise keep it until the process ends.

        Frameworks that still call the pool get an error; others keep their RMM resource alive.
        """
        with self._lock:
            if self._chain is not None and not self.stats().current_count:
                self._drop(None)

    def _drop(self, new: Chain | None) -> None:
        """Destroy the chain, none of whose memory is in use, and use another one from now on."""
        self._keep_peak()
        stats = self.stats()
        self._earlier = (stats.total_bytes or 0, stats.total_count or 0)
        chain, self._chain = self._open(), new
        if chain.gauge is not None:
            chain.gauge.limiting = None  # ends the cycle of references
        with self._current():
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(chain.top))
            for field in fields(chain):
                setattr(chain, field.name, None)  # destroys the resources here, and not after the return


def _reserved(base: Any) -> int | None:
    """Return the reserved bytes of RMM's pool, also under bins or prefetching; None without one."""
    while base is not None:
        if hasattr(base, "pool_size"):
            return int(base.pool_size())
        base = base.get_upstream() if hasattr(base, "get_upstream") else None
    return None


def check_managed(device: int) -> None:
    """Check that a device can use more managed memory than it has."""
    reason = cuda_driver.missing()
    # Otherwise managed memory must fit on the GPU (CUDA C++ Programming Guide, "Unified Memory Programming").
    if reason is None and not cuda_pool.pages_managed_memory(device):
        reason = Reason(
            f"device {device} has no concurrent managed access: it cannot use more memory than it has",
            "use kind='rmm', or Linux with a GPU of the Pascal generation or later",
            code="no-managed-access",
        )
    if reason is not None:
        raise PoolUnavailableError("install_pool('managed')", reason.why, reason.remedy, code=reason.code)


# "0x7f36: 777 B : callstack:" and the lines of the stack, printed by tracking_resource_adaptor.
_TRACKED = re.compile(r"^(0x[0-9a-f]+): (\d+) B : callstack:\n(.*?)(?=^0x[0-9a-f]+: \d+ B|\Z)", re.S | re.M)


class _Handle:
    """A stream handle with ``__cuda_stream__`` (cuda.core), which RMM accepts."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


_streams: dict[int, Any] = {}


def _stream(handle: int) -> Any:
    stream = _streams.get(handle)
    if stream is None:
        from rmm.pylibrmm.stream import Stream

        stream = Stream(_Handle(handle))
        if handle <= 2:  # the default streams; the driver reuses other handles
            _streams[handle] = stream
    return stream
