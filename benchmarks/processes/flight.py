"""Arrow Flight on one machine: ``fetch`` by handle, compared with ``do_get``.

The server runs in another process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.children import environment
from benchmarks.processes.objects import available, make, nbytes_of
from benchmarks.processes.row import Contender, memcpy, row
from benchmarks.suite import Case, Settings

TCP = "grpc://127.0.0.1:0"
#: Cases: the server makes another table for each call, which it shares first; or it keeps one table.
NEW, KEPT = "Flight", "Flight, a table that the server keeps"


def rows(settings: Settings) -> Iterator[Case]:
    """Yield the cases of a table of pyarrow."""
    if "pyarrow" not in available(settings):
        return
    nbytes = nbytes_of("pyarrow", settings, 0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        locations = {"grpc": TCP, "unix socket": f"grpc+unix://{folder / 's'}"}
        clients = {name: stack.enter_context(connect(where, nbytes)) for name, where in locations.items()}
        for question, ticket in ((NEW, b"new"), (KEPT, b"kept")):
            contenders = [memcpy(nbytes)]
            for name, client in clients.items():
                contenders += [
                    Contender(f"do_get, {name}", "idiom", partial(discard, do_get(client, ticket))),
                    Contender(f"fetch, {name}", "ours", partial(discard, fetch(client, ticket))),
                ]
            yield row(f"{question}, pyarrow", contenders, settings)


def discard(call: Callable[[], Any]) -> None:
    """Call, and return None, so that all of the call counts."""
    call()


def do_get(client: Any, ticket: bytes) -> Callable[[], Any]:
    """Return a call that gets a table without zerocopy."""
    from pyarrow import flight

    return lambda: client.do_get(flight.Ticket(ticket)).read_all()


def fetch(client: Any, ticket: bytes) -> Callable[[], Any]:
    """Return a call that gets a table with zerocopy."""
    from pyarrow import flight

    from zerocopy.integrations import flight as integration

    return lambda: integration.fetch(client, flight.FlightDescriptor.for_command(ticket))


@contextmanager
def connect(location: str, nbytes: int, other: Sequence[str] = ()) -> Iterator[Any]:
    """Start a server in another process and connect to it; `other` runs a command on another host."""
    from pyarrow import flight

    command = [*other, sys.executable, "-m", "benchmarks.processes.flight", location, str(nbytes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with flight.connect(location.replace(":0", f":{port}")) as client:
            yield client
    finally:
        process.kill()
        process.communicate()


def _serve(location: str, nbytes: int) -> None:
    from pyarrow import flight

    from zerocopy.integrations.flight import serve_exchange

    kept = make("pyarrow", nbytes)

    def table(command: bytes) -> Any:
        return kept if command == b"kept" else kept.replace_schema_metadata()

    class Server(flight.FlightServerBase):
        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.RecordBatchStream(table(ticket.ticket))

        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            serve_exchange(table(descriptor.command), reader, writer)

    server = Server(location)
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
