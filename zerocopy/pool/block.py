"""Memory of a pool that goes back when nobody looks at it any more: what frameworks hold on to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


class Block:
    """One allocation; its memory is freed on the stream that it was made on.

    Attributes
    ----------
    ptr, nbytes : int
        0 and 0 where nothing was asked for: pools do not give out nothing.
    """

    __slots__ = ("_pool", "_stream", "device", "nbytes", "ptr")

    def __init__(self, pool: Pool, nbytes: int, stream: int, device: int, through: str) -> None:
        self.ptr = 0  # for `__del__`, should taking fail
        self.nbytes, self.device = nbytes, device
        self._pool, self._stream = pool, stream
        if nbytes:
            self.ptr = pool.take(nbytes, stream, device, through)

    def __del__(self) -> None:
        if self.ptr:
            self._pool.give(self.ptr, self.nbytes, self._stream, self.device)
