"""``serve``: the page's server in a thread, and who may read the page.

An address is ``/TOKEN/...`` for pages, their content and figures alike: a request without the token, for
another host name or from a page of another site is refused.
"""

from __future__ import annotations

import errno
import hmac
import ipaddress
import secrets
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import SplitResult, urlsplit

from zerocopy.errors import ZeroCopyError
from zerocopy.monitor.errors import MonitorFileError
from zerocopy.monitor.observer import Observer
from zerocopy.monitor.prometheus import CONTENT_TYPE, exposition
from zerocopy.monitor.sampling import Sampler
from zerocopy.monitor.web.pages import PAGES, SCRIPT, STYLE, content_html, page_html

#: Sent with every response.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    # The address has the token, which must not reach other sites.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_HTML = "text/html; charset=utf-8"
_TEXT = "text/plain; charset=utf-8"
#: The style and the script of the pages.
_FILES = {
    "page.css": ("text/css; charset=utf-8", STYLE),
    "page.js": ("text/javascript; charset=utf-8", SCRIPT),
}


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    #: Seconds after which a client that sends nothing is disconnected.
    timeout = 10

    def do_GET(self) -> None:
        """Send a page, its content, its style or script, or the figures for Prometheus."""
        why = self.server.refusal(self.path, self.headers)
        if why:
            self._send(403, _TEXT, f"403: {why}\n")
            return
        url = _split(self.path)
        name = url.path.split("/", 2)[2] if url.path.count("/") > 1 else None
        page = next((each for each in PAGES if each.path == name), None)
        sample = self.server.source.newest
        if name in _FILES:
            self._send(200, *_FILES[name])
        elif name == "metrics":
            try:
                self._send(200, CONTENT_TYPE, "" if sample is None else exposition(sample))
            except ZeroCopyError as error:
                self._send(500, _TEXT, f"500: {error}\n")
        elif page is None:
            self._send(404, _TEXT, "404: there is no such page\n")
        else:
            content = "<p>The first sample is being read.</p>"
            if sample is not None:
                content = content_html(page, self.server.source.history, sample)
            whole = url.query != "content"
            self._send(200, _HTML, page_html(page, content, self.server.every) if whole else content)

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response_only(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_response(self, code: int, message: str | None = None) -> None:
        """Send a status without `Server`, which has Python's version."""
        self.send_response_only(code, message)

    def end_headers(self) -> None:
        """Add `HEADERS` to each response, those of errors too."""
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Do nothing: the address has the token, which must not be logged."""


class Server(ThreadingHTTPServer):
    """A page's server, in a thread of its own; `url` is the address of the overview, with the token."""

    daemon_threads = True

    def __init__(
        self, source: Observer, listener: socket.socket, token: str, every: float, *, samples: bool = True
    ) -> None:
        self.address: str
        self.port: int
        self.address, self.port = listener.getsockname()[:2]
        super().__init__((self.address, self.port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._token = token.encode()
        host = "127.0.0.1" if self.address in ("0.0.0.0", "::") else self.address
        self.url: str = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/{token}/"
        self.source: Observer = source
        self.every: float = every
        self._sampler = Sampler(source.read, every)
        if samples:
            source.read()
            self._sampler.start()
        arguments = {"poll_interval": 0.1}
        self._thread = Thread(
            target=self.serve_forever, kwargs=arguments, name="zerocopy-monitor-web", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and wait for the thread; a second call does nothing."""
        self._sampler.stop()
        if self._thread.is_alive():
            self.shutdown()
        self._thread.join()
        self.server_close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report a defect; a browser that has closed the connection is none."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def refusal(self, path: str, headers: Any) -> str:
        """Return why a request is refused, or "" if it is not."""
        first = path.split("/")[1] if path.startswith("/") else ""
        # Compared in constant time, so that the duration does not reveal the token.
        if not hmac.compare_digest(first.encode("utf-8", "surrogatepass"), self._token):
            return "the token in the address is missing or wrong: copy the whole address that was printed"
        address = headers.get("Host", "")
        host = (_split(f"//{address}").hostname or "").lower()
        if not self._knows(host):
            return f"the host name {host!r} is not one of this server's: use an IP address or localhost"
        origin = headers.get("Origin")
        if origin is not None and _split(origin).netloc.lower() != address.lower():
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
    """
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
