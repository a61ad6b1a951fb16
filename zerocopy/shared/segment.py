"""``Segment``: a Linux memfd, as its owner holds it.

memfd_create(2) gives memory without a name, which the kernel frees with its last user. Seals
(fcntl(2), "File Sealing") prevent a reader from writing to it, and from shrinking it, which would end
other readers by SIGBUS.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from zerocopy.shared import figures, idle, room
from zerocopy.shared.errors import SharedMemoryError, no_file_descriptor
from zerocopy.shared.file_mapping import FileMapping

if not hasattr(os, "memfd_create"):
    raise ImportError(
        "zerocopy.share: the Python of this process has no memfd_create(2), which needs Linux.\n"
        "  To fix: send the object's bytes: zerocopy.pickling.dumps(x)"
    )

NAME = "zerocopy"
MAGIC = b"ZCBLOCK1"
#: The head of each block: `MAGIC`, and the block's generation (see `zerocopy.shared.location`).
HEAD = struct.Struct("<8sQ")

# <linux/fcntl.h>; Python names it from 3.15 on. Only mappings that exist already can write.
_F_SEAL_FUTURE_WRITE = 0x10
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE
#: memfd_create(2): the file can never be made executable. Unknown before Linux 6.3.
_MFD_NOEXEC_SEAL = 0x8

Array = np.ndarray[Any, Any]


class Segment:
    """Memory of this process that other processes can open.

    Parameters
    ----------
    size : int
        In bytes.
    frames : sequence of (int, ndarray)
        Bytes to write, with their offsets.
    committed : bool
        Whether to allocate all of its memory now; otherwise only the pages of `frames` are allocated.

    Raises
    ------
    SharedMemoryError
        There is not enough memory, or no file descriptor.
    """

    __slots__ = ("__weakref__", "_committed", "_map", "_words", "address", "bytes", "fd", "inode", "size")

    def __init__(self, size: int, frames: Sequence[tuple[int, Array]] = (), committed: bool = False) -> None:
        self.size = size
        self._committed = max((offset + frame.nbytes for offset, frame in frames), default=0)
        try:
            check_room(size)
            self._map = _mapped_memfd(size)
            self.fd, self.inode, self.address = self._map.fd, self._map.inode, self._map.address
            # pwrite allocates and copies in 8.5 times a memcpy; copying into the mapping takes 13 times.
            for offset, frame in frames:
                _write(self.fd, offset, frame)
            if committed:
                os.posix_fallocate(self.fd, 0, size)
                self._committed = size
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)
        except (OSError, OverflowError, ValueError) as error:
            raise refusal(size, error) from error
        self.bytes: Array = np.frombuffer(self._map, np.uint8)
        self._words = self.bytes.view(np.uint64)
        figures.segments[id(self)] = self

    def has_room(self, size: int) -> bool:
        """Allocate the first `size` bytes, so that writing to them cannot fail; False if there is no room."""
        if size > self._committed:
            try:
                check_room(size - self._committed)
                os.posix_fallocate(self.fd, 0, size)
            except (OSError, SharedMemoryError):
                return False
            self._committed = size
        return True

    def claim(self, generation: int) -> bool:
        """Begin the block at byte 0 again, unless a reader has a lease: a shared flock(2) of its own.

        The generation changes under the lock, so that a reader that gets a lease later reads it.
        """
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self.set_generation(0, generation)
        fcntl.flock(self.fd, fcntl.LOCK_UN)
        return True

    def is_open(self) -> bool:
        """Whether the file descriptor is still that of the segment; a daemon may have closed all of them."""
        return self._map.has_descriptor()

    def begin_blocks(self, distance: int, generation: int) -> None:
        """Write the heads of blocks that begin at multiples of `distance` bytes."""
        words = distance // 8
        self._words[0::words] = int.from_bytes(MAGIC, sys.byteorder)
        self._words[1::words] = generation

    def set_generation(self, start: int, generation: int) -> None:
        """Change a block's generation by one store of 8 bytes, of which no reader sees a part."""
        self._words[start // 8 + 1] = generation


def check_room(size: int) -> None:
    """Raise `SharedMemoryError` if the machine or a cgroup has fewer free bytes than `size`."""
    free, limit = room.available()
    if size > free:
        raise SharedMemoryError(
            "",
            f"{size:,} bytes are needed and {free:,} are available ({limit})",
            "free memory, share a smaller part, or raise the limit",
        )
    idle.remember_free(free - size)


def refusal(size: int, error: Exception) -> SharedMemoryError:
    """Return the error for a failed system call."""
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        return no_file_descriptor(error)
    why = f"the kernel did not allocate {size:,} bytes of shared memory: {error}"
    return SharedMemoryError("", why, "free memory, or share a smaller part")


def _mapped_memfd(size: int) -> FileMapping:
    fd = create_memfd(NAME)
    try:
        os.ftruncate(fd, size)
        return FileMapping.shared(fd)
    except BaseException:
        os.close(fd)
        raise


def create_memfd(name: str) -> int:
    """Return the descriptor of a new memfd that can be sealed."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        return os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create(name, flags)


def seal_size(fd: int) -> None:
    """Prevent all processes from changing the size of a memfd; they can still write to it."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)


def _write(fd: int, offset: int, frame: Array) -> None:
    view = frame.data
    while view.nbytes:  # one call writes at most 2 GiB (write(2), "NOTES")
        written = os.pwrite(fd, view, offset)
        view, offset = view[written:], offset + written
