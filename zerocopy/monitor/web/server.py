"""``serve``: starts the page's server in a thread."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import socket
from concurrent.futures import Future
from threading import Thread
from typing import Any

from zerocopy.errors import MonitorFileError
from zerocopy.monitor.observer import Observer, require
from zerocopy.monitor.sampling import Sampler

#: Seconds after which a page that the browser closed is freed.
_UNUSED = 15.0


class Server:
    """A page's server, in a thread of its own; `url` is the address of the overview, with the token."""

    def __init__(
        self, source: Observer, listener: socket.socket, token: str, every: float, *, samples: bool = True
    ) -> None:
        self._listener, self._token, self._source, self._every = listener, token, source, every
        self.address: str
        self.port: int
        self.address, self.port = listener.getsockname()[:2]
        host = "127.0.0.1" if self.address in ("0.0.0.0", "::") else self.address
        self.url: str = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{token}/"
        self._loop: Any = None
        self._stop: asyncio.Event | None = None
        self._sampler = Sampler(source.read, every)
        if samples:
            source.read()
        started: Future[None] = Future()
        self._thread = Thread(target=self._run, args=(started,), name="zerocopy-monitor-web", daemon=True)
        self._thread.start()
        started.result()
        if samples:
            self._sampler.start()

    def close(self) -> None:
        """Stop listening, and wait for the thread; a second call does nothing."""
        self._sampler.stop()
        if self._thread.is_alive() and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _run(self, started: Future[None]) -> None:
        try:
            asyncio.run(self._serve(started))
        except Exception as error:  # the caller raises it
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[None]) -> None:
        from bokeh.server.server import BaseServer
        from tornado.httpserver import HTTPServer
        from tornado.ioloop import IOLoop

        from zerocopy.monitor.web.access import AccessControl, GuardedApplication
        from zerocopy.monitor.web.pages import Metrics, applications

        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        guarded = GuardedApplication(
            applications(self._source, self._every),
            AccessControl(self._token, self.address),
            prefix=self._token,
            extra_websocket_origins=["*:*"],  # AccessControl compares the origin with the host
            extra_patterns=[("/metrics", Metrics, {"source": self._source})],
            use_index=False,
            redirect_root=False,
            include_headers=[],
            include_cookies=[],
            unused_session_lifetime_milliseconds=round(_UNUSED * 1000),
            check_unused_sessions_milliseconds=round(_UNUSED * 500),
        )
        http = HTTPServer(guarded)
        http.add_socket(self._listener)
        server = BaseServer(IOLoop.current(), guarded, http)
        server.start()
        started.set_result(None)
        await self._stop.wait()
        server.unlisten()
        await _end_updates(guarded)
        server.stop()
        http.stop()
        await http.close_all_connections()


async def _end_updates(application: Any) -> None:
    """Remove the periodic updates of all open pages, after the messages that are being sent."""
    for path in application.app_paths:
        for session in application.get_sessions(path):
            document = session.document

            def remove(document: Any = document) -> None:
                for callback in document.session_callbacks:
                    document.remove_periodic_callback(callback)

            await session.with_document_locked(remove)


def serve(
    source: Observer,
    port: int = 0,
    address: str = "127.0.0.1",
    token: str | None = None,
    every: float = 1.0,
    *,
    samples: bool = True,
) -> Server:
    """Start the page's server.

    Parameters
    ----------
    source : Observer
        The source of the samples.
    port : int
        0: a free port, which `Server.url` has.
    address : str
        The address to listen on. ``"0.0.0.0"`` makes the page visible to other machines, without
        encryption, to every reader that has the token.
    token : str, optional
        Letters, digits, "-" and "_". Default: 256 random bits.
    every : float
        Seconds between samples.
    samples : bool
        Whether a thread of the server calls `source.read`. Otherwise the caller does.

    Raises
    ------
    MonitorFileError
        The port is in use, or the address is not one of this machine.
    FrameworkNotInstalledError
        Bokeh is not installed.
    """
    require("bokeh.server.server", "the monitor's page")
    # Bokeh logs each start, and a warning for websocket origins, which AccessControl checks.
    logging.getLogger("bokeh").setLevel(logging.ERROR)
    listener = _listen(address, port)
    try:
        return Server(source, listener, token or secrets.token_urlsafe(32), every, samples=samples)
    except BaseException:
        listener.close()
        raise


def _listen(address: str, port: int) -> socket.socket:
    asked = f"serve(port={port}, address={address!r})"
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        why = f"{address!r} is not an address: {error.strerror or error}"
        raise MonitorFileError(asked, why, 'pass "127.0.0.1"', code="unknown-address") from error
    try:
        # Without it a server cannot listen again for a minute after it was closed.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(128)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        listener.close()
        code = getattr(error, "errno", None)
        if code == errno.EADDRINUSE:
            why, fix = f"port {port} is in use", "pass another port, or 0 for a free one"
            raise MonitorFileError(asked, why, fix, code="port-in-use") from error
        why = f"the system refuses it: {getattr(error, 'strerror', None) or error}"
        raise MonitorFileError(
            asked, why, "pass another address or port; 0 is a free port", code="cannot-serve"
        ) from error
    return listener
