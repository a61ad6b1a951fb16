"""``LockedMemory``: page-locked host memory, or ordinary memory if the system refuses it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

import numpy as np

from zerocopy.errors import DeviceError
from zerocopy.pool.host.page_locked import CudaHostMemory
from zerocopy.protocols.array_interface import aligned_empty
from zerocopy.source import Array


class LockedMemory:
    """Allocates page-locked memory.

    Attributes
    ----------
    warnings : tuple of str
        Why memory is not page-locked.
    """

    def __init__(self, device: int) -> None:
        self._source = CudaHostMemory(device)
        self.warnings: tuple[str, ...] = ()

    def allocate(self, nbytes: int) -> Array:
        """Return uninitialised memory: uint8 of shape (nbytes,), at a multiple of 64 bytes."""
        if not self.warnings and nbytes:
            try:
                return np.asarray(_Block(self._source, nbytes))
            except MemoryError as error:
                self.warnings = (
                    f"host memory is not page-locked, so copies to the device are slower: {error} "
                    "(see ulimit -l and the container's limit)",
                )
        return aligned_empty((nbytes,), np.dtype(np.uint8))


class _Block:
    """Page-locked memory as the base of an array, which frees it."""

    __slots__ = ("__array_interface__", "_nbytes", "_pid", "_ptr", "_source")

    def __init__(self, source: CudaHostMemory, nbytes: int) -> None:
        self._source, self._nbytes, self._pid, self._ptr = source, nbytes, os.getpid(), 0
        self._ptr = source.allocate(nbytes)
        self.__array_interface__ = {
            "data": (self._ptr, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self) -> None:
        # At shutdown the driver may be unloaded; the operating system reclaims the memory.
        if self._ptr and not sys.is_finalizing() and os.getpid() == self._pid:
            with suppress(DeviceError):
                self._source.free(self._ptr, self._nbytes)
