"""Host memory, for the whole process: ``install_pool(host=...)``.

A mode is one class in one file, and one row in :data:`MODES`. Modes change what the C library
and NumPy do for the whole process; they need no GPU, but for ``"pinned"``.

Examples
--------
>>> [mode.name for mode in parse("aligned+pinned")]
['aligned', 'pinned']
>>> parse("off")
[]
"""

from __future__ import annotations

import difflib

from zerocopy.errors import PoolOptionError
from zerocopy.pool.host.aligned import Aligned
from zerocopy.pool.host.mode import Mode
from zerocopy.pool.host.page_locked import CudaHostMemory, HostMemory, LibcMemory, PinnedPool
from zerocopy.pool.host.pinned import Pinned
from zerocopy.pool.host.recycle import Recycle

__all__ = ["MODES", "CudaHostMemory", "HostMemory", "LibcMemory", "Mode", "PinnedPool", "parse"]

#: Each mode by its name. There is one of each: what they change is the process's.
MODES: dict[str, Mode] = {mode.name: mode for mode in (Aligned(), Recycle(), Pinned())}

_OFF = "off"


def parse(text: str) -> list[Mode]:
    """Return the modes that a text names.

    Parameters
    ----------
    text : str
        ``"off"``, or names joined by ``+``: ``"aligned+pinned"``. Capitals and spaces do
        not matter; a name that is there twice counts once.

    Returns
    -------
    list of Mode
        The process's own, in the order of :data:`MODES`; none for ``"off"``.

    Raises
    ------
    PoolOptionError
        A name is not known, or ``"off"`` stands beside others.
    """
    asked = f"host={text!r}"
    names = [part.strip().lower() for part in text.split("+")] if isinstance(text, str) else [""]
    if names == [_OFF]:
        return []
    for name in names:
        if name not in MODES and name != _OFF:
            near = difflib.get_close_matches(name, [*MODES, _OFF], n=2)
            known = f"the modes are: {', '.join([_OFF, *MODES])}; two are joined by +"
            meant = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise PoolOptionError(asked, f"there is no mode {name!r} of host memory", meant + known)
    if _OFF in names:
        raise PoolOptionError(asked, "it is off, and it is not", f"leave {_OFF!r} out, or the others")
    return [mode for mode in MODES.values() if mode.name in names]
