"""Numba on a memory pool: an External Memory Management plugin, set before the first context."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerocopy.errors import Reason
from zerocopy.pool.block import Block
from zerocopy.pool.hook import PoolHook

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool

_LEGACY_DEFAULT_STREAM = 1


class _Served:
    """Whom our manager asks: there is one class of it a process, for contexts keep theirs."""

    pool: Pool | None = None
    manager: Any = None


class NumbaHook(PoolHook):
    """``set_memory_manager`` is silently without effect on contexts that exist.

    A context that was made under our manager keeps it: what it asks is the pool that is
    installed, and Numba's own manager where there is none.
    """

    name = "numba"
    title = "Numba"
    module = "numba.cuda"
    rank = 40
    asks = True

    def lacks_gpu(self) -> Reason | None:
        if os.environ.get("NUMBA_ENABLE_CUDASIM", "0") not in ("", "0"):
            return Reason("Numba simulates CUDA", "unset NUMBA_ENABLE_CUDASIM")
        return None

    def too_late(self, pool: Pool) -> Reason | None:
        driver = _driver()
        ours = _Served.manager is not None and _Served.manager.used
        if ours or not _has_context(driver):
            return None
        return Reason(
            "Numba has made a CUDA context, and ignores another memory manager from then on",
            "call install_pool() before the first array or kernel of numba.cuda",
        )

    def attach(self, pool: Pool) -> str:
        from numba import cuda

        if _Served.manager is None:
            _Served.manager = _manager()
        _Served.pool = pool
        cuda.set_memory_manager(_Served.manager)
        return "a memory manager that takes from the pool"

    def holds(self, pool: Pool) -> bool:
        ours = getattr(_driver(), "_memory_manager", _Served.manager) is _Served.manager
        return ours and _Served.pool is pool

    def detach(self, pool: Pool) -> Reason | None:
        driver = _driver()
        if _Served.pool is pool:
            _Served.pool = None
        if not _Served.manager.used and getattr(driver, "_memory_manager", None) is _Served.manager:
            driver._memory_manager = None  # as before the first context: Numba chooses then
        return None


def _driver() -> Any:
    return sys.modules.get("numba.cuda.cudadrv.driver")


def _has_context(driver: Any) -> bool:
    """Whether Numba has made a context.

    Private, since nothing public tells without making one. The devices that it knows have
    theirs; and its own manager is only ever set when one is made (driver.py,
    ``_ensure_memory_manager``).
    """
    devices = getattr(getattr(driver, "driver", None), "devices", {})
    if any(getattr(device, "primary_context", None) is not None for device in devices.values()):
        return True
    manager = getattr(driver, "_memory_manager", None)
    return manager is not None and manager is getattr(driver, "NumbaCUDAMemoryManager", None)


def _manager() -> Any:
    """Return the class of managers, as Numba asks for: it makes one for each context."""
    from numba import cuda
    from numba.cuda.cudadrv import driver

    class PoolManager(cuda.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
        """Device memory of the pool; page-locked memory is Numba's own."""

        used = False
        interface_version = 1
        _own: Any = None

        def initialize(self) -> None:
            type(self).used = True

        def _pool(self) -> Pool | None:
            """Return the pool to ask; None where there is none for this device."""
            pool = _Served.pool
            return pool if pool is not None and self.context.device.id in pool.served else None

        def _numbas(self) -> Any:
            """Return Numba's own manager for this context."""
            if self._own is None:
                self._own = driver.NumbaCUDAMemoryManager(context=self.context)
                self._own.initialize()
            return self._own

        def memalloc(self, size: int) -> Any:
            pool = self._pool()
            if pool is None:
                return self._numbas().memalloc(size)
            # On the default stream, as Numba's own: it frees without knowing of streams.
            block = Block(pool, size, _LEGACY_DEFAULT_STREAM, self.context.device.id, "numba")
            self.allocations[block.ptr] = block
            drop = _dropping(self.allocations, block.ptr)
            return cuda.MemoryPointer(self.context, _pointer(driver, block.ptr), size, finalizer=drop)

        def get_memory_info(self) -> Any:
            pool = self._pool()
            if pool is None:
                return self._numbas().get_memory_info()
            free, total = pool.memory_info(self.context.device.id)
            return cuda.MemoryInfo(free=free, total=total)

        def reset(self) -> None:
            super().reset()
            if self._own is not None:
                self._own.reset()

        def get_ipc_handle(self, memory: Any) -> Any:
            raise NotImplementedError("memory of a pool has no IPC handle: use one of Numba's own arrays")

    return PoolManager


def _dropping(allocations: dict[int, Block], ptr: int) -> Callable[[], None]:
    def drop() -> None:
        # A context that is reset has cleared them before (as RMM's plugin has it).
        allocations.pop(ptr, None)

    return drop


def _pointer(driver: Any, ptr: int) -> Any:
    """Return an address in the type that this Numba has: numba-cuda the bindings', built-in ctypes'."""
    if getattr(driver, "USE_NV_BINDING", True):
        from cuda.bindings.driver import CUdeviceptr

        return CUdeviceptr(ptr)
    return driver.drvapi.cu_device_ptr(ptr)
