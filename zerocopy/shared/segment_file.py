"""How a process opens the file of a segment of another process: through ``/proc/PID/fd`` or a broker.

A handle can be old, damaged or hostile. No file is opened that is not a sealed memfd of this package and
this user: the path is resolved with ``O_PATH``, which opens nothing, and the result is checked first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from functools import cache

from zerocopy.shared import broker_client
from zerocopy.shared.errors import HandleAccessError, OtherHostError, StaleHandleError, no_file_descriptor
from zerocopy.shared.host import BOOT_BYTES, host_id
from zerocopy.shared.location import Location
from zerocopy.shared.segment import NAME

KEEP = "keep the Shared in its owner until every reader has opened it"
_NEEDED_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_BROKER = "call zerocopy.shared.start_broker() in its owner"
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def open_segment(location: Location) -> int:
    """Return a new file descriptor of a segment, with a file description of its own.

    Raises
    ------
    StaleHandleError, OtherHostError, HandleAccessError, SharedMemoryError
    """
    ours = host_id()
    denied: PermissionError | None = None
    try:
        if location.host == ours:
            try:
                return open_file(f"/proc/{location.pid}/fd/{location.fd}", location)
            except HandleAccessError:
                raise
            except PermissionError as error:
                denied = error
        elif location.host[:BOOT_BYTES] != ours[:BOOT_BYTES]:
            raise _other_host("another machine", "send the object's bytes: zerocopy.pickling.dumps(x)")
        received = broker_client.request(location)
    except OSError as error:
        raise _refusal(location, error) from error
    if received is not None:
        try:
            return open_file(f"/proc/self/fd/{received}", location)
        except OSError as error:
            raise _refusal(location, error) from error
        finally:
            os.close(received)
    if denied is not None:
        raise no_access(location, str(denied)) from denied
    raise _other_host("another PID namespace", f"{_BROKER}, or send the object's bytes")


def open_file(path: str, location: Location) -> int:
    """Open the file at a path in ``/proc`` if it is the segment of a location.

    Raises
    ------
    StaleHandleError, HandleAccessError, OSError
    """
    try:
        fd = open_memfd(path, NAME, location.inode)
    except FileNotFoundError as error:
        raise stale(location) from error
    except OtherUserError as error:
        raise no_access(location, str(error)) from error
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _NEEDED_SEALS != _NEEDED_SEALS:
        os.close(fd)
        # Its owner could shrink it, and the kernel would end this process by SIGBUS.
        raise no_access(location, "its memory is not sealed")
    return fd


class OtherUserError(Exception):
    """A memfd belongs to another user."""


def open_memfd(path: str, name: str, inode: int, flags: int = os.O_RDONLY) -> int:
    """Open the file at a path in ``/proc`` if it is the memfd of a name and an inode, of this user.

    Raises
    ------
    FileNotFoundError
        It is another file.
    OtherUserError, OSError
    """
    resolved = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        status, path = os.fstat(resolved), f"/proc/self/fd/{resolved}"
        is_memfd = stat.S_ISREG(status.st_mode) and status.st_dev == _memfd_device()
        if not is_memfd or status.st_ino != inode or os.readlink(path) != f"/memfd:{name} (deleted)":
            raise FileNotFoundError(errno.ENOENT, "it is another file")
        if status.st_uid != os.geteuid():
            raise OtherUserError(f"its memory belongs to user {status.st_uid}")
        return os.open(path, flags | os.O_CLOEXEC)
    finally:
        os.close(resolved)


@cache
def _memfd_device() -> int:
    """Return the device of all memfds."""
    fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def stale(location: Location) -> StaleHandleError:
    """Return the error for a block that is gone."""
    why = f"its owner, process {location.pid}, has freed the memory or has ended"
    return StaleHandleError("", why, KEEP)


def no_access(location: Location, why: str) -> HandleAccessError:
    """Return the error for memory that this process must not open."""
    remedy = f"run the reader as the user of process {location.pid}, {_BROKER}, or send the object's bytes"
    return HandleAccessError("", f"this process must not open it: {why}", remedy)


def _refusal(location: Location, error: OSError) -> Exception:
    if isinstance(error, (HandleAccessError, StaleHandleError)):
        return error
    if error.errno in _NO_RESOURCES:
        return no_file_descriptor(error)
    return no_access(location, str(error)) if isinstance(error, PermissionError) else stale(location)


def _other_host(place: str, remedy: str) -> OtherHostError:
    return OtherHostError("", f"it was made in {place}, whose memory this process cannot open", remedy)
