"""Numba on a memory pool: an External Memory Management plugin, set before the first context."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.errors import Reason
from zerocopy.pool.hook import Block, PoolHook, PoolInterface


class Pool(PoolHook):
    """``set_memory_manager`` has no effect on existing contexts, and raises no error.

    A context that was created with the pool's manager keeps it. That manager calls the installed
    pool, or Numba's own manager if there is none.
    """

    name = "numba"
    title = "Numba"
    module = "numba.cuda"
    rank = 40
    calls_pool = True
    #: One of each per process, because contexts keep their manager.
    installed_pool: ClassVar[PoolInterface | None] = None
    manager: ClassVar[Any] = None

    def lacks_gpu(self) -> Reason | None:
        if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
            return Reason("Numba simulates CUDA", "unset NUMBA_ENABLE_CUDASIM", code="no-gpu-build")
        return None

    def too_late(self, pool: PoolInterface) -> Reason | None:
        driver, manager = _driver(), self.manager
        attached = manager is not None and manager.used
        if attached or not _has_context(driver):
            return None
        return Reason(
            "Numba has created a CUDA context, and no longer accepts a memory manager",
            "call install_pool() before the first array or kernel of numba.cuda",
            code="too-late",
        )

    def attach(self, pool: PoolInterface) -> str:
        from numba import cuda

        if self.manager is None:
            Pool.manager = _manager()
        Pool.installed_pool = pool
        cuda.set_memory_manager(self.manager)
        return "a memory manager that allocates from the pool"

    def is_attached(self, pool: PoolInterface) -> bool:
        is_set = getattr(_driver(), "_memory_manager", self.manager) is self.manager
        return is_set and self.installed_pool is pool

    def detach(self, pool: PoolInterface) -> Reason | None:
        driver, manager = _driver(), self.manager
        if self.installed_pool is pool:
            Pool.installed_pool = None
        if not manager.used and getattr(driver, "_memory_manager", None) is manager:
            driver._memory_manager = None  # as before the first context, when Numba selects one
        return None


def _driver() -> Any:
    return sys.modules.get("numba.cuda.cudadrv.driver")


def _has_context(driver: Any) -> bool:
    """Whether Numba has created a context.

    Private attributes: no public call reports it without creating one. Numba sets its own manager
    only when it creates a context (driver.py, ``_ensure_memory_manager``).
    """
    devices = getattr(getattr(driver, "driver", None), "devices", {})
    if any(getattr(device, "primary_context", None) is not None for device in devices.values()):
        return True
    manager = getattr(driver, "_memory_manager", None)
    return manager is not None and manager is getattr(driver, "NumbaCUDAMemoryManager", None)


def _manager() -> Any:
    """Return the manager class, of which Numba creates an instance for each context."""
    from numba import cuda
    from numba.cuda.cudadrv import driver

    class PoolManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
        """Device memory of the pool; page-locked memory is Numba's own."""

        used = False
        interface_version = 1
        _own: Any = None

        def initialize(self) -> None:
            type(self).used = True

        def _pool(self) -> PoolInterface | None:
            pool = Pool.installed_pool
            return pool if pool is not None and self.context.device.id in pool.pools else None

        def _fallback(self) -> Any:
            if self._own is None:
                self._own = driver.NumbaCUDAMemoryManager(context=self.context)
                self._own.initialize()
            return self._own

        def memalloc(self, size: int) -> Any:
            pool = self._pool()
            if pool is None:
                return self._fallback().memalloc(size)
            # On the default stream, because Numba frees without a stream: unlike cuMemFree of Numba's own
            # manager, this does not wait for non-blocking streams (docs/gpu.md).
            block = Block(pool, size, LEGACY_DEFAULT_STREAM, self.context.device.id, "numba")
            self.allocations[block.ptr] = block
            finalizer = _finalizer(self.allocations, block.ptr)
            return cuda.MemoryPointer(self.context, _pointer(driver, block.ptr), size, finalizer=finalizer)

        def get_memory_info(self) -> Any:
            pool = self._pool()
            if pool is None:
                return self._fallback().get_memory_info()
            free, total = pool.memory_info(self.context.device.id)
            return cuda.MemoryInfo(free=free, total=total)

        def reset(self) -> None:
            super().reset()
            if self._own is not None:
                self._own.reset()

        def get_ipc_handle(self, memory: Any) -> Any:
            raise NotImplementedError("memory of a pool has no IPC handle: use one of Numba's own arrays")

    return PoolManager


def _finalizer(allocations: dict[int, Block], ptr: int) -> Callable[[], None]:
    def free() -> None:
        # pop() has a default because the reset of a context clears the allocations first.
        allocations.pop(ptr, None)

    return free


def _pointer(driver: Any, ptr: int) -> Any:
    """Return an address in Numba's type: of cuda.bindings in numba-cuda, of ctypes in numba."""
    if getattr(driver, "USE_NV_BINDING", True):
        from cuda.bindings.driver import CUdeviceptr

        return CUdeviceptr(ptr)
    return driver.drvapi.cu_device_ptr(ptr)
