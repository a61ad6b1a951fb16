"""File descriptors: the limit of those that received objects hold, and a reserve for when none is free."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar, TypeVarTuple

from zerocopy import forks
from zerocopy.errors import SharedMemoryError
from zerocopy.shared.linux import resource

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_NONE_FREE = (errno.EMFILE, errno.ENFILE)
#: Opening a file needs up to three descriptors: the broker's socket, the path, and the file.
_COUNT = 3
#: The reserve: both ends of a pipe and a duplicate. They have one inode, which no other file has.
_held: list[int] = []
_inodes: list[int] = []
# Re-entrant: a finalizer within the critical section may open a handle.
_lock = forks.lock()


def object_quota() -> int:
    """Return how many objects may hold descriptors, at most two each; half of the limit stays free."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft // 4


def keep_reserve() -> None:
    """Open the reserve, unless it is open or no descriptor is free."""
    if len(_held) < _COUNT:
        with _lock:
            _fill()


def with_reserve(function: Callable[[*_Ts], _T], *args: *_Ts) -> _T:
    """Call a function that closes what it opens; if no descriptor is free, call it again with the reserve.

    Examples
    --------
    >>> with_reserve(len, "abc")
    3
    """
    try:
        return function(*args)
    except (OSError, SharedMemoryError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno not in _NONE_FREE:
            raise
    with _lent():
        return function(*args)


@contextmanager
def _lent() -> Iterator[None]:
    with _lock:
        _close()
        try:
            yield
        finally:
            _fill()


def _fill() -> None:
    with suppress(OSError):
        if not _held:
            _held.extend(os.pipe())
            _inodes[:] = [os.fstat(_held[0]).st_ino]
        while len(_held) < _COUNT:
            _held.append(os.dup(_held[0]))


def _close() -> None:
    while _held:
        fd = _held.pop()
        # A daemon closes all descriptors when it starts, so that their numbers may belong to other files.
        with suppress(OSError):
            if [os.fstat(fd).st_ino] == _inodes:
                os.close(fd)
