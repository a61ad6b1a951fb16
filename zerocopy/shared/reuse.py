"""``set_limit`` and ``trim``: the unused segments that this process keeps for its next objects."""

from __future__ import annotations

from zerocopy.shared import idle
from zerocopy.shared.share import large_blocks, slabs


def set_limit(nbytes: int | None) -> None:
    """Set how many bytes of shared memory this process keeps for reuse when no handle needs them.

    Parameters
    ----------
    nbytes : int, optional
        0 keeps nothing. None: the default, 64 MB or an eighth of the memory that was free when the last
        segment was made, whichever is less.

    Raises
    ------
    TypeError, ValueError
        It is not an int, or is negative.

    Notes
    -----
    A larger limit is useful for a process that shares large objects one after the other: sharing 64 MiB in
    memory that was used before takes a fifth of the time, because the kernel zeroes fresh memory.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.shared.set_limit(1_000_000_000)
    >>> zc.shared.set_limit(None)
    """
    if nbytes is not None and (isinstance(nbytes, bool) or not isinstance(nbytes, int)):
        kind = type(nbytes).__name__
        raise TypeError(
            f"zerocopy.shared.set_limit({nbytes!r}): a {kind} is not a number of bytes; pass an int"
        )
    if nbytes is not None and nbytes < 0:
        raise ValueError(f"zerocopy.shared.set_limit({nbytes}): the limit is negative; pass 0 or more")
    idle.choose(nbytes)
    slabs.shrink()
    large_blocks.shrink()


def trim() -> int:
    """Return the shared memory that no handle needs to the system.

    Returns
    -------
    int
        Bytes returned.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> zc.share(np.ones(1_000_000)).close()
    >>> zc.shared.trim() >= 8_000_000
    True
    """
    return slabs.trim() + large_blocks.trim()
