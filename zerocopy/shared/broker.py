"""The broker: a thread of the owner that opens its segments and offers for other processes of the user.

A reader in another PID namespace, or without access to ``/proc/PID/fd``, asks the broker. The reader
receives a new file description by SCM_RIGHTS (unix(7)), so that it has a lease of its own, and checks the
file like any other. An offer is another file, such as that of a CUDA pool: the broker sends its descriptor
itself, because a new file description lacks the state that the NVIDIA driver keeps in the old one.
"""

from __future__ import annotations

import atexit
import errno
import os
import selectors
import socket
import stat
import time
from array import array
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any
from weakref import WeakValueDictionary

from zerocopy import forks
from zerocopy.errors import ZeroCopyError
from zerocopy.shared.handle import Location, broker_number, host_id
from zerocopy.shared.segment_file import (
    GRANTED,
    OFFER,
    REFUSED,
    REQUEST,
    SEGMENT,
    broker_address,
    broker_directory,
    broker_prefix,
    open_file,
    peer_uid,
)

#: Connections at a time, and the seconds within which a client must send its request.
_MOST = 64
_SECONDS = 2.0


class Offer:
    """A file descriptor that readers may receive while this object exists; it closes the descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_inheritable(fd, False)
        self.number: int = int.from_bytes(os.urandom(8), "little") | 1  # never 0
        _offers[self.number] = self

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


_offers: WeakValueDictionary[int, Offer] = WeakValueDictionary()


def offered(number: int) -> Offer | None:
    """Return the offer of a number, or None."""
    return _offers.get(number)


class Broker:
    """Listens on one Unix socket, in one thread.

    Parameters
    ----------
    folder : str, optional
        The directory of its socket. None: a name that processes of one network namespace share.
    """

    def __init__(self, folder: str | None) -> None:
        self.address: str = broker_address(host_id(), broker_number(), folder)
        self._listener = _listen(self.address)
        self._clients: dict[socket.socket, float] = {}  # with the time at which each is closed
        try:
            self._wake, self._stop = socket.socketpair()
            self._thread = Thread(target=self._run, name="zerocopy-broker", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:
                self._wake.close()
                self._stop.close()
                raise OSError(errno.EAGAIN, str(error)) from error
        except OSError:
            self._listener.close()
            self._remove_file()
            raise

    def stop(self) -> None:
        """End the thread, and remove the socket's file."""
        self._stop.close()
        self._thread.join()
        self._remove_file()

    def _remove_file(self) -> None:
        if not self.address.startswith("\0"):
            with suppress(OSError):
                os.unlink(self.address)

    def forget(self) -> None:
        """Close the sockets in a forked child, which has no broker."""
        for each in (self._listener, self._wake, self._stop, *self._clients):
            each.close()

    def _run(self) -> None:
        # Not epoll, whose set of sockets a forked child would share.
        with selectors.PollSelector() as selector, self._listener, self._wake:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select(_SECONDS if self._clients else None)]
                if self._wake in ready:
                    break
                for peer in ready:
                    if peer is self._listener:
                        self._accept(selector)
                    else:
                        _serve(peer)
                        self._close(selector, peer)
                now = time.monotonic()
                for late in [peer for peer, end in self._clients.items() if end < now]:
                    self._close(selector, late)
            for peer in list(self._clients):
                self._close(selector, peer)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:  # it has gone, or there is no free file descriptor
            time.sleep(0.01)
            return
        peer.setblocking(False)
        self._clients[peer] = time.monotonic() + _SECONDS
        selector.register(peer, selectors.EVENT_READ)
        if peer_uid(peer) != os.geteuid():
            self._close(selector, peer)
        elif len(self._clients) > _MOST:
            self._close(selector, next(iter(self._clients)))

    def _close(self, selector: selectors.BaseSelector, peer: Any) -> None:
        if self._clients.pop(peer, None) is not None:
            selector.unregister(peer)
            peer.close()


def _serve(peer: Any) -> None:
    """Answer one request; a malformed one gets no answer."""
    with suppress(OSError):
        data = peer.recv(REQUEST.size + 1)
        if len(data) != REQUEST.size:
            return
        magic, fd, number = REQUEST.unpack(data)
        if magic not in (SEGMENT, OFFER):
            return
        try:
            copy = _offer(number) if magic == OFFER else _segment(fd, number)
        except (OSError, ZeroCopyError):
            peer.send(REFUSED)
            return
        try:
            rights = array("i", [copy])
            peer.sendmsg([GRANTED], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        finally:
            os.close(copy)


def _segment(fd: int, inode: int) -> int:
    """Open a segment again: the reader's lease must be its own."""
    return open_file(f"/proc/self/fd/{fd}", Location(b"", os.getpid(), fd, inode, 0, 0, 0))


def _offer(number: int) -> int:
    offer = offered(number)
    if offer is None:
        raise FileNotFoundError
    return os.dup(offer.fd)


def _listen(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    is_file = not name.startswith("\0")
    # A socket that does not listen yet would look like that of a killed process to `_remove_dead`.
    unused = f"{name}.new" if is_file else name
    try:
        if is_file:
            _remove_dead(os.path.dirname(name))
        listener.bind(unused)
        listener.listen(_MOST)
        listener.setblocking(False)
        if is_file:
            os.rename(unused, name)
    except BaseException:
        listener.close()
        if is_file:
            with suppress(OSError):
                os.unlink(unused)
        raise
    return listener


def _remove_dead(folder: str) -> None:
    """Remove the sockets that killed processes of this user and machine have left in a folder."""
    # On a network file system, a socket of another machine refuses connections too.
    start = broker_prefix(host_id())
    for name in os.listdir(folder):
        if not name.startswith(start) or name.endswith(".new"):
            continue
        path = os.path.join(folder, name)
        with suppress(OSError):  # another process may remove it too
            status = os.lstat(path)
            if stat.S_ISSOCK(status.st_mode) and status.st_uid == os.geteuid() and _is_dead(path):
                os.unlink(path)


def _is_dead(name: str) -> bool:
    """Whether no process listens on a socket's file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as peer:
        peer.setblocking(False)
        return peer.connect_ex(name) == errno.ECONNREFUSED


_lock = forks.lock()
_broker: Broker | None = None


def start_broker(directory: str | os.PathLike[str] | None = None) -> None:
    """Let processes in other PID namespaces open this process's shared memory.

    Containers of one machine have PID namespaces of their own. Call this function in the owner, before or
    after ``share``. Readers, and processes of one PID namespace, do not need it.

    Parameters
    ----------
    directory : path, optional
        A directory for the broker's socket, at most 60 bytes long, for processes in other network
        namespaces too: a volume of both containers. Readers find it by the environment variable
        ``ZEROCOPY_BROKER=/the/directory``. Default: a socket without a file.

    Raises
    ------
    OSError
        The socket or the thread cannot be created.

    Notes
    -----
    With the environment variable ``ZEROCOPY_BROKER=1``, or a directory in it, the first ``share`` in a
    process starts the broker; if that fails, ``share`` warns and continues without a broker. A forked child
    has no broker until it calls this function, or calls ``share`` with the variable set.

    The socket has a random name, which handles carry, and each side checks that the other is a process of
    its own user.

    The broker answers processes of the same user only, which can open only memory of ``share``.

    Examples
    --------
    >>> from zerocopy.shared import start_broker, stop_broker
    >>> start_broker()
    >>> stop_broker()
    """
    global _broker
    folder = None if directory is None else os.path.abspath(directory)
    with _lock:
        if _broker is not None:
            if _broker.address == broker_address(host_id(), broker_number(), folder):
                return
            stop_broker()
        _broker = Broker(folder)


def ensure_broker() -> None:
    """Start a broker if this process has none."""
    with _lock:
        if _broker is None:
            start_broker(broker_directory())


def stop_broker() -> None:
    """Stop the broker, if there is one. Memory that readers have opened stays."""
    global _broker
    with _lock:
        broker, _broker = _broker, None
        if broker is not None:
            broker.stop()


def _forget() -> None:
    global _broker
    broker, _broker = _broker, None
    if broker is not None:
        broker.forget()


os.register_at_fork(after_in_child=_forget)
atexit.register(stop_broker)
