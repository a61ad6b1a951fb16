"""``ChannelMemory``: a channel's memfd in one process; ``Holder``: a holder of its locks.

Locks are open file description locks (fcntl(2)): each `Holder` has a file description of its own, so that a
writer and a reader in one process exclude each other as two processes do. The kernel releases them when the
last descriptor of the description is closed, so no forked child may keep one.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import platform
import struct
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from zerocopy.errors import ChannelClosedError, HandleFormatError, SharedMemoryError
from zerocopy.forks import LOADING
from zerocopy.shared import room
from zerocopy.shared.handle import Location, broker_number, host_id, no_file_descriptor
from zerocopy.shared.linux import fcntl
from zerocopy.shared.segment import NAME, Array, FileMapping, mapped_memfd, seal_size
from zerocopy.shared.segment_file import open_segment

PAGE = mmap.PAGESIZE
#: Seconds after which a wait looks again: a process may have been killed before it woke the others.
LONGEST_WAIT = 0.05
_SHORTEST_WAIT = 0.0002
#: struct flock: type, whence, start, length, process (0 for open file description locks).
_FLOCK = struct.Struct("hhqqi4x")
_WORD = 8
_SMALLER = "free memory, or pass fewer slots= or smaller fields"
_FUTEX_WAIT, _FUTEX_WAKE, _ALL_WAITERS = 0, 1, (1 << 31) - 1
#: futex(2) has no function in the C library, and a number for each architecture. A round trip of 4 KiB takes
#: 0.15 ms with it, and 0.33 ms with sleeps, which other architectures use.
_SYSCALL = {"x86_64": 202, "aarch64": 98}.get(platform.machine())

#: The holders of this process. A tuple, as another thread may be changing a dict when the process is forked.
_holders: tuple[weakref.ref[Holder], ...] = ()


def _close_in_child() -> None:
    """In a forked child: its descriptors would keep the parent's locks after the parent's end."""
    global _holders
    inherited, _holders = _holders, ()
    for reference in inherited:
        holder = reference()
        if holder is not None:
            holder.close()


os.register_at_fork(after_in_child=_close_in_child)


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class ChannelMemory:
    """The memory of a channel, mapped by this process.

    Parameters
    ----------
    mapped : FileMapping
        The whole file, writable.

    Attributes
    ----------
    bytes : ndarray
        All bytes, writable.
    taken : int
        Of a queue: the number of the last item that a reader took which has ended.
    """

    def __init__(self, mapped: FileMapping) -> None:
        self._mapped = mapped
        self.bytes: Array = np.frombuffer(mapped, np.uint8)
        self.address: int = mapped.address
        self.taken = 0

    @classmethod
    def create(cls, size: int) -> ChannelMemory:
        """Allocate memory, all of it now, so that no write can fail.

        Raises
        ------
        SharedMemoryError
            There is not enough memory, or no file descriptor.
        """
        try:
            room.check(size)
        except SharedMemoryError as error:
            raise error.with_context(remedy=_SMALLER) from error.__cause__
        try:
            mapped = mapped_memfd(NAME, size)
            os.posix_fallocate(mapped.fd, 0, size)
            seal_size(mapped.fd)
        except (OSError, OverflowError, ValueError) as error:
            raise _refusal(f"allocate {size:,} bytes of shared memory", error) from error
        return cls(mapped)

    @classmethod
    def open(cls, location: Location) -> ChannelMemory:
        """Map the memory of another process's channel.

        Raises
        ------
        HandleFormatError, StaleHandleError, OtherHostError, HandleAccessError, SharedMemoryError
        """
        fd = open_segment(location, os.O_RDWR)
        try:
            return cls(FileMapping.shared(fd))
        except (OSError, OverflowError, ValueError) as error:
            os.close(fd)
            if getattr(error, "errno", None) == errno.EPERM:  # the seal of memory that zerocopy.share made
                why = "the memory of the handle is not a channel: it cannot be written"
                raise HandleFormatError("", why, "pass channel.handle unchanged") from error
            raise _refusal("map the memory", error) from error

    def own_location(self) -> Location:
        """Return where other processes find the memory: in this process."""
        mapped = self._mapped
        return Location(host_id(), os.getpid(), mapped.fd, mapped.inode, 0, 0, broker_number())

    def map_privately(self) -> FileMapping:
        """Map the memory for a reader, whose writes copy the page for it alone.

        Linux shows the writes of others in the pages that were not copied (mmap(2) leaves it open).
        """
        fd = self.open_again()
        try:
            mapped = FileMapping.private(fd)
        except (OSError, ValueError) as error:
            os.close(fd)
            raise _refusal("map the memory", error) from error
        self.check_unlocked(mapped)
        return mapped

    def check_unlocked(self, mapped: FileMapping) -> None:
        """Refuse a mapping that the kernel has locked: it copied all pages, which never show a later item."""
        try:
            mapped.madvise(mmap.MADV_DONTNEED, 0, mmap.PAGESIZE)  # before the slots
        except OSError as error:
            why = "this process locks its memory (mlockall)"
            remedy = "call munlockall and channel.read() again, or read in another process"
            raise SharedMemoryError("", why, remedy) from error

    def words(self, first: int, count: int) -> memoryview:
        """Return words of 8 bytes from a byte on; each is read and written by one instruction."""
        return self.bytes[first : first + count * _WORD].data.cast("B").cast("Q")

    def open_again(self) -> int:
        """Return a file descriptor with a file description of its own.

        Raises
        ------
        SharedMemoryError
            There is no free descriptor.
        """
        if not self._mapped.has_descriptor():
            raise _closed_by_program()
        try:
            return os.open(f"/proc/self/fd/{self._mapped.fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise _refusal("open the memory again", error) from error

    def is_own(self, fd: int) -> bool:
        """Whether a descriptor is one of the channel's file."""
        try:
            return os.fstat(fd).st_ino == self._mapped.inode
        except OSError:
            return False


def _closed_by_program() -> SharedMemoryError:
    why = "the descriptor of the channel was closed by the program"  # such as one that becomes a daemon
    return SharedMemoryError("", why, "open the channel after the process has become a daemon")


def _refusal(task: str, error: Exception) -> SharedMemoryError:
    if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
        return no_file_descriptor(error)
    return SharedMemoryError("", f"the kernel did not {task}: {error}", _SMALLER)


class Holder:
    """A holder of locks: the memory of the protocol, as one reader or the writer accesses it.

    Parameters
    ----------
    memory : ChannelMemory
    first : int
        The byte of the first word.
    count : int
        How many words there are.
    """

    def __init__(self, memory: ChannelMemory, first: int, count: int) -> None:
        global _holders
        self._fd = -1
        self._memory = memory
        self.words = memory.words(first, count)
        self._address = memory.address + first
        self._pid = os.getpid()
        with LOADING:  # a fork in another thread waits
            self._fd = memory.open_again()
            others = [other for other in _holders if other() is not None]
            _holders = (*others, weakref.ref(self))

    @property
    def is_usable(self) -> bool:
        """Whether it holds its locks: it was not closed, and this process is not a child of its own."""
        return self._fd >= 0 and self._pid == os.getpid()

    def lock(self, byte: int, shared: bool = False) -> bool:
        """Take the lock of a byte; see `zerocopy.channels.ring.Memory`."""
        try:
            self._fcntl(fcntl.F_OFD_SETLK, fcntl.F_RDLCK if shared else fcntl.F_WRLCK, byte)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        return True

    def is_locked(self, byte: int) -> bool:
        """Whether another holder has the lock of a byte."""
        answer = self._fcntl(fcntl.F_OFD_GETLK, fcntl.F_WRLCK, byte)
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def unlock(self, byte: int) -> None:
        """Release the lock of a byte."""
        self._fcntl(fcntl.F_OFD_SETLK, fcntl.F_UNLCK, byte)

    def _fcntl(self, command: int, kind: int, byte: int) -> bytes:
        if not self.is_usable:
            why = "the channel was closed, or belongs to the process that this one was forked from"
            raise ChannelClosedError("", why, "call channel.read(), or put, in this process")
        lock = _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)
        if self._memory.is_own(self._fd):
            return fcntl.fcntl(self._fd, command, lock)
        if kind != fcntl.F_UNLCK:
            raise _closed_by_program()
        return lock  # the kernel released all locks when the program closed the descriptor

    def wait(self, word: int, value: int, seconds: float) -> None:
        """Wait until another process wakes the waiters of a word that has a value, or for some time."""
        seconds = min(seconds, LONGEST_WAIT)
        if seconds <= 0 or self.words[word] != value:
            return
        if _SYSCALL is None:
            time.sleep(min(seconds, _SHORTEST_WAIT))
            return
        until = _TimeSpec(0, int(seconds * 1e9))
        # futex(2) compares 32 bits: the low half of the word, as both architectures are little-endian.
        address = ctypes.c_void_p(self._address + word * _WORD)
        _syscall()(_SYSCALL, address, _FUTEX_WAIT, value & 0xFFFF_FFFF, ctypes.byref(until), None, 0)

    def wake(self, word: int) -> None:
        """Wake all processes that wait for a word."""
        if _SYSCALL is not None:
            address = ctypes.c_void_p(self._address + word * _WORD)
            _syscall()(_SYSCALL, address, _FUTEX_WAKE, _ALL_WAITERS, None, None, 0)

    def close(self) -> None:
        """Release all locks."""
        fd = self._fd
        # The program may have closed all descriptors, and the number may belong to another file.
        if fd >= 0 and self._memory.is_own(fd):
            os.close(fd)
        self._fd = -1  # after closing, so that a child that is forked before closes its copy too

    # At interpreter exit modules are cleared already, and the kernel closes the descriptor.
    def __del__(self, is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_exiting():
            self.close()


@functools.cache
def _syscall() -> Any:
    function = ctypes.CDLL(None, use_errno=True).syscall
    function.argtypes = (
        ctypes.c_long,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int,
    )
    return function
