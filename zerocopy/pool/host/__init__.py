"""Host memory of the whole process: ``install_pool(host=...)``.

A mode is one class in one file, and one row in :data:`MODES`. Modes change the allocators of the
C library and NumPy for the whole process; all but ``"pinned"`` work without a GPU.

Examples
--------
>>> [mode.name for mode in parse("aligned+pinned")]
['aligned', 'pinned']
>>> parse("off")
[]
"""

from __future__ import annotations

from zerocopy.errors import PoolOptionError
from zerocopy.pool.host.aligned import Aligned
from zerocopy.pool.host.mode import Mode
from zerocopy.pool.host.page_locked import CudaHostMemory, HostMemory, LibcMemory, PinnedPool
from zerocopy.pool.host.pinned import Pinned
from zerocopy.pool.host.recycle import Recycle
from zerocopy.pool.sizes import suggest

__all__ = ["MODES", "CudaHostMemory", "HostMemory", "LibcMemory", "Mode", "PinnedPool", "parse"]

#: Modes by name. There is one instance of each, because they change the whole process.
MODES: dict[str, Mode] = {mode.name: mode for mode in (Aligned(), Recycle(), Pinned())}

_OFF = "off"


def parse(text: str) -> list[Mode]:
    """Return the modes in a text."""
    asked = f"host={text!r}"
    names = [part.strip().lower() for part in text.split("+")] if isinstance(text, str) else [""]
    if names == [_OFF]:
        return []
    for name in names:
        if name not in MODES and name != _OFF:
            remedy = f"{suggest(name, [_OFF, *MODES])}; several are joined by +"
            raise PoolOptionError(asked, f"{name!r} is not a mode of host memory", remedy)
    if _OFF in names:
        raise PoolOptionError(
            asked, f"{_OFF!r} cannot be combined with modes", f"leave {_OFF!r} out, or the others"
        )
    return [mode for mode in MODES.values() if mode.name in names]
