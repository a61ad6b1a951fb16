"""``host="pinned"``: page-locked memory from a pool, for transfers to and from CUDA devices."""

from __future__ import annotations

from zerocopy.errors import Reason
from zerocopy.pool.cards import cards
from zerocopy.pool.host.mode import Mode
from zerocopy.pool.host.page_locked import CudaHostMemory, PinnedPool
from zerocopy.pool.sizes import show_size


class Pinned(Mode):
    """A pool of page-locked memory, to be asked by name: it changes nobody's allocator.

    Attributes
    ----------
    allocator : PinnedPool or None
        The pool, while the mode is in effect.
    """

    name = "pinned"
    about = "page-locked memory from a pool, for fast transfers to and from a GPU"

    def __init__(self) -> None:
        self.allocator: PinnedPool | None = None

    def check(self) -> Reason | None:
        """Return why there is no CUDA driver to lock pages; None if there is one, which is not called yet."""
        return cards()[1]

    def _install(self) -> None:
        self.allocator = PinnedPool(CudaHostMemory())

    def _restore(self) -> str:
        pool, self.allocator = self.allocator, None
        if pool is None:
            return ""
        pool.close()
        if not pool.in_use:
            return ""
        return f"{show_size(pool.in_use)} of page-locked memory are in use, and go when their arrays do"

    def describe(self) -> str:
        """Return how much is in use and how much is kept."""
        pool = self.allocator
        if pool is None:
            return f"{self.name}: not installed"
        sizes = f"{show_size(pool.in_use)} in use, {show_size(pool.kept)} kept for reuse"
        return f"{self.name}: page-locked memory for those who ask the pool for it; {sizes}"

    def trim(self) -> int:
        """Unlock what is kept for reuse, and return how many bytes that was."""
        pool = self.allocator
        return pool.trim() if pool is not None else 0
