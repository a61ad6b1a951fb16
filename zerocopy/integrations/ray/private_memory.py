"""Private, writable memory with the bytes of an object in Ray's store (plasma), without a copy.

Ray maps the file of its object store shared and writable in each process. NumPy marks its aliases
read-only, but torch cannot: a write to an aliased tensor changes the object for all processes.
The same range of the file, mapped once more with ``MAP_PRIVATE``, shares the pages until they are
written; the kernel then copies only the written pages.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from zerocopy.source import Array

# Bytes. A private mapping takes 28 us, as long as copying 1 MiB to memory that was written before.
MINIMUM = 1 << 20
# Bytes. Before Linux 6.11 (PROCMAP_QUERY) all mappings are listed: 1.7 ms with six frameworks loaded.
MINIMUM_WITHOUT_QUERY = 16 << 20

_QUERY = 0xC0686611  # PROCMAP_QUERY, linux/fs.h
_QUERY_FIELDS = struct.Struct("=9Q4I2Q")
_SHARED = 8  # PROCMAP_QUERY_VMA_SHARED
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A shared mapping of a file in this process."""

    start: int
    end: int
    offset: int  # of `start` in the file
    inode: int
    device: int

    def holds(self, status: os.stat_result) -> bool:
        """Whether this is the status of the mapped file."""
        return (status.st_ino, status.st_dev) == (self.inode, self.device)


class _PrivateMemory:
    """A private mapping, as the base of an ndarray; keeps the object in Ray's store."""

    def __init__(self, address: int, length: int, view: tuple[int, int], pinned: Any) -> None:
        self._address, self._length, self._pinned = address, length, pinned
        self._unmap = _libc().munmap  # kept for interpreter exit
        start, nbytes = view
        fields = {"shape": (nbytes,), "typestr": "|u1", "version": 3}
        self.__array_interface__ = {"data": (start, False), **fields}

    def __del__(self) -> None:
        self._unmap(self._address, self._length)


def writable_frame(frame: Array) -> Array:
    """Return writable memory with a frame's bytes: private pages of the same file, or a copy.

    Parameters
    ----------
    frame : ndarray of uint8, one-dimensional and contiguous
        Memory in Ray's store. It must not change later; the result keeps it alive.

    Returns
    -------
    ndarray of uint8
        A copy if the frame is small, does not lie in a shared mapping of a file, or if the kernel
        does not let this process open that file.
    """
    minimum = MINIMUM if _has_query() else MINIMUM_WITHOUT_QUERY
    private = _map_privately(frame) if frame.nbytes >= minimum else None
    return frame.copy() if private is None else private


def _map_privately(frame: Array) -> Array | None:
    start = frame.__array_interface__["data"][0]
    mapping = _find_mapping(start, start + frame.nbytes)
    file = None if mapping is None else _open(mapping)
    if mapping is None or file is None:
        return None
    first = start - (start - mapping.start) % mmap.PAGESIZE
    length = start + frame.nbytes - first
    try:
        # Not mmap.mmap, which keeps a file descriptor for each mapping before Python 3.13.
        address = _libc().mmap(
            None,
            length,
            mmap.PROT_READ | mmap.PROT_WRITE,
            mmap.MAP_PRIVATE,
            file,
            mapping.offset + first - mapping.start,
        )
    finally:
        os.close(file)
    if address is None or address == _FAILED:  # too many mappings
        return None
    view = address + start - first, frame.nbytes
    return np.asarray(_PrivateMemory(address, length, view, frame))


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes = (pointer, size, number, number, number, ctypes.c_int64)
    libc.mmap.restype = pointer
    libc.munmap.argtypes = (pointer, size)
    return libc


# -- the mapping of an address ---------------------------------------------------------


@cache
def _has_query() -> bool:
    """Whether the kernel finds one mapping without listing all."""
    try:
        _query(np.zeros(1).__array_interface__["data"][0])
    except OSError:
        return False
    return True


def _find_mapping(start: int, end: int) -> _Mapping | None:
    """Return the shared mapping of a file that holds a range of addresses."""
    with suppress(OSError):  # /proc is not mounted
        mapping = _query(start) if _has_query() else _search(start)
        return mapping if mapping is not None and end <= mapping.end else None
    return None


def _query(address: int) -> _Mapping | None:
    fields = bytearray(_QUERY_FIELDS.pack(_QUERY_FIELDS.size, 0, address, *[0] * 12))
    with open("/proc/self/maps", "rb") as maps:
        fcntl.ioctl(maps, _QUERY, fields)
    _, _, _, start, end, flags, _, offset, inode, major, minor, *_ = _QUERY_FIELDS.unpack(fields)
    if not flags & _SHARED or not inode:
        return None
    return _Mapping(start, end, offset, inode, os.makedev(major, minor))


def _search(address: int) -> _Mapping | None:
    with open("/proc/self/maps") as maps:
        for line in maps:
            addresses, flags, offset, device, inode, *_ = line.split(maxsplit=5)
            start, end = (int(text, 16) for text in addresses.split("-"))
            if start <= address < end:
                if "s" not in flags or inode == "0":
                    return None
                major, minor = (int(text, 16) for text in device.split(":"))
                return _Mapping(start, end, int(offset, 16), int(inode), os.makedev(major, minor))
    return None


# -- the file of a mapping ---------------------------------------------------------------


def _open(mapping: _Mapping) -> int | None:
    """Return a file descriptor of the mapped file, which has no name any more, or None."""
    # Needs CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN.
    own = f"/proc/self/map_files/{mapping.start:x}-{mapping.end:x}"
    return _open_if_same(own, mapping) or _open_of_owner(mapping)


def _open_if_same(path: str, mapping: _Mapping) -> int | None:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if mapping.holds(os.fstat(file)):
        return file
    os.close(file)
    return None


#: Where the owner of a file (inode and device) lists it: ``/proc/PID/fd/N``.
_owners: dict[tuple[int, int], str] = {}


def _open_of_owner(mapping: _Mapping) -> int | None:
    """Open the file through the process that created it: the raylet, of the same user."""
    key = mapping.inode, mapping.device
    file = _open_if_same(_owners[key], mapping) if key in _owners else None
    if file is None:
        path = next((path for process in _raylets() for path in _listed(process, mapping)), None)
        if path is not None:
            _owners[key] = path
            file = _open_if_same(path, mapping)
    return file


def _raylets() -> list[Path]:
    """Return the folders in /proc of the processes that may have created the object store."""
    processes = [Path(f"/proc/{pid}") for pid in (os.getppid(), os.getpid())]
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "comm").read_text().strip() == "raylet":
                processes.append(folder)
    return processes


def _listed(process: Path, mapping: _Mapping) -> list[str]:
    """Return the paths of a process's file descriptors of the mapped file."""
    paths = []
    with suppress(OSError):  # another user's, or it has ended
        for path in (process / "fd").iterdir():
            with suppress(OSError):
                if mapping.holds(path.stat()):
                    paths.append(str(path))
    return paths
