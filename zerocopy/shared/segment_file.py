"""How a process opens the file of a segment of another process: through ``/proc/PID/fd`` or its broker.

A handle can be old, damaged or hostile. No file is opened that is not a sealed memfd of this package and
this user: the path is resolved with ``O_PATH``, which opens nothing, and the result is checked first.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import time
from array import array
from functools import cache

from zerocopy.errors import HandleAccessError, OtherHostError, StaleHandleError
from zerocopy.shared.handle import BOOT_BYTES, Location, host_id, no_file_descriptor
from zerocopy.shared.linux import fcntl
from zerocopy.shared.segment import NAME

KEEP = "keep the Shared in its owner until every reader has opened it"
_NEEDED_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_BROKER = "call zerocopy.shared.start_broker() in its owner"
_NO_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
SEGMENT = b"ZCBR\x01"
#: Of a request for an offer: file descriptor 0, and the offer's number instead of an inode.
OFFER = b"ZCBO\x01"
#: Magic and version; file descriptor and inode of the segment in the broker's process.
REQUEST = struct.Struct("<5sIQ")
GRANTED, REFUSED = b"+", b"-"
#: Environment variable: 1, or a directory for the sockets of brokers.
VARIABLE = "ZEROCOPY_BROKER"
_SECONDS = 5.0
_CREDENTIALS = struct.Struct("3i")


def open_segment(location: Location, flags: int = os.O_RDONLY) -> int:
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
                return open_file(f"/proc/{location.pid}/fd/{location.fd}", location, flags)
            except HandleAccessError:
                raise
            except PermissionError as error:
                denied = error
        elif location.host[:BOOT_BYTES] != ours[:BOOT_BYTES]:
            raise _other_host("another machine", "send the object's bytes: zerocopy.pickling.dumps(x)")
        received = request_segment(location)
    except OSError as error:
        raise _refusal(location, error) from error
    if received is not None:
        try:
            return open_file(f"/proc/self/fd/{received}", location, flags)
        except OSError as error:
            raise _refusal(location, error) from error
        finally:
            os.close(received)
    if denied is not None:
        raise _denied(location, denied) from denied
    raise _other_host("another PID namespace", f"{_BROKER}, or send the object's bytes")


def open_file(path: str, location: Location, flags: int = os.O_RDONLY) -> int:
    """Open the file at a path in ``/proc`` if it is the segment of a location.

    Raises
    ------
    StaleHandleError, HandleAccessError, OSError
    """
    try:
        fd = open_memfd(path, NAME, location.inode, flags)
    except FileNotFoundError as error:
        raise _stale(location) from error
    except OtherUserError as error:
        raise _no_access(location, str(error)) from error
    if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _NEEDED_SEALS != _NEEDED_SEALS:
        os.close(fd)
        # Its owner could shrink it, and the kernel would end this process by SIGBUS.
        raise _no_access(location, "its memory is not sealed", "open handles of zerocopy.share only")
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
    fd = os.memfd_create(NAME, os.MFD_CLOEXEC)
    try:
        return os.fstat(fd).st_dev
    finally:
        os.close(fd)


def _stale(location: Location) -> StaleHandleError:
    why = f"its owner, process {location.pid}, has freed the memory or has ended"
    return StaleHandleError("", why, KEEP)


def _no_access(location: Location, why: str, remedy: str = "") -> HandleAccessError:
    remedy = remedy or f"run the reader as the user of process {location.pid}"
    return HandleAccessError(
        "", f"this process must not open it: {why}", f"{remedy}, or send the object's bytes"
    )


def _denied(location: Location, error: OSError) -> HandleAccessError:
    try:  # the directory's user is the effective one of its process, also of a process that hides its files
        is_ours = os.stat(f"/proc/{location.pid}").st_uid == os.geteuid()
    except OSError:
        is_ours = False
    return _no_access(location, str(error), _BROKER if is_ours else "")  # a broker answers its own user only


def _refusal(location: Location, error: OSError) -> Exception:
    if isinstance(error, (HandleAccessError, StaleHandleError)):
        return error
    if error.errno in _NO_RESOURCES:
        return no_file_descriptor(error)
    return _denied(location, error) if isinstance(error, PermissionError) else _stale(location)


def _other_host(place: str, remedy: str) -> OtherHostError:
    return OtherHostError("", f"it was made in {place}, whose memory this process cannot open", remedy)


def broker_directory() -> str | None:
    """Return the directory of the environment, or None."""
    value = os.environ.get(VARIABLE, "")
    return value if value.startswith("/") else None


def broker_prefix(host: bytes) -> str:
    """Return the common prefix of the names of a machine's brokers, which changes at a reboot."""
    return f"zerocopy-{host[:4].hex()}-"


def broker_address(host: bytes, number: int, folder: str | None = None) -> str:
    """Return the address of a broker: a path, or a name without a file (unix(7), "abstract").

    Parameters
    ----------
    host, number
        `host_id` and `broker_number` of its process.
    folder : str, optional
    """
    name = f"{broker_prefix(host)}{number:016x}"
    return f"\0{name}" if folder is None else os.path.join(folder, name)


def peer_uid(peer: socket.socket) -> int:
    """Return the user of the process at the other end of a Unix socket."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def request_segment(location: Location) -> int | None:
    """Return a file descriptor of a segment from its owner's broker, or None if no broker answers.

    The file is not checked here.

    Raises
    ------
    FileNotFoundError
        The broker has no such segment.
    OSError
        There is no free file descriptor.
    """
    return _request(location, SEGMENT, location.fd, location.inode)


def request_offer(location: Location, number: int) -> int | None:
    """Return the file descriptor of an offer from the broker of a location's process, or None.

    Raises
    ------
    FileNotFoundError
        The broker has no such offer.
    OSError
        There is no free file descriptor.
    """
    return _request(location, OFFER, 0, number)


def _request(location: Location, magic: bytes, fd: int, number: int) -> int | None:
    folder = broker_directory()
    for each in (folder, None) if folder else (None,):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as peer:
            if _connect(peer, broker_address(location.host, location.broker, each)):
                return _ask(peer, REQUEST.pack(magic, fd, number))
    return None


def _connect(peer: socket.socket, name: str) -> bool:
    peer.settimeout(_SECONDS)
    end = time.monotonic() + _SECONDS
    while True:
        try:
            peer.connect(name)
        except BlockingIOError:  # its queue is full
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        except OSError:
            return False
        else:
            return peer_uid(peer) == os.geteuid()


def _ask(peer: socket.socket, request: bytes) -> int | None:
    try:
        peer.send(request)
        space = socket.CMSG_SPACE(array("i").itemsize)
        answer, messages, _, _ = peer.recvmsg(2, space, socket.MSG_CMSG_CLOEXEC)
    except (TimeoutError, ConnectionError):
        return None
    descriptors = array("i")
    for level, kind, data in messages:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    if answer == GRANTED and len(descriptors) == 1:
        return descriptors[0]
    for fd in descriptors:
        os.close(fd)
    if answer == REFUSED:
        raise FileNotFoundError("the broker has no such file")
    return None
