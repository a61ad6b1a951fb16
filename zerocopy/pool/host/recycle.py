"""``host="recycle"``: the C library keeps large blocks for reuse."""

from __future__ import annotations

from zerocopy.errors import Reason
from zerocopy.pool.host import c_library, recycling
from zerocopy.pool.host.mode import HostStats, Mode


class Recycle(Mode):
    """Freed large blocks are kept for NumPy, torch and all other users of the C library.

    The kernel maps and clears new pages one by one, which takes longer than writing them.
    """

    name = "recycle"
    about = "the C library keeps large blocks for reuse"
    memory = "heap"

    def check(self) -> Reason | None:
        """Return why the C library's allocator cannot be changed; None if it can."""
        return None if self.installed else c_library.refusal()

    def _install(self) -> None:
        recycling.enable(self.name)

    def _restore(self) -> str:
        return recycling.disable(self.name)

    def describe(self) -> str:
        """Return which blocks are kept."""
        return f"{self.name}: {recycling.describe() if self.installed else 'not installed'}"

    def trim(self) -> int:
        """Return free memory of the C library to the system; return the number of bytes."""
        return c_library.trim()

    def keep_at_most(self, limit: int | None) -> None:
        """Limit the free memory at the end of the heap; free blocks within the heap are trimmed once."""
        recycling.keep_at_most(limit)

    def _stats(self) -> HostStats:
        return HostStats(*c_library.heap())
