"""``serve``: the page's server in a thread, which only answers requests that have its token.

An address is ``/TOKEN/PAGE``. Each answer is a whole page, drawn from figures that are read once for all
readers; a page's script replaces the parts that have changed.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import secrets
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from zerocopy.monitor.errors import MonitorPackageError, ServeError
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.ring import Ring
from zerocopy.monitor.web.drawing import Moment, Values
from zerocopy.monitor.web.pages import CHARTS, CONTENT_POLICY, PAGES

#: Sent with every response.
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    # The address has the token, which must not reach other sites.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
#: Seconds that a client may take for its request: a browser opens connections in advance.
_PATIENCE = 10.0
#: Seconds of figures in a chart, and between two of them: more points than a chart has pixels take time.
_KEPT, _BETWEEN = 300.0, 0.5


class Feed:
    """The newest sample, and the figures of all charts in the last five minutes."""

    def __init__(self, source: Observer) -> None:
        self._source = source
        self.history: Ring[tuple[float, dict[str, Values]]] = Ring(_KEPT)
        self.read()

    def read(self) -> None:
        """Read one sample. One thread at a time may call it."""
        self.newest = moment = Moment(self._source.read(), self._source.rates())
        time, last = moment.sample["time"], self.history.newest
        if last is None or abs(time - last[0]) >= _BETWEEN * 0.9:
            self.history.add(time, (time, {title: chart.values(moment) for title, chart in CHARTS.items()}))


class Server(ThreadingHTTPServer):
    """A page's server, in threads of its own; `url` is the address of the overview, with the token."""

    def __init__(self, source: Observer, listener: socket.socket, token: str, every: float) -> None:
        self.feed, self.every = Feed(source), every
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self._token, self._ended = listener, token, threading.Event()
        self.address, self.port = listener.getsockname()[:2]
        host = "127.0.0.1" if self.address in ("0.0.0.0", "::") else self.address
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{token}/"
        # Two threads: a driver that answers late does not stop the pages.
        for run in (self.serve_forever, self._read):
            threading.Thread(target=run, name="zerocopy-monitor-web", daemon=True).start()

    def _read(self) -> None:
        while not self._ended.wait(self.every):
            self.feed.read()

    def close(self) -> None:
        """Stop listening; a second call does nothing."""
        if not self._ended.is_set():
            self._ended.set()
            self.shutdown()
            self.server_close()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def refusal(self, path: str, host: str, origin: str | None) -> str:
        """Return why a request is refused, or "" if it is not."""
        first = path.split("/")[1] if path.startswith("/") else ""
        # Compared in constant time, so that the duration does not reveal the token.
        if not hmac.compare_digest(first.encode("utf-8", "surrogatepass"), self._token.encode()):
            return "the token in the address is missing or wrong: copy the whole address that was printed"
        name = (_split(f"//{host}").hostname or "").lower()
        if not self._knows(name):
            return f"the host name {name!r} is not one of this server's: use an IP address or localhost"
        if origin is not None and _split(origin).netloc.lower() != host.lower():
            return "the request comes from a page of another site"
        return ""

    def _knows(self, host: str) -> bool:
        """Whether a host name is this server's. Other names can belong to a site that rebinds its DNS."""
        if host in ("localhost", self.address):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True  # DNS rebinding needs a name

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, unless it is that a browser has closed the connection."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _PATIENCE

    def do_GET(self) -> None:
        """Answer with a page, Prometheus' text or the reason of a refusal."""
        path = _split(self.path).path
        why = self.server.refusal(path, self.headers.get("Host", ""), self.headers.get("Origin"))
        if why:
            self.send_error(HTTPStatus.FORBIDDEN, why)
            return
        feed, name = self.server.feed, path.split("/", 2)[2] if path.count("/") > 1 else None
        page = next((page for page in PAGES if page.path == name), None)
        if page is not None:
            self._send(200, "text/html", page.html(feed.newest, list(feed.history), self.server.every))
        elif name == "metrics":
            self._send_metrics()
        else:
            self.send_error(HTTPStatus.NOT_FOUND, "there is no such page")

    def _send_metrics(self) -> None:
        from zerocopy.monitor.prometheus import CONTENT_TYPE, exposition

        try:
            self._send(200, CONTENT_TYPE, exposition(self.server.feed.newest.sample))
        except MonitorPackageError as error:
            self.send_error(HTTPStatus.NOT_IMPLEMENTED, str(error))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer with a reason as text."""
        self._send(code, "text/plain", f"{int(code)}: {message or HTTPStatus(code).phrase}\n")

    def _send(self, code: int, kind: str, text: str) -> None:
        body = text.encode("utf-8", "replace")
        self.send_response_only(code)  # without the header Server, which has Python's version
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind if "charset" in kind else f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do nothing: the address has the token, which must not be logged."""


def _split(url: str) -> SplitResult:
    """Return the parts of an address; all are empty if it is not valid, such as ``http://[``."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


def serve(
    source: Observer,
    port: int = 0,
    address: str = "127.0.0.1",
    token: str | None = None,
    every: float = 1.0,
) -> Server:
    """Start the page's server.

    Parameters
    ----------
    source : Observer
        The source of the samples. The server's thread calls its `read` every `every` seconds.
    port : int
        0: a free port, which `Server.url` has.
    address : str
        The address to listen on. ``"0.0.0.0"`` makes the page visible to other machines, without
        encryption, to every reader that has the token.
    token : str, optional
        Letters, digits, "-" and "_". Default: 256 random bits.
    every : float
        Seconds between samples.

    Raises
    ------
    ServeError
        The port is in use, or the address is not one of this machine.
    """
    listener = _listen(address, port)
    try:
        return Server(source, listener, token or secrets.token_urlsafe(32), every)
    except BaseException:
        listener.close()
        raise


def _listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens on the address."""
    asked = f"serve(port={port}, address={address!r})"
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        why = f"{address!r} is not an address: {error.strerror or error}"
        raise ServeError(asked, why, 'pass "127.0.0.1"', code="unknown-address") from error
    try:
        # Without it a server cannot listen again for a minute after it was closed.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        code = getattr(error, "errno", None)
        if code == errno.EADDRINUSE:
            why, fix = f"port {port} is in use", "pass another port, or 0 for a free one"
            raise ServeError(asked, why, fix, code="port-in-use") from error
        why = f"the system refuses it: {getattr(error, 'strerror', None) or error}"
        raise ServeError(asked, why, "pass another address or port; 0 is a free port") from error
    return listener
