"""How a reader asks the broker of another process for the file of a segment, and where a broker listens."""

from __future__ import annotations

import os
import socket
import struct
import time
from array import array

from zerocopy.shared.location import Location

MAGIC = b"ZCBR\x01"
#: Of a request for an offer: file descriptor 0, and the offer's number instead of an inode.
OFFER = b"ZCBO\x01"
#: Magic and version; file descriptor and inode of the segment in the broker's process.
REQUEST = struct.Struct("<5sIQ")
GRANTED, REFUSED = b"+", b"-"
#: Environment variable: 1, or a directory for the sockets of brokers.
VARIABLE = "ZEROCOPY_BROKER"
_SECONDS = 5.0
_CREDENTIALS = struct.Struct("3i")


def directory() -> str | None:
    """Return the directory of the environment, or None."""
    value = os.environ.get(VARIABLE, "")
    return value if value.startswith("/") else None


def prefix(host: bytes) -> str:
    """Return the common prefix of the names of a machine's brokers, which changes at a reboot."""
    return f"zerocopy-{host[:4].hex()}-"


def address(host: bytes, number: int, folder: str | None = None) -> str:
    """Return the address of a broker: a path, or a name without a file (unix(7), "abstract").

    Parameters
    ----------
    host, number
        `zerocopy.shared.host.host_id` and `zerocopy.shared.host.broker_number` of its process.
    folder : str, optional
    """
    name = f"{prefix(host)}{number:016x}"
    return f"\0{name}" if folder is None else os.path.join(folder, name)


def peer_uid(peer: socket.socket) -> int:
    """Return the user of the process at the other end of a Unix socket."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def request(location: Location) -> int | None:
    """Return a file descriptor of a segment from its owner's broker, or None if no broker answers.

    The file is not checked here.

    Raises
    ------
    FileNotFoundError
        The broker has no such segment.
    OSError
        There is no free file descriptor.
    """
    return _request(location, MAGIC, location.fd, location.inode)


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
    folder = directory()
    for each in (folder, None) if folder else (None,):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as peer:
            if _connect(peer, address(location.host, location.broker, each)):
                return _ask(peer, REQUEST.pack(magic, fd, number))
    return None


def _connect(peer: socket.socket, name: str) -> bool:
    """Connect to a broker of this process's user."""
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
