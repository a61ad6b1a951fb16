"""A pool of host memory that is dear to get: page-locked memory takes a call of the driver each time."""

from __future__ import annotations

import ctypes
import operator
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from zerocopy import forks
from zerocopy.errors import DeviceError, PoolClosedError, PoolLimitError, PoolOptionError
from zerocopy.pool.sizes import show_value
from zerocopy.protocols import cuda_driver

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_END = 2**63  # a size_t that is handed on wraps around from twice that, and is then served
_PAGE = 4096
# cuda.h: CU_MEMHOSTALLOC_PORTABLE, page-locked for all contexts and not for the current one alone.
_PORTABLE = 1


class HostMemory(Protocol):
    """Where a pool takes its memory from."""

    def take(self, nbytes: int) -> int:
        """Return the address of fresh memory, at a multiple of 64 bytes.

        Raises
        ------
        MemoryError
            There is none.
        """

    def give(self, ptr: int, nbytes: int) -> None:
        """Take memory back that :meth:`take` gave."""


class LibcMemory:
    """Ordinary memory of the C library; for programs that have to run without a GPU too, and for tests."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._libc.aligned_alloc.restype = ctypes.c_void_p

    def take(self, nbytes: int) -> int:
        """Return fresh memory at a multiple of a page."""
        ptr = self._libc.aligned_alloc(ctypes.c_size_t(_PAGE), ctypes.c_size_t(nbytes))
        if not ptr:
            raise MemoryError(f"{nbytes} bytes")
        return int(ptr)

    def give(self, ptr: int, nbytes: int) -> None:
        """Give it back to the C library."""
        self._libc.free(ctypes.c_void_p(ptr))


class CudaHostMemory:
    """Page-locked memory of the CUDA driver, as all devices see it.

    Parameters
    ----------
    device : int
        In whose primary context the driver keeps account of it.
    """

    def __init__(self, device: int = 0) -> None:
        self._device = device

    def take(self, nbytes: int) -> int:
        """Return fresh page-locked memory (cuMemHostAlloc)."""
        ptr = ctypes.c_void_p()
        try:
            with cuda_driver.on_device(self._device) as library:
                cuda_driver.hold(self._device)  # it would go with the context
                size = ctypes.c_size_t(nbytes)
                cuda_driver.call(library.cuMemHostAlloc, ctypes.byref(ptr), size, ctypes.c_uint(_PORTABLE))
        except DeviceError as error:
            raise MemoryError(str(error)) from error
        return int(ptr.value or 0)

    def give(self, ptr: int, nbytes: int) -> None:
        """Unlock it and give it back (cuMemFreeHost)."""
        with cuda_driver.on_device(self._device) as library:
            cuda_driver.call(library.cuMemFreeHost, ctypes.c_void_p(ptr))


def size_class(nbytes: int) -> int:
    """Return how many bytes are taken for so many: four sizes from each power of two to the next.

    Examples
    --------
    >>> size_class(1), size_class(33 * 2**20) // 2**20, size_class(64 * 2**20) // 2**20
    (4096, 40, 64)
    """
    step = max(_PAGE, 1 << max(0, (nbytes - 1).bit_length() - 3))
    return max(_PAGE, -(-nbytes // step) * step)


def _whole(value: Any, asked: str) -> int:
    """Return a whole number, NumPy's too."""
    try:
        return operator.index(value)
    except TypeError as error:
        why = f"{show_value(value)} is no whole number"
        raise PoolOptionError(asked, why, "pass numbers: int, or NumPy's integers") from error


class _Lease:
    """Memory of a pool that an array looks at; it goes back when the last view over it dies."""

    __slots__ = ("__array_interface__", "_give_back", "_ptr")

    def __init__(self, ptr: int, nbytes: int, give_back: Callable[[int], None]) -> None:
        self.__array_interface__ = {"data": (ptr, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}
        self._ptr = ptr
        self._give_back = give_back

    def __del__(self) -> None:
        self._give_back(self._ptr)


class PinnedPool:
    """Memory in size classes: what comes back is kept and given again. Safe for threads.

    Parameters
    ----------
    source : HostMemory
        Where the memory comes from.

    Examples
    --------
    >>> pool = PinnedPool(LibcMemory())
    >>> x = pool.empty((1000, 1000), "f4")
    >>> x.flags.writeable, x.ctypes.data % 64, pool.in_use
    (True, 0, 4194304)
    >>> del x
    >>> pool.in_use, pool.trim()
    (0, 4194304)
    """

    def __init__(self, source: HostMemory) -> None:
        self._source = source
        # Not re-entrant: an array that dies in the middle of a call below must find it taken, and wait.
        self._lock = forks.plain_lock()
        self._free: dict[int, list[int]] = {}
        self._out: dict[int, int] = {}
        self._lent: set[int] = set()  # to arrays, which give it back themselves
        # Arrays die anywhere: in a collection of garbage in the middle of a call below, by the
        # same thread, which holds the lock. So what they give back waits here, without one.
        self._back: deque[int] = deque()
        self._closed = False

    @property
    def in_use(self) -> int:
        """Bytes that are given out, as they were taken."""
        with self._lock:
            self._collect()
            return sum(self._out.values())

    @property
    def kept(self) -> int:
        """Bytes that are kept for reuse."""
        with self._lock:
            self._collect()
            return sum(size * len(blocks) for size, blocks in self._free.items())

    def allocate(self, nbytes: int) -> int:
        """Return the address of at least so many bytes, not cleared, at a multiple of 64.

        Raises
        ------
        PoolLimitError
            The system gives no more, and nothing that was kept was of use.
        PoolClosedError
            The pool was closed.
        PoolOptionError
            `nbytes` is no number of bytes, negative, or more than any memory has.
        """
        asked = f"allocate({show_value(nbytes)})"
        nbytes = _whole(nbytes, asked)
        if not 0 <= nbytes < _END:
            raise PoolOptionError(asked, "no memory has that size", "pass bytes, 0 or more")
        size = size_class(nbytes)
        with self._lock:
            if self._closed:
                raise PoolClosedError(asked, "the pool was closed", "install it again")
            self._collect()
            blocks = self._free.get(size)
            ptr = blocks.pop() if blocks else self._take(size, asked)
            self._out[ptr] = size
            return ptr

    def deallocate(self, ptr: int, nbytes: int) -> None:
        """Take back what :meth:`allocate` gave for so many bytes.

        Raises
        ------
        PoolOptionError
            It is no memory of this pool that is in use, or it was not asked for with as many bytes.
        """
        asked = f"deallocate({show_value(ptr)}, {show_value(nbytes)})"
        ptr, nbytes = _whole(ptr, asked), _whole(nbytes, asked)
        with self._lock:
            self._collect()
            if self._out.get(ptr) != size_class(nbytes) or ptr in self._lent:
                raise PoolOptionError(
                    asked,
                    "no block of that address and size is in use",
                    "pass what allocate() gave and was given, once; arrays give theirs back themselves",
                )
            self._keep(ptr)

    def empty(self, shape: Any, dtype: Any = float) -> Array:
        """Return an array in memory of the pool, not cleared, row-major, writable.

        The memory goes back when the array and all views over it are gone, in any thread.

        Parameters
        ----------
        shape : int or sequence of int
        dtype : dtype
            Of values, not of Python objects.

        Raises
        ------
        PoolLimitError, PoolClosedError
            See :meth:`allocate`.
        PoolOptionError
            The shape or the dtype is none, the dtype holds Python objects, or an extent is negative.
        """
        import numpy as np

        asked = f"empty({show_value(shape)}, {show_value(dtype)})"
        several = hasattr(shape, "__iter__") and not isinstance(shape, (str, bytes, bytearray))
        extents = tuple(_whole(extent, asked) for extent in (shape if several else (shape,)))
        try:
            dtype = np.dtype(dtype)
        except TypeError as error:
            raise PoolOptionError(asked, str(error), "pass a dtype of NumPy's") from error
        if dtype.subdtype is not None:  # as NumPy has it: an array of arrays has their axes too
            dtype, inner = dtype.subdtype
            extents += inner
        if dtype.hasobject or any(extent < 0 for extent in extents):
            why = "objects lie elsewhere" if dtype.hasobject else "an extent is negative"
            raise PoolOptionError(asked, why, "pass a shape and a dtype of values")
        nbytes = dtype.itemsize
        for extent in extents:
            nbytes *= extent
        try:
            if not nbytes:
                return np.empty(extents, dtype)
            if nbytes < _END:
                np.broadcast_to(np.uint8(0), extents)  # refuses more axes than NumPy has
        except ValueError as error:
            raise PoolOptionError(asked, str(error), "pass a shape that NumPy takes") from error
        if nbytes >= _END:
            raise PoolOptionError(asked, "no memory is as large as that", "work in smaller pieces")
        ptr = self.allocate(nbytes)
        self._lent.add(ptr)
        raw = np.asarray(_Lease(ptr, nbytes, self._died))
        array: Array = raw.view(dtype).reshape(extents)
        return array

    def trim(self) -> int:
        """Give all that is kept back to where it came from, and return how many bytes that was."""
        with self._lock:
            self._collect()
            return self._drop()

    def close(self) -> None:
        """Serve no new requests, and keep nothing; what is in use stays valid until it comes back."""
        with self._lock:
            self._closed = True
            self._collect()
            self._drop()

    def _died(self, ptr: int) -> None:
        self._back.append(ptr)
        # Nobody will ask a closed pool again, so it is looked after here; at the end of the
        # interpreter the driver may be gone, and the system takes the memory anyway.
        if self._closed and not sys.is_finalizing() and self._lock.acquire(blocking=False):
            try:
                self._collect()
                self._drop()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        while self._back:
            ptr = self._back.popleft()
            self._lent.discard(ptr)
            self._keep(ptr)

    def _keep(self, ptr: int) -> None:
        self._free.setdefault(self._out.pop(ptr), []).append(ptr)

    def _take(self, size: int, asked: str) -> int:
        try:
            return self._source.take(size)
        except MemoryError:
            # What is kept in other sizes may be what is missing.
            self._drop()
        try:
            return self._source.take(size)
        except MemoryError as error:
            in_use = sum(self._out.values())
            raise PoolLimitError(
                asked,
                f"the system gives no {size} bytes more: {error}",
                "drop arrays of the pool; for page-locked memory see ulimit -l and the container's limit",
                size,
                in_use,
                source="the system",
            ) from error

    def _drop(self) -> int:
        dropped = 0
        while self._free:
            size, blocks = self._free.popitem()
            for ptr in blocks:
                self._source.give(ptr, size)
                dropped += size
        return dropped
