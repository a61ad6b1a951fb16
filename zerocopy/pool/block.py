"""`Block`: an allocation of a pool that is freed with its last reference."""

from __future__ import annotations

from typing import Any

from zerocopy.device import LEGACY_DEFAULT_STREAM
from zerocopy.pool.protocol import PoolInterface


class Block:
    """One allocation. Its memory is freed on the stream on which it was allocated.

    Parameters
    ----------
    stream : int or object
        A handle, or a stream with its handle as ``ptr``, which is kept alive as long as the memory.

    Attributes
    ----------
    ptr, nbytes : int
        Both 0 for an allocation of 0 bytes.
    """

    __slots__ = ("_handle", "_pool", "_stream", "device", "nbytes", "ptr")

    def __init__(self, pool: PoolInterface, nbytes: int, stream: Any, device: int, requester: str) -> None:
        self.ptr = 0  # `__del__` reads it if the allocation fails
        self.nbytes, self.device = nbytes, device
        self._pool, self._stream = pool, stream
        # 0 means the default stream of the framework's build: the legacy one.
        self._handle = int(getattr(stream, "ptr", stream)) or LEGACY_DEFAULT_STREAM
        if nbytes:
            self.ptr = pool.allocate_for(requester, nbytes, self._handle, device)

    def __del__(self) -> None:
        if self.ptr:
            self._pool.free(self.ptr, self.nbytes, self._handle, self.device)
