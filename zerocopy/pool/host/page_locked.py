"""`PinnedPool`: a pool of page-locked host memory, which is slow to allocate from the driver."""

from __future__ import annotations

import ctypes
import math
import operator
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerocopy import forks
from zerocopy.errors import DeviceError, OptionError, PoolClosedError, PoolLimitError
from zerocopy.formatting import shown
from zerocopy.protocols import cuda_driver, cuda_pool
from zerocopy.protocols.cuda_copies import CopyEvent

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_END = 2**63  # from 2**64 on a size_t wraps around, and a small block would be returned
_PAGE = 4096
# cuda.h: CU_MEMHOSTALLOC_PORTABLE, page-locked for all contexts, not only the current one.
_PORTABLE = 1


class CudaHostMemory:
    """Page-locked memory of the CUDA driver, portable between devices, at multiples of 64 bytes."""

    def __init__(self, device: int = 0) -> None:
        self._device = device

    def allocate(self, nbytes: int) -> int:
        """Return new page-locked memory (cuMemHostAlloc); may raise MemoryError."""
        ptr = ctypes.c_void_p()
        try:
            with cuda_driver.on_device(self._device) as library:
                cuda_driver.hold(self._device)  # the memory ends with the context
                size = ctypes.c_size_t(nbytes)
                cuda_driver.call(library.cuMemHostAlloc, ctypes.byref(ptr), size, ctypes.c_uint(_PORTABLE))
        except DeviceError as error:
            raise MemoryError(str(error)) from error
        return int(ptr.value or 0)

    def free(self, ptr: int, nbytes: int) -> None:
        """Free page-locked memory (cuMemFreeHost)."""
        with cuda_driver.on_device(self._device) as library:
            cuda_driver.call(library.cuMemFreeHost, ctypes.c_void_p(ptr))

    def fence(self) -> list[CopyEvent]:
        """Return events after the work that is queued on the devices: copies may read dropped memory."""
        events = [CopyEvent(index) for index in range(cuda_driver.count()) if cuda_pool.has_context(index)]
        for event in events:
            event.record_all()
        return events


def _are_done(events: list[CopyEvent]) -> bool:
    """Whether the work is done; False if the driver does not answer, as in a forked child."""
    try:
        return all(event.is_done() for event in events)
    except DeviceError:
        return False


def size_class(nbytes: int) -> int:
    """Return the size class of a size: four classes per power of two."""
    step = max(_PAGE, 1 << max(0, (nbytes - 1).bit_length() - 3))
    return max(_PAGE, -(-nbytes // step) * step)


class _Lease:
    """Memory of a pool as a NumPy base object; it returns to the pool with the last view."""

    __slots__ = ("__array_interface__", "_ptr", "_release")

    def __init__(self, ptr: int, nbytes: int, release: Callable[[int], None]) -> None:
        self.__array_interface__ = {"data": (ptr, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
        self._ptr = ptr
        self._release = release

    def __del__(self) -> None:
        self._release(self._ptr)


class PinnedPool:
    """Memory in size classes; freed blocks are kept for reuse. Thread-safe."""

    def __init__(self, source: CudaHostMemory) -> None:
        self._source = source
        # Not re-entrant: a finalizer that runs inside a call below must not acquire the lock.
        self._lock = forks.plain_lock()
        self._free: dict[int, list[int]] = {}
        self._in_use: dict[int, int] = {}
        # A garbage collection inside a call below may finalize arrays, in the thread that holds
        # the lock. So the memory that they return is queued here, without a lock.
        self._returned: deque[int] = deque()
        # Blocks that asynchronous copies may still read: events, and addresses with sizes.
        self._quarantine: deque[tuple[list[CopyEvent], list[tuple[int, int]]]] = deque()
        self._closed = False
        self._held = self._peak = 0  # bytes taken from the source: now, and at most
        self._limit: int | None = None  # bytes to keep

    @property
    def in_use(self) -> int:
        """Bytes in use, rounded up to size classes."""
        return self.figures()[0]

    @property
    def kept(self) -> int:
        """Bytes kept for reuse."""
        return self.figures()[1]

    def figures(self) -> tuple[int, int, int]:
        """Return the bytes in use, kept, and the most that were in use and kept at once."""
        with self._lock:
            self._collect()
            in_use = sum(self._in_use.values())
            return in_use, self._held - in_use, self._peak

    def keep_at_most(self, limit: int | None) -> None:
        """Keep at most `limit` bytes for reuse from now on; None keeps all."""
        with self._lock:
            self._limit = limit
            self._collect()
            self._fit()

    def empty(self, shape: Any, dtype: Any = float) -> Array:
        """Return an uninitialised, row-major, writable array in memory of the pool.

        The memory returns to the pool when the array and all its views are gone, in any thread.
        """
        import numpy as np

        asked = f"empty({shown(shape)}, {shown(dtype)})"
        try:
            # A view of one element, which has no memory of its own: NumPy checks shape and dtype.
            element = np.empty((), np.dtype(dtype))
            several = np.iterable(shape) and not isinstance(shape, (bytes, bytearray))
            extents = tuple(operator.index(extent) for extent in (shape if several else [shape]))
            like = np.broadcast_to(element, (*extents, *element.shape))
        except (TypeError, ValueError, OverflowError) as error:
            raise OptionError(asked, str(error), "pass a shape and a dtype of NumPy") from error
        if like.dtype.hasobject:
            why = "page-locked memory cannot hold Python objects"
            raise OptionError(asked, why, "pass a dtype without Python objects")
        nbytes = math.prod(like.shape) * like.itemsize
        if nbytes >= _END:
            raise OptionError(asked, "it exceeds the address space", "work in smaller pieces")
        if not nbytes:
            return np.empty(like.shape, like.dtype)
        raw = np.asarray(_Lease(self._allocate(nbytes, asked), nbytes, self._on_drop))
        array: Array = raw.view(like.dtype).reshape(like.shape)
        return array

    def _allocate(self, nbytes: int, asked: str) -> int:
        size = size_class(nbytes)
        with self._lock:
            if self._closed:
                raise PoolClosedError(asked, "the pool was closed", "install it again")
            self._collect()
            blocks = self._free.get(size)
            ptr = blocks.pop() if blocks else self._take(size, asked)
            self._in_use[ptr] = size
            self._fit()
            return ptr

    def trim(self) -> int:
        """Free the kept blocks; return the number of bytes."""
        with self._lock:
            self._collect()
            return self._drop()

    def close(self) -> None:
        """Refuse new requests, and free the kept blocks; memory in use stays valid until it is returned."""
        with self._lock:
            self._closed = True
            self._collect()
            self._fit()

    def _on_drop(self, ptr: int, is_exiting: Any = sys.is_finalizing) -> None:
        self._returned.append(ptr)
        # A closed pool gets no further calls, so the memory is freed here; so is memory beyond the
        # limit. At shutdown the driver may be unloaded, and the operating system reclaims the memory.
        frees = self._closed or self._limit is not None
        if frees and not is_exiting() and self._lock.acquire(blocking=False):
            try:
                self._collect()
                self._fit()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        """Take the memory of dropped arrays, and of copies that have ended."""
        dropped = []
        while self._returned:
            dropped.append(self._returned.popleft())
        if dropped:
            try:
                events = self._source.fence()
                self._quarantine.append((events, [(ptr, self._in_use.pop(ptr)) for ptr in dropped]))
            except DeviceError:
                self._returned.extend(dropped)  # for the next call: their copies are not known
        for _ in range(len(self._quarantine)):
            events, blocks = self._quarantine.popleft()
            if _are_done(events):
                self._keep(blocks)
            else:
                self._quarantine.append((events, blocks))

    def _keep(self, blocks: list[tuple[int, int]]) -> None:
        for ptr, size in blocks:
            self._free.setdefault(size, []).append(ptr)

    def _settle(self) -> None:
        """Wait for the copies that may read blocks, and keep these."""
        while self._quarantine:
            events, blocks = self._quarantine[0]
            for event in events:
                event.wait()  # may raise: then the blocks stay
            self._quarantine.popleft()
            self._keep(blocks)

    def _take(self, size: int, asked: str) -> int:
        try:
            ptr = self._source.allocate(size)
        except MemoryError:
            # Free the kept blocks of other sizes, and try again.
            self._settle()
            self._drop()
            try:
                ptr = self._source.allocate(size)
            except MemoryError as error:
                raise PoolLimitError(
                    asked,
                    f"the system has no {size} bytes left: {error}",
                    "drop arrays of the pool; for page-locked memory see ulimit -l and the container's limit",
                    size,
                    sum(self._in_use.values()),
                    source="the system",
                ) from error
        self._held += size
        self._peak = max(self._peak, self._held)
        return ptr

    def _fit(self) -> None:
        """Free kept blocks until the limit is met."""
        if self._closed:
            self._settle()
            self._drop()
        elif self._limit is not None:
            self._drop(self._limit)

    def _drop(self, limit: int = 0) -> int:
        """Free kept blocks, the largest first, until at most `limit` bytes are kept; return the bytes."""
        dropped, kept = 0, sum(size * len(blocks) for size, blocks in self._free.items())
        while kept > limit:
            size = max(size for size, blocks in self._free.items() if blocks)
            self._source.free(self._free[size].pop(), size)
            self._held -= size
            kept -= size
            dropped += size
        return dropped
