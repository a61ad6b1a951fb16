"""``host="recycle"``: the C library keeps large blocks and gives them again."""

from __future__ import annotations

from zerocopy.errors import Reason
from zerocopy.pool.host import c_library, recycling
from zerocopy.pool.host.mode import Mode


class Recycle(Mode):
    """Large blocks are kept and given again, whoever asks for them: NumPy, torch, any C library.

    Fresh pages are faulted in and cleared one by one, which takes longer than to fill them.
    """

    name = "recycle"
    about = "the C library keeps large blocks for reuse"

    def check(self) -> Reason | None:
        """Return why not: see :mod:`zerocopy.pool.host.c_library`."""
        return None if self.installed else c_library.refusal()

    def _install(self) -> None:
        recycling.hold(self.name)

    def _restore(self) -> str:
        return recycling.release(self.name)

    def describe(self) -> str:
        """Return what is kept."""
        return f"{self.name}: {recycling.describe() if self.installed else 'not installed'}"

    def trim(self) -> int:
        """Give what the C library keeps back to the system, and return how many bytes that was."""
        return c_library.trim()
