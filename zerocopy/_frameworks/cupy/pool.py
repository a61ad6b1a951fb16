"""CuPy on a memory pool: its allocator is a function that can be replaced at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy.errors import Reason
from zerocopy.pool.hook import Block, PoolHook, PoolInterface

# cudaErrorMemoryAllocation, driver_types.h.
_OUT_OF_MEMORY = 2
Allocator = Callable[[int], Any]


class Pool(PoolHook):
    """Sets CuPy's allocator; existing arrays keep their memory."""

    name = "cupy"
    title = "CuPy"
    rank = 30
    calls_pool = True

    def __init__(self) -> None:
        self._before: Allocator | None = None
        self._allocator: Allocator | None = None

    def attach(self, pool: PoolInterface) -> str:
        import cupy

        before = self._before or cupy.cuda.get_allocator()
        self._before = before
        if pool.uses_rmm:
            allocator, detail = _rmm_allocator(pool, before), "RMM's resource of the device"
        elif pool.tracked:
            allocator, detail = (
                _tracking_allocator(cupy, pool, before),
                "CUDA's pool, each allocation recorded",
            )
        else:
            allocator, detail = _async_allocator(cupy, pool), "CUDA's pool, cudaMallocAsync"
        self._allocator = allocator
        cupy.cuda.set_allocator(allocator)
        return detail

    def allocates_via(self, pool: PoolInterface) -> str:
        return "rmm" if pool.uses_rmm else ""

    def is_attached(self, pool: PoolInterface) -> bool:
        import cupy

        return cupy.cuda.get_allocator() is self._allocator

    def detach(self, pool: PoolInterface) -> Reason | None:
        import cupy

        if cupy.cuda.get_allocator() is self._allocator:
            cupy.cuda.set_allocator(self._before)
        return None


def _async_allocator(cupy: Any, pool: PoolInterface) -> Allocator:
    """Return an allocator over CUDA's default pool that does not call the driver before its first use.

    CuPy's ``MemoryAsyncPool`` writes the pool's release threshold, and treats any threshold as a
    limit (cupy/cuda/memory.pyx, ``set_limit``, ``malloc``).
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
            if error.status != _OUT_OF_MEMORY:
                raise
        # Memory freed on other streams is available after synchronisation.
        cupy.cuda.get_current_stream().synchronize()
        try:
            return cupy.cuda.malloc_async(nbytes)
        except runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
            in_use = pool.pools[device].in_use() if device in pool.pools else 0
            raise cupy.cuda.memory.OutOfMemoryError(nbytes, in_use) from error

    return allocate


def _use_default_pool(cupy: Any, pool: PoolInterface, device: int) -> None:
    if device in pool.pools:
        handle = pool.pools[device].handle  # opens the pool, with its threshold and initial size
    else:
        handle = cupy.cuda.runtime.deviceGetDefaultMemPool(device)
    cupy.cuda.runtime.deviceSetMemPool(device, handle)


def _rmm_allocator(pool: PoolInterface, before: Allocator) -> Allocator:
    """Return RMM's allocator for CuPy, with the errors of a pool.

    It calls the previous allocator on devices outside the pool, and, inside
    ``cupy.cuda.using_allocator``, which keeps it, after the pool was closed.
    """
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator

    def allocate(nbytes: int) -> Any:
        device = cupy.cuda.runtime.getDevice()
        if pool.closed or device not in pool.pools:
            return before(nbytes)
        try:
            memory = rmm_cupy_allocator(nbytes)
        except MemoryError as error:
            pool.refuse(nbytes, device, error)
        if pool.tracked and nbytes:
            pool.record(memory.device_id, memory.ptr, nbytes, "cupy")
        return memory

    return allocate


def _tracking_allocator(cupy: Any, pool: PoolInterface, before: Allocator) -> Allocator:
    """Return an allocator that calls the pool, which records each allocation; `before` as above."""

    def allocate(nbytes: int) -> Any:
        device = cupy.cuda.runtime.getDevice()
        if pool.closed or device not in pool.pools:
            return before(nbytes)
        # Pass the stream object, because the stream must exist when the block is freed.
        block = Block(pool, nbytes, cupy.cuda.get_current_stream(), device, "cupy")
        memory = cupy.cuda.UnownedMemory(block.ptr, nbytes, block, device)
        return cupy.cuda.MemoryPointer(memory, 0)

    return allocate
