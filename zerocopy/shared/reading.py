"""How a process opens blocks of others: it checks the file, maps a large block, and copies a small one.

A handle can be old, damaged or hostile. No file is opened that is not a sealed memfd of this package and
this user, and no byte is used before the generation has been compared under a lease.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import stat
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from zerocopy import forks
from zerocopy.errors import ZeroCopyError
from zerocopy.protocols.array_interface import aligned_empty
from zerocopy.shared.address_book import AddressBook
from zerocopy.shared.errors import (
    HandleAccessError,
    HandleFormatError,
    OtherHostError,
    SharedMemoryError,
    StaleHandleError,
)
from zerocopy.shared.host import host_id
from zerocopy.shared.location import Location
from zerocopy.shared.page_map import was_written
from zerocopy.shared.segment import HEAD, MAGIC, NAME, Array

_KEEP = "keep the Shared in its owner until every reader has opened it"
_NEEDED_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
#: <asm-generic/mman-common.h>; Python names it from 3.12 on.
_MAP_NORESERVE = 0x4000
#: An owner holds the lock for an instant, when it looks for readers.
_LEASE_TRIES = 200

#: The owners of shared memory in this process: blocks, and mappings of other processes' blocks.
addresses = AddressBook()
_mappings: WeakValueDictionary[Location, Mapping] = WeakValueDictionary()
_lock = forks.plain_lock()


class Mapping(mmap.mmap):
    """A large block of another process, or of this one, mapped privately under a lease.

    The first write to a page copies the page for this process, because some frameworks cannot mark
    memory as read-only: other processes never see the write, and it does not fault.
    Arrays over the mapping keep it.
    """

    __slots__ = ("address", "fd", "length", "location")
    address: int
    fd: int
    location: Location
    length: int

    @property
    def extent(self) -> tuple[int, int]:
        """The first address of the mapping, and the address past the last."""
        return self.address, self.address + self.length

    def own_location(self) -> Location:
        """Return where others find the block through this process, also after its owner's end."""
        return self.location._replace(pid=os.getpid(), fd=self.fd)

    def can_hand_on(self, address: int, length: int) -> bool:
        """Whether the block has the bytes at an address as this process sees them."""
        return not was_written(address, length)

    def part(self, first: int, count: int) -> Array:
        """Return bytes, read-only.

        Raises
        ------
        HandleFormatError
            They are outside the block's segment.
        """
        check_extent(first, count, self.length)
        array: Array = np.ndarray((count,), np.uint8, self, first)
        array.flags.writeable = False
        return array

    # The lease ends when this descriptor and the mapping's own are closed.
    def __del__(self, close: Callable[[int], None] = os.close, status: Any = os.fstat) -> None:
        try:
            if status(self.fd).st_ino == self.location.inode:
                close(self.fd)
        except (AttributeError, OSError):
            pass  # it was not mapped, or the program has closed the descriptor


def map_block(location: Location) -> Mapping:
    """Map the block at a location.

    Raises
    ------
    StaleHandleError, OtherHostError, HandleAccessError, SharedMemoryError
    """
    fd = open_segment(location)
    try:
        _lease(fd)
        check_generation(fd, location)
        length = os.fstat(fd).st_size
        access = mmap.PROT_READ | mmap.PROT_WRITE
        # No memory is reserved for pages that may be written; the seals keep the size.
        mapped = Mapping(fd, length, flags=mmap.MAP_PRIVATE | _MAP_NORESERVE, prot=access)
    except BaseException as error:
        os.close(fd)
        if not isinstance(error, (OSError, ValueError)) or isinstance(error, ZeroCopyError):
            raise
        why = f"the kernel did not map the memory: {error}"
        remedy = "raise the limit with ulimit -n or ulimit -v, or drop results that are no longer needed"
        raise SharedMemoryError("", why, remedy) from error
    mapped.location, mapped.fd, mapped.length = location, fd, length
    mapped.address = int(np.frombuffer(mapped, np.uint8).__array_interface__["data"][0])
    return mapped


def mapping(location: Location) -> Mapping:
    """Return the mapping of a block, which all its handles in this process share while one is in use."""
    found = _mappings.get(location)
    if found is None:
        found = map_block(location)
        with _lock:
            found = _mappings.setdefault(location, found)
        addresses.add(*found.extent, found)
    return found


def read_small(location: Location, offset: int, nbytes: int) -> Array:
    """Return a copy of bytes of a small block, which the owner may use again at any time.

    The bytes are right if the generation is the same before and after they were read, because an owner
    changes the generation before it writes.
    """
    fd = open_segment(location)
    try:
        check_generation(fd, location)
        check_extent(offset, nbytes, os.fstat(fd).st_size)
        copy = aligned_empty((nbytes,), np.dtype(np.uint8))
        os.preadv(fd, [copy.data], offset)
        check_generation(fd, location)
    finally:
        os.close(fd)
    copy.flags.writeable = False
    return copy


def check_extent(offset: int, nbytes: int, size: int) -> None:
    """Raise `HandleFormatError` if bytes lie outside the `size` bytes of a segment."""
    if offset + nbytes > size:
        why = f"it names bytes {offset:,} to {offset + nbytes:,} of a segment of {size:,} bytes"
        raise HandleFormatError("", why, "pass the bytes of a handle unchanged: bytes(shared)")


def open_segment(location: Location) -> int:
    """Return a new file descriptor of a segment, with a file description of its own.

    Raises
    ------
    StaleHandleError, OtherHostError, HandleAccessError, SharedMemoryError
    """
    if location.host != host_id():
        raise _other_host(location)
    path = f"/proc/{location.pid}/fd/{location.fd}"
    try:
        # Read before opening: opening a device or a pipe can block or have effects.
        name = os.readlink(path)
        if name != f"/memfd:{NAME} (deleted)":
            raise _stale(location)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except PermissionError as error:
        raise _no_access(location, str(error)) from error
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            remedy = "raise the limit with ulimit -n, or drop results that are no longer needed"
            raise SharedMemoryError("", f"opening the memory failed: {error}", remedy) from error
        raise _stale(location) from error
    try:
        _check_file(fd, location)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_file(fd: int, location: Location) -> None:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_ino != location.inode:
        raise _stale(location)
    if status.st_uid != os.geteuid():
        raise _no_access(location, f"its memory belongs to user {status.st_uid}")
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _NEEDED_SEALS != _NEEDED_SEALS:
        # Its owner could shrink it, and the kernel would end this process by SIGBUS.
        raise _no_access(location, "its memory is not sealed")


def check_generation(fd: int, location: Location) -> None:
    """Raise `StaleHandleError` if the block at a location has other content than its handle."""
    head = os.pread(fd, HEAD.size, location.start) if location.start < 1 << 62 else b""
    if len(head) < HEAD.size or HEAD.unpack(head) != (MAGIC, location.generation):
        raise StaleHandleError("", "its owner has freed the memory, or uses it again", _KEEP)


def _lease(fd: int) -> None:
    for attempt in range(_LEASE_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(1e-5 * attempt)
        else:
            return
    raise StaleHandleError("", "its owner uses the memory again", _KEEP)


def _stale(location: Location) -> StaleHandleError:
    why = f"its owner, process {location.pid}, has freed the memory or has ended"
    return StaleHandleError("", why, _KEEP)


def _no_access(location: Location, why: str) -> HandleAccessError:
    remedy = f"run the reader as the user of process {location.pid}, or send the object's bytes"
    return HandleAccessError("", f"this process must not open it: {why}", remedy)


def _other_host(location: Location) -> OtherHostError:
    ours = host_id()
    place = "another PID namespace" if location.host[:16] == ours[:16] else "another machine"
    why = f"it was made on {place}, whose memory this process cannot open"
    return OtherHostError("", why, "send the object's bytes: zerocopy.pickling.dumps(x)")
