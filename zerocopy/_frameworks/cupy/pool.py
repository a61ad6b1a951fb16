"""CuPy on a memory pool: its allocator is a function, and may change at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerocopy.errors import Reason
from zerocopy.pool.block import Block
from zerocopy.pool.hook import PoolHook

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool

Allocator = Callable[[int], Any]


class CuPyHook(PoolHook):
    """Arrays that exist keep the memory that they have."""

    name = "cupy"
    rank = 30

    def __init__(self) -> None:
        self._before: Allocator | None = None
        self._ours: list[Allocator] = []

    def attach(self, pool: Pool) -> str:
        import cupy

        if not self._ours:
            self._before = cupy.cuda.get_allocator()
        if pool.by_rmm:
            allocator, what = _through_rmm(pool), "RMM's resource of the device"
        elif pool.tracked:
            allocator, what = _one_by_one(cupy, pool), "CUDA's pool, each allocation noted"
        else:
            allocator, what = self._through_driver(cupy, pool), "CUDA's pool, MemoryAsyncPool"
        self._ours = [allocator]
        cupy.cuda.set_allocator(allocator)
        return what

    def _through_driver(self, cupy: Any, pool: Pool) -> Allocator:
        def first(nbytes: int) -> Any:
            # Not before it is needed: it calls the driver, after which children that are
            # forked have no CUDA. From then on CuPy's own pool answers without us.
            for device in pool.devices:
                _ = pool.device_pool(device).handle
            direct = cupy.cuda.MemoryAsyncPool("default").malloc
            if cupy.cuda.get_allocator() is first:
                self._ours.append(direct)
                cupy.cuda.set_allocator(direct)
            return direct(nbytes)

        return first

    def holds(self, pool: Pool) -> bool:
        import cupy

        return cupy.cuda.get_allocator() in self._ours

    def detach(self, pool: Pool) -> Reason | None:
        import cupy

        cupy.cuda.set_allocator(self._before)
        return None


def _through_rmm(pool: Pool) -> Allocator:
    """Return RMM's allocator for CuPy, with the errors of a pool."""
    import cupy
    from rmm.allocators.cupy import rmm_cupy_allocator

    def allocate(nbytes: int) -> Any:
        try:
            memory = rmm_cupy_allocator(nbytes)
        except MemoryError as error:
            refused = pool.out_of_memory(nbytes, cupy.cuda.runtime.getDevice(), error)
            if refused is error:
                raise
            raise refused from error
        if pool.tracked and nbytes:
            pool.note(memory.device_id, memory.ptr, nbytes, "cupy")
        return memory

    return allocate


def _one_by_one(cupy: Any, pool: Pool) -> Allocator:
    """Return an allocator that takes and gives through the pool, which notes it."""

    def allocate(nbytes: int) -> Any:
        device = cupy.cuda.runtime.getDevice()
        # 0 is the default stream as CuPy was built to have it: the legacy one, which is 1.
        block = Block(pool, nbytes, cupy.cuda.get_current_stream().ptr or 1, device, "cupy")
        memory = cupy.cuda.UnownedMemory(block.ptr, nbytes, block, device)
        return cupy.cuda.MemoryPointer(memory, 0)

    return allocate
