"""Memory of a pool that goes back when nobody looks at it any more: what frameworks hold on to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zerocopy.pool.pool import Pool


class Block:
    """One allocation; its memory is freed on the stream that it was made on.

    Parameters
    ----------
    stream : int or object
        A handle, or a stream with its handle as ``ptr``, which is kept as long as the memory is.

    Attributes
    ----------
    ptr, nbytes : int
        0 and 0 where nothing was asked for: pools do not give out nothing.
    """

    __slots__ = ("_handle", "_pool", "_stream", "device", "nbytes", "ptr")

    def __init__(self, pool: Pool, nbytes: int, stream: Any, device: int, through: str) -> None:
        self.ptr = 0  # for `__del__`, should taking fail
        self.nbytes, self.device = nbytes, device
        self._pool, self._stream = pool, stream
        # 0 is the default stream as a framework was built to have it: the legacy one, which is 1.
        self._handle = int(getattr(stream, "ptr", stream)) or 1
        if nbytes:
            self.ptr = pool.take(nbytes, self._handle, device, through)

    def __del__(self) -> None:
        if self.ptr:
            self._pool.give(self.ptr, self.nbytes, self._handle, self.device)
