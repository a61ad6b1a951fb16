"""CuPy on a memory pool: its allocator is a function, and may change at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerocopy.errors import Reason
from zerocopy.pool.block import Block
from zerocopy.pool.hook import PoolHook

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool

# cudaErrorMemoryAllocation, driver_types.h.
_NO_MEMORY = 2
Allocator = Callable[[int], Any]


class CuPyHook(PoolHook):
    """Arrays that exist keep the memory that they have."""

    name = "cupy"
    title = "CuPy"
    rank = 30
    asks = True

    def __init__(self) -> None:
        self._before: Allocator | None = None
        self._ours: Allocator | None = None

    def attach(self, pool: Pool) -> str:
        import cupy

        before = self._before or cupy.cuda.get_allocator()
        self._before = before
        if pool.by_rmm:
            allocator, what = _through_rmm(pool, before), "RMM's resource of the device"
        elif pool.tracked:
            allocator, what = _one_by_one(cupy, pool, before), "CUDA's pool, each allocation noted"
        else:
            allocator, what = _through_driver(cupy, pool), "CUDA's pool, cudaMallocAsync"
        self._ours = allocator
        cupy.cuda.set_allocator(allocator)
        return what

    def through(self, pool: Pool) -> str:
        return "rmm" if pool.by_rmm else ""

    def holds(self, pool: Pool) -> bool:
        import cupy

        return cupy.cuda.get_allocator() is self._ours

    def detach(self, pool: Pool) -> Reason | None:
        import cupy

        if cupy.cuda.get_allocator() is self._ours:
            cupy.cuda.set_allocator(self._before)
        return None


def _through_driver(cupy: Any, pool: Pool) -> Allocator:
    """Return an allocator that takes from CUDA's default pool, and calls the driver not before it must.

    Not CuPy's ``MemoryAsyncPool``: that one writes the pool's release threshold, and takes what
    anybody has written there for a limit (cupy/cuda/memory.pyx, ``set_limit``, ``malloc``).
    """
    runtime, ready = cupy.cuda.runtime, set[int]()

    def allocate(nbytes: int) -> Any:
        device = runtime.getDevice()
        if device not in ready:
            _use_default_pool(cupy, pool, device)
            ready.add(device)
        try:
            return cupy.cuda.malloc_async(nbytes)
        except runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
        # What was freed on other streams is there when they have come to it.
        cupy.cuda.get_current_stream().synchronize()
        try:
            return cupy.cuda.malloc_async(nbytes)
        except runtime.CUDARuntimeError as error:
            if error.status != _NO_MEMORY:
                raise
            in_use = pool.device_pool(device).in_use() if device in pool.served else 0
            raise cupy.cuda.memory.OutOfMemoryError(nbytes, in_use) from error

    return allocate


def _use_default_pool(cupy: Any, pool: Pool, device: int) -> None:
    if device in pool.served:
        handle = pool.device_pool(device).handle  # with its threshold, and what it begins with
    else:
        handle = cupy.cuda.runtime.deviceGetDefaultMemPool(device)
    cupy.cuda.runtime.deviceSetMemPool(device, handle)


def _through_rmm(pool: Pool, before: Allocator) -> Allocator:
    """Return RMM's allocator for CuPy, with the errors of a pool.

    On a device that is not the pool's, and where it could not be taken back when the pool was
    closed (``cupy.cuda.using_allocator``), it asks the allocator from before.
    """
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator

    def allocate(nbytes: int) -> Any:
        device = cupy.cuda.runtime.getDevice()
        if pool.closed or device not in pool.served:
            return before(nbytes)
        try:
            memory = rmm_cupy_allocator(nbytes)
        except MemoryError as error:
            refused = pool.out_of_memory(nbytes, device, error)
            if refused is error:
                raise
            raise refused from error
        if pool.tracked and nbytes:
            pool.note(memory.device_id, memory.ptr, nbytes, "cupy")
        return memory

    return allocate


def _one_by_one(cupy: Any, pool: Pool, before: Allocator) -> Allocator:
    """Return an allocator that takes and gives through the pool, which notes it; `before` as above."""

    def allocate(nbytes: int) -> Any:
        device = cupy.cuda.runtime.getDevice()
        if pool.closed or device not in pool.served:
            return before(nbytes)
        # The object and not its number alone: what frees on a stream must find it there.
        block = Block(pool, nbytes, cupy.cuda.get_current_stream(), device, "cupy")
        memory = cupy.cuda.UnownedMemory(block.ptr, nbytes, block, device)
        return cupy.cuda.MemoryPointer(memory, 0)

    return allocate
