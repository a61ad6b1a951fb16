"""Access control of the page: a random token in each address, this server's host names, the same origin.

An address is ``/TOKEN/...`` for pages, static files, figures and the websocket alike, so that a request
without the token reaches no handler of Bokeh.
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import Any
from urllib.parse import SplitResult, urlsplit

from bokeh.server.tornado import BokehTornado
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import OutputTransform, RequestHandler

#: Sent with every response. Bokeh's scripts are inline, and compile callbacks with ``new Function``.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    # The address has the token, which must not reach other sites.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
#: Bokeh's handlers for pages of other sites, and for tools.
_OFF = ("autoload.js", "metadata")


class AccessControl:
    """The rules for one server: the token in every address, and the address that it listens on."""

    def __init__(self, token: str, address: str) -> None:
        self._token = token.encode()
        self._address = address

    def refusal(self, request: HTTPServerRequest) -> str:
        """Return why a request is refused, or "" if it is not."""
        first = request.path.split("/")[1] if request.path.startswith("/") else ""
        # Compared in constant time, so that the duration does not reveal the token.
        if not hmac.compare_digest(first.encode("utf-8", "surrogatepass"), self._token):
            return "the token in the address is missing or wrong: copy the whole address that was printed"
        if request.path.rpartition("/")[2] in _OFF:
            return "this server has no pages for use within other pages"
        host = (_split(f"//{request.host}").hostname or "").lower()
        if not self._knows(host):
            return f"the host name {host!r} is not one of this server's: use an IP address or localhost"
        origin = request.headers.get("Origin")
        if origin is not None and _split(origin).netloc.lower() != request.host.lower():
            return "the request comes from a page of another site"
        return ""

    def _knows(self, host: str) -> bool:
        """Whether a host name is this server's. Other names can belong to a site that rebinds its DNS."""
        if host in ("localhost", self._address):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True  # DNS rebinding needs a name


class _Refused(RequestHandler):
    """Answers 403 with the reason."""

    def initialize(self, why: str) -> None:
        self._why = why

    def prepare(self) -> None:
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"403: {self._why}\n")


class _SecurityHeaders(OutputTransform):
    """Adds `HEADERS` to each response, of Bokeh's handlers too."""

    def __init__(self, request: HTTPServerRequest) -> None:
        super().__init__(request)
        self._is_static = request.path.split("/")[2:3] == ["static"]

    def transform_first_chunk(
        self, status_code: int, headers: HTTPHeaders, chunk: bytes, finishing: bool
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Add the headers; remove `Server`, which has tornado's version."""
        for name, value in HEADERS.items():
            headers[name] = value
        if self._is_static and status_code == 200:  # the same for all pages: a megabyte
            headers["Cache-Control"] = "private, max-age=3600"
        headers.pop("Server", None)
        return status_code, headers, chunk


class GuardedApplication(BokehTornado):
    """Bokeh's application, whose handlers only see requests that `access` allows."""

    def __init__(self, applications: Any, access: AccessControl, **options: Any) -> None:
        self._access = access
        super().__init__(applications, **options)
        self.add_transform(_SecurityHeaders)

    def resources(self, absolute_url: str | bool | None = None) -> Any:
        """Return the scripts of a page: from this server, even if ``BOKEH_RESOURCES`` names a CDN.

        The pages do not need the other bundles, such as MathJax, which have 60 % of all bytes.
        """
        from bokeh.resources import Resources
        from bokeh.server.views.static_handler import StaticHandler

        return Resources(
            mode="server",
            root_url=f"{self._prefix}/",
            path_versioner=StaticHandler.append_version,
            components=["bokeh", "bokeh-widgets"],
        )

    def log_request(self, handler: RequestHandler) -> None:
        """Do nothing: the address has the token, which must not be logged."""

    def find_handler(self, request: HTTPServerRequest, **options: Any) -> Any:
        """Return the handler of a request, or the one that refuses it."""
        why = self._access.refusal(request)
        if why:
            return self.get_handler_delegate(request, _Refused, {"why": why})
        return super().find_handler(request, **options)


def _split(url: str) -> SplitResult:
    """Return the parts of an address; all are empty if it is not valid, such as ``http://[``."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")
