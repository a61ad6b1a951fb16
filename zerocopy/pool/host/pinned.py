"""``host="pinned"``: page-locked memory from a pool, for transfers to and from CUDA devices."""

from __future__ import annotations

from zerocopy.errors import Reason
from zerocopy.formatting.units import format_bytes
from zerocopy.pool.gpus import visible_gpus
from zerocopy.pool.host.mode import HostStats, Mode
from zerocopy.pool.host.page_locked import CudaHostMemory, PinnedPool


class Pinned(Mode):
    """A pool of page-locked memory for `Pool.pinned`; no allocator is changed."""

    name = "pinned"
    about = "page-locked memory from a pool, for fast transfers to and from a GPU"
    memory = "page-locked"

    def __init__(self) -> None:
        self.allocator: PinnedPool | None = None

    def check(self) -> Reason | None:
        """Return why CUDA has no device; None if it has one. The driver is not initialised."""
        return visible_gpus()[1]

    def _install(self) -> None:
        self.allocator = PinnedPool(CudaHostMemory())

    def _restore(self) -> str:
        pool, self.allocator = self.allocator, None
        if pool is None:
            return ""
        pool.close()
        if not pool.in_use:
            return ""
        return (
            f"{format_bytes(pool.in_use)} of page-locked memory are in use, and are freed with their arrays"
        )

    def describe(self) -> str:
        """Return the sizes of used and of kept memory."""
        pool = self.allocator
        if pool is None:
            return f"{self.name}: not installed"
        sizes = f"{format_bytes(pool.in_use)} in use, {format_bytes(pool.kept)} kept for reuse"
        return f"{self.name}: page-locked memory from pool.pinned(); {sizes}"

    def trim(self) -> int:
        """Free the memory that is kept for reuse; return the number of bytes."""
        pool = self.allocator
        return pool.trim() if pool is not None else 0

    def keep_at_most(self, limit: int | None) -> None:
        """Limit the memory that is kept for reuse, and free what exceeds the limit."""
        pool = self.allocator
        if pool is not None:
            pool.keep_at_most(limit)

    def _stats(self) -> HostStats:
        pool = self.allocator
        return HostStats() if pool is None else HostStats(*pool.figures())
