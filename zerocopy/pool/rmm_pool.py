"""The kinds ``"rmm"``, ``"managed"`` and ``"custom"``: memory of RMM's resources on one device."""

from __future__ import annotations

import atexit
import ctypes
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakSet

from zerocopy import forks
from zerocopy.errors import PoolClosedError, PoolUnavailableError, ZeroCopyError
from zerocopy.pool import rmm_chain
from zerocopy.pool.ledger import Leak
from zerocopy.pool.limits import Limit
from zerocopy.pool.rmm_chain import ALIGNMENT, Chain
from zerocopy.pool.settings import Settings
from zerocopy.pool.stats import Segment, Stats
from zerocopy.protocols import cuda_driver, cuda_pool

# Arenas take their memory at once; an allocator of somebody else's keeps what it keeps.
_NEVER_TRIMMED = ("rmm:arena", "custom")


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
        self._lock = forks.lock()
        self._start = 0  # what was out when the segment began
        self._chain: Chain | None = self._built()
        _pools.add(self)

    def _built(self) -> Chain:
        """Return a fresh chain."""
        settings, found = self._settings, []
        asked = f"install_pool({settings.kind!r})"
        mr = rmm_chain.load(asked)

        def build() -> None:
            found.append(rmm_chain.build(mr, settings, self._cap, self._upstream))

        try:
            self._on_device(build)
        # RMM raises RuntimeError for most of the driver's errors, MemoryError for some: so
        # it does without a driver, where nothing of memory is amiss.
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, ZeroCopyError) and not isinstance(error, MemoryError):
                raise PoolUnavailableError(asked, error.why, error.remedy) from error
            reason = cuda_driver.missing() if settings.kind != "custom" else None
            why = reason.why if reason else f"RMM cannot build it on device {self.device}: {error}"
            remedy = reason.remedy if reason else "ask for less, if it is memory; or see nvidia-smi"
            raise PoolUnavailableError(asked, why, remedy) from error
        (chain,) = found
        # For good: destroyed while a framework still has memory, or when the interpreter has
        # gone, a pool would call into what is no more. `release` takes it back.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(chain.top))
        chain.segment.push_counters()
        return chain

    def _on_device(self, build: Callable[[], None]) -> None:
        if self._settings.kind == "custom" or self._upstream is not None:
            build()  # memory of somebody else's, on whatever there is
            return
        with cuda_driver.on_device(self.device):
            cuda_driver.hold(self.device)
            build()

    # -- memory -------------------------------------------------------------------

    def allocate(self, nbytes: int, stream: int) -> int:
        """Return the address of memory that work on the stream may use from here on."""
        with self._lock:
            try:
                return int(self._open().top.allocate(nbytes, _stream(stream)))
            except BaseException as error:
                own = rmm_chain.raised.pop(threading.get_ident(), None)
                if own is None:
                    raise
                raise own from error  # of an allocator in Python, in its own words

    def deallocate(self, ptr: int, nbytes: int, stream: int) -> None:
        """Free memory after what the stream has been given."""
        with self._lock:
            self._open().top.deallocate(ptr, nbytes, _stream(stream))

    def resource(self, mr: Any) -> Any:
        """Return the uppermost resource, for RMM's own users."""
        return self._open().top

    def _open(self) -> Chain:
        if self._chain is None:
            raise PoolClosedError(
                f"device {self.device}",
                "the pool was closed, and nothing of it is out",
                "install another one: zerocopy.install_pool()",
            )
        return self._chain

    # -- figures ------------------------------------------------------------------

    def stats(self) -> Stats:
        """Return what is out, since the pool was built."""
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
        """Return the bytes that count against the cap."""
        if self._chain is None or self._chain.limiting is None:
            return self.stats().current_bytes
        return int(self._chain.limiting.get_allocated_bytes())

    def counted(self, nbytes: int) -> int:
        """Return what an allocation counts against the cap."""
        return -(-nbytes // ALIGNMENT) * ALIGNMENT

    def cut(self) -> Segment:
        """Return what there was since the last cut, and begin anew."""
        with self._lock:
            if self._chain is None:
                return Segment(0, 0, 0)
            counts = self._chain.segment.pop_counters()
            self._chain.segment.push_counters()
            peak = self._start + max(0, counts.peak_bytes)
            self._start = self._chain.count.allocation_counts.current_bytes
            return Segment(max(peak, self._start), counts.total_bytes, counts.total_count)

    def outstanding(self) -> list[Leak]:
        """Return what RMM's tracking has of allocations that were not freed."""
        if self._chain is None or self._chain.tracking is None:
            return []
        text = self._chain.tracking.get_outstanding_allocations_str()
        return [
            Leak(int(match[2]), self.device, int(match[1], 16), stack=match[3])
            for match in re.finditer(_TRACKED, text)
        ]

    def remarks(self, others: Sequence[str]) -> list[str]:
        """Return what a report has to say: nothing."""
        return []

    def settle(self) -> None:
        """Do nothing: nobody else has a hand in it."""

    # -- giving back ----------------------------------------------------------------

    @property
    def by_device(self) -> bool:
        """Whether the device alone can tell what is taken: RMM's Python has no figure of this pool."""
        return self._settings.kind == "rmm:async"

    def trim(self) -> int:
        """Give the pool back and begin a fresh one, where nothing of it is out; return how many bytes.

        0 where the device alone can tell (`by_device`). RMM's pool returns nothing to the device while
        it lives. One that writes a log is kept: a fresh one would begin the file anew.
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
                fresh = self._built()
            except PoolUnavailableError:
                return 0  # there is no room for another beside it: it goes on as it is
            old, self._chain = self._chain, fresh
            _let_go(old)
            return max(0, (before.reserved_bytes or 0) - (self.stats().reserved_bytes or 0))

    def release(self, in_use: bool) -> None:
        """Give the pool up: at once if nothing of it is out, otherwise with the process.

        A framework that goes on using it asks through us, and is refused; or holds a resource itself.
        """
        with self._lock:
            self.flush()
            if self._chain is not None and not self.stats().current_count:
                old, self._chain = self._chain, None
                _let_go(old)

    def flush(self) -> None:
        """Write what is left of a log."""
        if self._chain is not None and self._chain.logging is not None:
            self._chain.logging.flush()


def check_managed(device: int) -> None:
    """Check that a device can use more managed memory than it has.

    Raises
    ------
    PoolUnavailableError
        The driver does not answer, or the device has no concurrent managed access: then all must
        fit (CUDA C++ Programming Guide, "Unified Memory Programming").
    """
    reason = cuda_driver.missing()
    if reason is not None:
        raise PoolUnavailableError("install_pool('managed')", reason.why, reason.remedy)
    if not cuda_pool.pages_managed_memory(device):
        raise PoolUnavailableError(
            "install_pool('managed')",
            f"device {device} has no concurrent managed access: it cannot use more memory than it has",
            "use kind='rmm'; Linux and a card of the Pascal generation or later have it",
        )


# -- streams, and what happens to all pools -----------------------------------------------

# "0x7f36: 777 B : callstack:" and the lines of the stack, as tracking_resource_adaptor prints.
_TRACKED = re.compile(r"^(0x[0-9a-f]+): (\d+) B : callstack:\n(.*?)(?=^0x[0-9a-f]+: \d+ B|\Z)", re.S | re.M)


class _Handle:
    """A stream by its number, in the form that RMM takes (``__cuda_stream__``, cuda.core)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


_streams: dict[int, Any] = {}


def _stream(handle: int) -> Any:
    found = _streams.get(handle)
    if found is None:
        from rmm.pylibrmm.stream import Stream

        found = Stream(_Handle(handle))
        if handle <= 2:  # the default ones are for ever; other numbers are used again
            _streams[handle] = found
    return found


def _let_go(chain: Chain) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(chain.top))


_pools: WeakSet[RMMPool] = WeakSet()


def _flush() -> None:
    """Chains live to the end, where nobody calls their destructors."""
    for pool in _pools:
        pool.flush()


atexit.register(_flush)
