"""The kind ``"driver"``: CUDA's default memory pool of a device, which all frameworks can share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zerocopy import forks
from zerocopy.errors import PoolUnavailableError
from zerocopy.pool.settings import Settings
from zerocopy.pool.sizes import show_size
from zerocopy.pool.stats import Segment, Stats
from zerocopy.protocols import cuda_driver, cuda_pool

#: Keep all: without a threshold the driver gives free memory back to the device each time
#: that a stream is waited for, and asks for it anew afterwards (CUDA C++ Programming Guide,
#: "Stream Ordered Memory Allocator").
KEEP_ALL = 2**64 - 1
_LEGACY_DEFAULT_STREAM = 1


class DriverPool:
    """Allocates from a device's default pool.

    The driver is not called before somebody needs memory or figures: a process that only
    prepares itself can still fork.

    Parameters
    ----------
    device : int
    settings : Settings
    """

    #: Counts no allocations one by one: what is outstanding is known through the ledger alone.
    follows = False
    #: The driver tells what it has taken.
    by_device = False

    def __init__(self, device: int, settings: Settings) -> None:
        self.device = device
        self._settings = settings
        self._handle = 0
        self._before = 0
        self._lock = forks.lock()

    @property
    def handle(self) -> int:
        """The ``CUmemoryPool``, with its threshold set and its beginning reserved.

        Raises
        ------
        PoolUnavailableError
            The driver does not answer, the device has no memory pools, or not as much memory as
            ``initial=`` asks for.
        """
        if not self._handle:
            with self._lock:
                if not self._handle:
                    self._handle = self._opened()
        return self._handle

    def _opened(self) -> int:
        device, initial = self.device, self._settings.initial
        reason = cuda_driver.missing()
        if reason is not None:
            raise PoolUnavailableError("install_pool('driver')", reason.why, reason.remedy)
        if not cuda_pool.supported(device):
            raise PoolUnavailableError(
                "install_pool('driver')", f"device {device} has no memory pools", "use kind='rmm'"
            )
        cuda_driver.hold(device)
        handle = cuda_pool.default_pool(device)
        before = cuda_pool.get(device, handle, cuda_pool.RELEASE_THRESHOLD)
        cuda_pool.put(device, handle, cuda_pool.RELEASE_THRESHOLD, self.threshold)
        if initial:
            try:
                # Memory stays with a pool below its threshold: so what is taken once is there.
                ptr = cuda_pool.allocate(device, handle, initial, _LEGACY_DEFAULT_STREAM)
            except MemoryError as error:
                cuda_pool.put(device, handle, cuda_pool.RELEASE_THRESHOLD, before)
                raise PoolUnavailableError(
                    f"install_pool('driver', initial={initial})",
                    f"device {device} has not so much left",
                    "ask for less: initial= is taken at once",
                ) from error
            cuda_pool.free(device, ptr, _LEGACY_DEFAULT_STREAM)
            cuda_pool.finish(device, _LEGACY_DEFAULT_STREAM)
        self._before = before
        return handle

    @property
    def threshold(self) -> int:
        """The release threshold that was asked for, in bytes."""
        asked = self._settings.release_threshold
        return KEEP_ALL if asked is None else asked

    @property
    def used(self) -> bool:
        """Whether there is anything to ask the driver: we have called it, or a framework has a context."""
        return bool(self._handle) or cuda_pool.awake(self.device)

    def allocate(self, nbytes: int, stream: int) -> int:
        """Return the address of memory that work on the stream may use from here on."""
        return cuda_pool.allocate(self.device, self.handle, nbytes, stream)

    def deallocate(self, ptr: int, nbytes: int, stream: int) -> None:
        """Free memory after what the stream has been given."""
        cuda_pool.free(self.device, ptr, stream)

    def resource(self, mr: Any) -> Any:
        """Return the pool as a resource of RMM, which is imported."""
        from cuda.bindings import driver

        return mr.CudaAsyncViewMemoryResource(driver.CUmemoryPool(self.handle))

    def in_use(self) -> int:
        """Return the bytes that are given out."""
        return self.stats().current_bytes

    def settle(self) -> None:
        """Set the threshold again, which frameworks write too."""
        if self.used and self._threshold_now() != self.threshold:
            cuda_pool.put(self.device, self.handle, cuda_pool.RELEASE_THRESHOLD, self.threshold)

    def stats(self) -> Stats:
        """Return the driver's own figures: those of all frameworks together."""
        if not self.used:
            return Stats(0, 0, 0)
        current, high, reserved = (
            cuda_pool.get(self.device, self.handle, attribute)
            for attribute in (cuda_pool.USED_CURRENT, cuda_pool.USED_HIGH, cuda_pool.RESERVED_CURRENT)
        )
        return Stats(current, high, reserved)

    def counted(self, nbytes: int) -> int:
        """Return what an allocation counts against a cap, which is MPS's here."""
        return nbytes

    def cut(self) -> Segment:
        """Return what there was since the last cut, and begin anew."""
        if not self.used:
            return Segment(0)
        peak = cuda_pool.get(self.device, self.handle, cuda_pool.USED_HIGH)
        cuda_pool.put(self.device, self.handle, cuda_pool.USED_HIGH, 0)
        return Segment(peak)

    def start(self) -> None:
        """Do at once what must not wait: what was guaranteed, and a threshold of one's own."""
        if self._settings.initial or self._settings.release_threshold is not None:
            _ = self.handle

    def trim(self) -> int:
        """Give back what nobody uses; return how many bytes."""
        if not self.used:
            return 0
        before = self.stats().reserved_bytes or 0
        cuda_pool.trim(self.device, self.handle, 0)
        return before - (self.stats().reserved_bytes or 0)

    def release(self, in_use: bool) -> None:
        """Give the pool up: it is the driver's, and stays.

        Its threshold is set back if it is still ours, and no framework goes on using the pool.
        """
        if not in_use and self._handle and self._threshold_now() == self.threshold:
            cuda_pool.put(self.device, self.handle, cuda_pool.RELEASE_THRESHOLD, self._before)

    def remarks(self, others: Sequence[str]) -> list[str]:
        """Return what a report has to say: a threshold that somebody has written, perhaps one of `others`."""
        if not self.used or self._threshold_now() == self.threshold:
            return []
        kept = "everything" if self.threshold == KEEP_ALL else show_size(self.threshold)
        return [
            f"the pool of device {self.device} is to keep {kept}, and somebody ({', '.join(others)}) has set "
            f"{show_size(self._threshold_now())} since: pool.refresh() sets it again"
        ]

    def _threshold_now(self) -> int:
        return cuda_pool.get(self.device, self.handle, cuda_pool.RELEASE_THRESHOLD)
