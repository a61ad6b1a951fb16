"""The kind ``"driver"``: CUDA's default memory pool of a device, which all frameworks can share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy import forks
from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.errors import PoolUnavailableError, Reason
from zerocopy.formatting import format_bytes
from zerocopy.pool.settings import Settings
from zerocopy.pool.stats import Stats
from zerocopy.protocols import cuda_driver, cuda_pool

#: Keep all unused memory. By default the driver returns it to the device at each stream
#: synchronisation (CUDA C++ Programming Guide, "Stream Ordered Memory Allocator").
KEEP_ALL = 2**64 - 1


class DriverPool:
    """Allocates from a device's default pool.

    Unless the options reserve memory or set a threshold, the driver is not called before memory is
    allocated, so that a process that has only installed the pool can still fork.
    """

    def __init__(self, device: int, settings: Settings) -> None:
        self.device = device
        self._settings = settings
        threshold = settings.release_threshold
        self.threshold: int = KEEP_ALL if threshold is None else threshold
        self._handle = 0
        self._before = 0
        self._lock = forks.lock()
        if settings.initial or threshold is not None:
            _ = self.handle

    @property
    def handle(self) -> int:
        """The ``CUmemoryPool``, with its threshold set and its initial size reserved."""
        if not self._handle:
            with self._lock:
                if not self._handle:
                    self._handle = self._open()
        return self._handle

    def _open(self) -> int:
        device, initial = self.device, self._settings.initial
        reason = cuda_driver.missing()
        if reason is None and not cuda_pool.supported(device):
            reason = Reason(f"device {device} has no memory pools", "use kind='rmm'", code="no-memory-pools")
        if reason is not None:
            raise PoolUnavailableError("install_pool('driver')", reason.why, reason.remedy, code=reason.code)
        cuda_driver.hold(device)
        handle = cuda_pool.default_pool(device)
        before = cuda_pool.get_attribute(device, handle, cuda_pool.RELEASE_THRESHOLD)
        cuda_pool.set_attribute(device, handle, cuda_pool.RELEASE_THRESHOLD, self.threshold)
        if initial:
            try:
                # The pool keeps freed memory up to its threshold, so allocate and free the initial size.
                ptr = cuda_pool.allocate(device, handle, initial, LEGACY_DEFAULT_STREAM)
            except MemoryError as error:
                cuda_pool.set_attribute(device, handle, cuda_pool.RELEASE_THRESHOLD, before)
                raise PoolUnavailableError(
                    f"install_pool('driver', initial={initial})",
                    f"device {device} has less free memory",
                    "pass a smaller initial=, which is allocated at once",
                    code="out-of-memory",
                ) from error
            cuda_pool.free(device, ptr, LEGACY_DEFAULT_STREAM)
            cuda_driver.finish_stream(LEGACY_DEFAULT_STREAM, device)
        self._before = before
        return handle

    @property
    def is_active(self) -> bool:
        """Whether the pool was opened, or a framework has a context on the device."""
        return bool(self._handle) or cuda_pool.has_context(self.device)

    def allocate(self, nbytes: int, stream: int) -> int:
        """Return the address of memory that later work on the stream may use."""
        return cuda_pool.allocate(self.device, self.handle, nbytes, stream)

    def deallocate(self, ptr: int, nbytes: int, stream: int) -> None:
        """Free memory, ordered after the work submitted to the stream so far."""
        cuda_pool.free(self.device, ptr, stream)

    def resource(self, mr: Any) -> Any:
        """Return the pool as an RMM resource; `mr` is the module ``rmm.mr``."""
        from cuda.bindings import driver

        return mr.CudaAsyncViewMemoryResource(driver.CUmemoryPool(self.handle))

    def in_use(self) -> int:
        """Return the allocated bytes."""
        return self.stats().current_bytes

    def restore_threshold(self) -> None:
        """Set the threshold again, because frameworks overwrite it."""
        if self.is_active and self._threshold_now() != self.threshold:
            cuda_pool.set_attribute(self.device, self.handle, cuda_pool.RELEASE_THRESHOLD, self.threshold)

    def stats(self) -> Stats:
        """Return the driver's figures, for all frameworks together."""
        if not self.is_active:
            return Stats(0, 0, 0)
        current, high, reserved = (
            cuda_pool.get_attribute(self.device, self.handle, attribute)
            for attribute in (cuda_pool.USED_CURRENT, cuda_pool.USED_HIGH, cuda_pool.RESERVED_CURRENT)
        )
        return Stats(current, high, reserved)

    def charged_bytes(self, nbytes: int) -> int:
        """Return the bytes that an allocation counts against a limit, here that of MPS."""
        return nbytes

    def read_peak(self) -> int:
        """Return the most that was in use since the previous read."""
        if not self.is_active:
            return 0
        peak = cuda_pool.get_attribute(self.device, self.handle, cuda_pool.USED_HIGH)
        cuda_pool.set_attribute(self.device, self.handle, cuda_pool.USED_HIGH, 0)
        return peak

    def trim(self) -> int:
        """Return unused memory to the device; return the number of bytes."""
        if not self.is_active:
            return 0
        before = self.stats().reserved_bytes or 0
        cuda_pool.trim(self.device, self.handle, 0)
        return before - (self.stats().reserved_bytes or 0)

    def release(self, in_use: bool) -> None:
        """Restore the threshold if it is unchanged and no framework still uses the pool."""
        if not in_use and self._handle and self._threshold_now() == self.threshold:
            cuda_pool.set_attribute(self.device, self.handle, cuda_pool.RELEASE_THRESHOLD, self._before)

    def notes(self, writers: Sequence[str]) -> list[str]:
        """Return a note if the threshold was changed, perhaps by one of `writers`."""
        if not self.is_active or self._threshold_now() == self.threshold:
            return []
        kept = "everything" if self.threshold == KEEP_ALL else format_bytes(self.threshold)
        return [
            f"the release threshold of device {self.device} was {kept}, and is now "
            f"{format_bytes(self._threshold_now())} (written by {' or '.join(writers)}): "
            "pool.refresh() restores it"
        ]

    def _threshold_now(self) -> int:
        return cuda_pool.get_attribute(self.device, self.handle, cuda_pool.RELEASE_THRESHOLD)
