"""``host="aligned"``: NumPy's allocations are 64-byte aligned, in the whole process."""

from __future__ import annotations

from zerocopy.errors import Reason
from zerocopy.pool.host import data_handler, recycling
from zerocopy.pool.host.recycle import Recycle


class Aligned(Recycle):
    """64-byte aligned NumPy arrays, which JAX and Arrow import without a copy.

    Includes ``"recycle"``, because the C library does not keep blocks of ``aligned_alloc``.
    """

    name = "aligned"
    about = "NumPy's arrays are 64-byte aligned, and large blocks are kept for reuse"

    def check(self) -> Reason | None:
        """Return why NumPy's or the C library's allocator cannot be changed; None if both can."""
        return None if self.installed else super().check() or data_handler.refusal()

    def _install(self) -> None:
        super()._install()
        data_handler.enable("aligned")

    def _restore(self) -> str:
        return "; ".join(filter(None, (data_handler.disable("aligned"), super()._restore())))

    def describe(self) -> str:
        """Return which arrays are aligned and which are not."""
        if not self.installed:
            return f"{self.name}: not installed"
        missing, other = data_handler.why_not_compiled(), data_handler.other_handler()
        text = "NumPy's arrays are 64-byte aligned"
        if missing:
            text += f", except zeros and resized arrays, which need the compiled core ({missing})"
        if other:
            text += f"; this context allocates with {other!r}, which is not changed"
        return f"{self.name}: {text}; {recycling.describe()}"
