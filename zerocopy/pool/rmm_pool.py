"""The kinds ``"rmm"``, ``"managed"`` and ``"custom"``: RMM's resources on one device."""

from __future__ import annotations

import atexit
import ctypes
import re
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from typing import Any
from weakref import WeakSet

from zerocopy import forks
from zerocopy.errors import PoolClosedError, PoolUnavailableError, Reason, ZeroCopyError
from zerocopy.formatting.units import format_bytes
from zerocopy.pool import rmm_chain
from zerocopy.pool.limits import Limit
from zerocopy.pool.rmm_chain import ALIGNMENT, Chain
from zerocopy.pool.settings import Settings
from zerocopy.pool.stats import Stats, StatsDelta
from zerocopy.pool.tracker import Leak
from zerocopy.protocols import cuda_driver, cuda_pool
from zerocopy.protocols.exporter_errors import is_error

# Arenas hold all their memory; a custom allocator manages its own.
_NEVER_TRIMMED = ("rmm:arena", "custom")


class RMMPool:
    """Allocates from RMM's resources on one device; `upstream` replaces ``cudaMalloc``."""

    #: Whether the device pool counts every allocation.
    counts_all = True

    def __init__(self, device: int, settings: Settings, limit: Limit | None, upstream: Any = None) -> None:
        self.device = device
        self._settings = settings
        self._limit = limit
        self._upstream = upstream
        # A custom allocator may work without a driver.
        self._calls_cuda = settings.kind != "custom" and upstream is None
        # Re-entrant: a garbage collection inside a call may free memory of this pool.
        self._lock = forks.lock()
        self._start = 0  # bytes in use at the previous read
        self._chain: Chain | None = self._build()
        _pools.add(self)

    def _build(self) -> Chain:
        """Return a new chain."""
        settings = self._settings
        asked = f"install_pool({settings.kind!r})"
        mr = rmm_chain.load(asked)
        try:
            with self._current():
                if self._calls_cuda:
                    cuda_driver.hold(self.device)
                chain = rmm_chain.build(mr, settings, self._limit, self._upstream)
        # RMM raises RuntimeError for most driver errors, and MemoryError for others, such as a
        # missing driver.
        except (RuntimeError, MemoryError) as error:
            if not is_error(error):
                raise
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
            except BaseException as error:
                own = rmm_chain.raised.pop(threading.get_ident(), None)
                if own is None or not is_error(error):
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
            remedy = "install another one: zerocopy.install_pool()"
            raise PoolClosedError(f"device {self.device}", "the pool was closed", remedy)
        return chain

    def stats(self) -> Stats:
        """Return the figures since the pool was built."""
        with self._lock:
            if self._chain is None:
                return Stats(0, 0, 0, 0, 0, 0)
            counts = self._chain.count.allocation_counts
            return Stats(
                counts.current_bytes,
                counts.peak_bytes,
                rmm_chain.reserved(self._chain.base),
                counts.current_count,
                counts.total_bytes,
                counts.total_count,
            )

    def in_use(self) -> int:
        """Return the bytes that count against the limit."""
        limiting = getattr(self._chain, "limiting", None)  # another thread may close the pool meanwhile
        return self.stats().current_bytes if limiting is None else int(limiting.get_allocated_bytes())

    def charged_bytes(self, nbytes: int) -> int:
        """Return how much an allocation counts against the limit."""
        return -(-nbytes // ALIGNMENT) * ALIGNMENT

    def read_delta(self) -> StatsDelta:
        """Return the figures since the previous read."""
        with self._lock:
            if self._chain is None:
                return StatsDelta(0, 0, 0)
            counts = self._chain.delta.pop_counters()
            self._chain.delta.push_counters()
            peak = self._start + max(0, counts.peak_bytes)
            self._start = self._chain.count.allocation_counts.current_bytes
            return StatsDelta(max(peak, self._start), counts.total_bytes, counts.total_count)

    def outstanding(self) -> list[Leak]:
        """Return RMM's record of outstanding allocations."""
        tracking = getattr(self._chain, "tracking", None)
        if tracking is None:
            return []
        text = tracking.get_outstanding_allocations_str()
        return [
            Leak(int(match[2]), self.device, int(match[1], 16), stack=match[3])
            for match in re.finditer(_TRACKED, text)
        ]

    def notes(self, writers: Sequence[str]) -> list[str]:
        """Return no notes: RMM's pools have no release threshold."""
        return []

    def restore_threshold(self) -> None:
        """Do nothing: RMM's pools have no release threshold."""

    @property
    def reserved_unknown(self) -> bool:
        """Whether the reserved bytes are unknown: RMM's Python API does not report them for this kind."""
        return self._settings.kind == "rmm:async"

    def trim(self) -> int:
        """Replace the pool by a new one if none of its memory is in use; return the freed bytes.

        RMM's pool returns memory to the device only when it is destroyed. A pool that writes a log is
        kept, because a new one would truncate the file. The result is 0 if `reserved_unknown`.
        """
        if self._settings.kind in _NEVER_TRIMMED or self._settings.log is not None:
            return 0
        with self._lock:
            before = self.stats()
            initial = self._settings.initial or 0
            if self._chain is None or before.current_count:
                return 0
            if before.reserved_bytes is not None and before.reserved_bytes <= initial:
                return 0
            try:
                new = self._build()
            except PoolUnavailableError:
                return 0  # not enough memory for a second pool: keep the first
            old, self._chain = self._chain, new
            self._drop(old)
            return max(0, (before.reserved_bytes or 0) - (self.stats().reserved_bytes or 0))

    @property
    def limit_is_live(self) -> bool:
        """Whether the limit can change while memory is in use."""
        return getattr(self._chain, "gauge", None) is not None

    def limit_refusal(self) -> Reason | None:
        """Return why the limit cannot be changed now; None if it can."""
        if self.limit_is_live:
            return None
        in_use = self.stats().current_bytes
        if in_use:
            used = format_bytes(in_use)
            return Reason(
                f"{used} of the pool are in use, and RMM's limit is fixed when a pool is built",
                "free the memory, then change the limit",
                code="pool-in-use",
            )
        if self._settings.log is not None:
            return Reason(
                "a pool with another limit would truncate the log",
                "install the pool without log=",
                code="pool-fixed",
            )
        return None

    def set_limit(self, limit: Limit | None) -> None:
        """Change the limit, or replace the pool by one with that limit; see `limit_refusal`."""
        with self._lock:
            chain, before = self._open(), self._limit
            self._limit = limit
            if chain.gauge is not None:
                chain.gauge.limit = None if limit is None else limit.nbytes
                return
            try:
                self._chain = self._build()
            except BaseException:
                self._limit = before
                raise
            self._drop(chain)

    def release(self, in_use: bool) -> None:
        """Destroy the pool now if none of its memory is in use, otherwise keep it until the process ends.

        Frameworks that still call the pool get an error; others keep their RMM resource alive.
        """
        with self._lock:
            self.flush()
            if self._chain is not None and not self.stats().current_count:
                old, self._chain = self._chain, None
                self._drop(old)

    def _drop(self, chain: Chain) -> None:
        if chain.gauge is not None:
            chain.gauge.limiting = None  # ends the cycle of references
        with self._current():
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(chain.top))
            for field in fields(chain):
                setattr(chain, field.name, None)  # destroys the resources here, and not after the return

    def flush(self) -> None:
        """Flush the log."""
        logging = getattr(self._chain, "logging", None)
        if logging is not None:
            logging.flush()


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


_pools: WeakSet[RMMPool] = WeakSet()


def _flush() -> None:
    """Flush at exit: the chains' destructors never run."""
    for pool in _pools:
        pool.flush()


atexit.register(_flush)
