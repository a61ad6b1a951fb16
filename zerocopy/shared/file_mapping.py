"""``FileMapping``: mapped memory of a file, with the descriptor that keeps the file open."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable
from typing import Any, Self

import numpy as np

_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
#: <asm-generic/mman-common.h>; Python names it from 3.12 on.
_MAP_NORESERVE = 0x4000
# Before Python 3.13, mmap duplicates the descriptor, and closes the duplicate with the mapping.
_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class FileMapping(mmap.mmap):
    """A mapping of a whole file that owns the file's descriptor. Arrays over it keep it.

    A program that becomes a daemon closes all descriptors, and their numbers can then belong to other
    files. A mapping whose descriptor was closed closes nothing when it is dropped.

    Attributes
    ----------
    fd : int
        The descriptor, which the mapping closes when it is dropped.
    inode : int
        The inode of the file.
    length : int
        Bytes of the file.
    address : int
        The address of its first byte.
    """

    __slots__ = ("address", "fd", "inode", "length")
    address: int
    fd: int
    inode: int
    length: int

    @classmethod
    def shared(cls, fd: int) -> Self:
        """Map a file whose other users see what is written."""
        return cls._map(fd, mmap.MAP_SHARED)

    @classmethod
    def private(cls, fd: int) -> Self:
        """Map a file; a write copies the page for this process, and no memory is reserved for it."""
        return cls._map(fd, mmap.MAP_PRIVATE | _MAP_NORESERVE)

    @classmethod
    def _map(cls, fd: int, flags: int) -> Self:
        status = os.fstat(fd)
        size, inode = status.st_size, status.st_ino
        mapped = cls(fd, size, flags=flags, prot=_ACCESS, **_OPTIONS)
        mapped.address = int(np.frombuffer(mapped, np.uint8).__array_interface__["data"][0])
        mapped.length, mapped.inode, mapped.fd = size, inode, fd
        return mapped

    def has_descriptor(self, status: Callable[[int], os.stat_result] = os.fstat) -> bool:
        """Whether the descriptor is still open, and that of the file."""
        try:
            return status(self.fd).st_ino == self.inode
        except OSError:
            return False

    # At interpreter exit modules are cleared already, and the kernel closes the descriptor.
    def __del__(
        self,
        is_exiting: Callable[[], bool] = sys.is_finalizing,
        close: Callable[[int], None] = os.close,
    ) -> None:
        if is_exiting() or not hasattr(self, "fd"):
            return
        if self.has_descriptor():
            close(self.fd)
        elif not _OPTIONS:
            _keep_for_ever(self)  # dropping it would close another file's descriptor


def _keep_for_ever(obj: object) -> None:
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))
