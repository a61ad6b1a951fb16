"""``Segment``: a Linux memfd, as its owner holds it; ``FileMapping``: its memory, mapped.

memfd_create(2) gives memory without a name, which the kernel frees with its last user. Seals
(fcntl(2), "File Sealing") prevent a reader from writing to it, and from shrinking it, which would end
other readers by SIGBUS.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self
from weakref import WeakValueDictionary, ref

import numpy as np

from zerocopy.errors import SharedMemoryError
from zerocopy.shared import room
from zerocopy.shared.handle import no_file_descriptor
from zerocopy.shared.linux import fcntl

#: By identity. `Segment` and `Mapping` add their objects.
segments: WeakValueDictionary[int, Any] = WeakValueDictionary()
mappings: WeakValueDictionary[int, Any] = WeakValueDictionary()
#: References to `Shared` objects, by the identity of the reference, and how many there may be with dead ones.
_handles: dict[int, ref[Any]] = {}
_FEWEST = 256
_sweep_at = _FEWEST


def count_handle(shared: Any) -> None:
    """Let `read_figures` count a `Shared` object that keeps memory for other processes.

    A WeakValueDictionary takes three times as long: it has a callback in Python for each object.
    """
    global _sweep_at
    reference = ref(shared)
    _handles[id(reference)] = reference
    if len(_handles) >= _sweep_at:
        for key, each in _handles.copy().items():
            if each() is None:
                _handles.pop(key, None)
        _sweep_at = max(_FEWEST, 2 * len(_handles))


def _forget() -> None:
    """In a forked child: the segments are the parent's. Handles and mappings are copies, which it can use."""
    global segments
    segments = WeakValueDictionary()


os.register_at_fork(after_in_child=_forget)


class SharedFigures(NamedTuple):
    """Counts and bytes, now.

    Attributes
    ----------
    segments, segment_bytes : int
        Segments that this process created, also those that it keeps for reuse.
    handles : int
        `Shared` objects that keep memory for other processes, and were not closed.
    mapped, mapped_bytes : int
        Segments of other processes that are mapped here.
    leases : int
        Locks of this process on segments: one for each mapping, also of its own segments.
    """

    segments: int
    segment_bytes: int
    handles: int
    mapped: int
    mapped_bytes: int
    leases: int


def read_figures() -> SharedFigures:
    """Return how much shared memory this process has now; nothing is opened."""
    own, open_mappings, pid = _alive(segments.valuerefs()), _alive(mappings.valuerefs()), os.getpid()
    others = {each.inode: each.length for each in open_mappings if each.location.pid != pid}
    return SharedFigures(
        len(own),
        sum(segment.size for segment in own),
        sum(not shared.closed for shared in _alive([*_handles.values()])),
        len(others),
        sum(others.values()),
        len(open_mappings),
    )


def _alive(references: Iterable[ref[Any]]) -> list[Any]:
    return [each for each in (reference() for reference in references) if each is not None]


MAP_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
#: <asm-generic/mman-common.h>; Python names it from 3.12 on.
MAP_NORESERVE = 0x4000
# Before Python 3.13, mmap duplicates the descriptor, and closes the duplicate with the mapping.
MAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


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
        """Map a file; its other users see the bytes that this process writes."""
        return cls._map(fd, mmap.MAP_SHARED)

    @classmethod
    def private(cls, fd: int) -> Self:
        """Map a file; a write copies the page for this process, and no memory is reserved for it."""
        return cls._map(fd, mmap.MAP_PRIVATE | MAP_NORESERVE)

    @classmethod
    def _map(cls, fd: int, flags: int) -> Self:
        status = os.fstat(fd)
        size, inode = status.st_size, status.st_ino
        mapped = cls(fd, size, flags=flags, prot=MAP_ACCESS, **MAP_OPTIONS)
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
        elif not MAP_OPTIONS:
            _keep_for_ever(self)  # dropping it would close another file's descriptor


def _keep_for_ever(obj: object) -> None:
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))


NAME = "zerocopy"
MAGIC = b"ZCBLOCK1"
#: The head of each block: `MAGIC`, and the block's generation (see `Location`).
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
        self.size: int = size
        self._committed = max((offset + frame.nbytes for offset, frame in frames), default=0)
        try:
            room.check(size)
            self._map = mapped_memfd(NAME, size)
            self.fd: int = self._map.fd
            self.inode: int = self._map.inode
            self.address: int = self._map.address
            # pwrite allocates and copies in 8.5 times a memcpy; copying into the mapping takes 13 times.
            for offset, frame in frames:
                _write(self.fd, offset, frame)
            if committed:
                os.posix_fallocate(self.fd, 0, size)
                self._committed = size
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, SEALS)
        except (OSError, OverflowError, ValueError) as error:
            raise _refusal(size, error) from error
        self.bytes: Array = np.frombuffer(self._map, np.uint8)
        self._words = self.bytes.view(np.uint64)
        segments[id(self)] = self

    def has_room(self, size: int) -> bool:
        """Allocate the first `size` bytes, so that writing to them cannot fail; False if there is no room."""
        if size > self._committed:
            try:
                room.check(size - self._committed)
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


def _refusal(size: int, error: Exception) -> SharedMemoryError:
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        return no_file_descriptor(error)
    why = f"the kernel did not allocate {size:,} bytes of shared memory: {error}"
    return SharedMemoryError("", why, "free memory, or share a smaller part")


def mapped_memfd(name: str, size: int) -> FileMapping:
    """Return the memory of a new memfd that can be sealed."""
    fd = _create_memfd(name)
    try:
        os.ftruncate(fd, size)
        return FileMapping.shared(fd)
    except BaseException:
        os.close(fd)
        raise


def _create_memfd(name: str) -> int:
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
