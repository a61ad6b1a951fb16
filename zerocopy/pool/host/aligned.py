"""``host="aligned"``: what NumPy allocates lies at multiples of 64 bytes, in the whole process."""

from __future__ import annotations

from zerocopy.errors import Reason
from zerocopy.pool.host import c_library, recycling
from zerocopy.pool.host.mode import Mode


class Aligned(Mode):
    """NumPy's arrays at multiples of 64 bytes, so that JAX and Arrow take them without a copy.

    It includes ``"recycle"``: what is aligned by the C library alone is not kept by it.
    """

    name = "aligned"
    about = "NumPy's arrays at multiples of 64 bytes, and large blocks are kept for reuse"

    def check(self) -> Reason | None:
        """Return why not: see :mod:`zerocopy.pool.host.c_library`, or NumPy is not as expected."""
        if self.installed:
            return None
        reason = c_library.refusal()
        if reason is not None:
            return reason
        from zerocopy.pool.host import data_handler

        return data_handler.refusal()

    def _install(self) -> None:
        from zerocopy.pool.host import data_handler

        recycling.hold(self.name)
        data_handler.want("aligned")

    def _restore(self) -> str:
        from zerocopy.pool.host import data_handler

        told = [data_handler.unwant("aligned"), recycling.release(self.name)]
        return "; ".join(filter(None, told))

    def describe(self) -> str:
        """Return what is aligned and what is not."""
        if not self.installed:
            return f"{self.name}: not installed"
        from zerocopy.pool.host import data_handler

        missing, other = data_handler.without_stubs(), data_handler.other_handler()
        told = "NumPy's arrays lie at multiples of 64 bytes"
        if missing:
            told += f", but not zeros and resized ones, which need functions of machine code: {missing}"
        if other:
            told += f"; this context allocates with {other!r}, which is left as it is"
        return f"{self.name}: {told}; {recycling.describe()}"

    def trim(self) -> int:
        """Give what the C library keeps back to the system, and return how many bytes that was."""
        return c_library.trim()
