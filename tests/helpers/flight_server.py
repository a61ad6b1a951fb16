"""A Flight server for tests, in a process of its own: ``python flight_server.py LOCATION``.

The command of a descriptor names the table. Commands that begin with ``raw:`` make a server that sends any
bytes as its first message. The process ends with its standard input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROWS = 200_000


def table() -> Any:
    """Return the table that server and tests make alike: numbers, text, nulls, two chunks."""
    import pyarrow as pa

    numbers = np.arange(ROWS)
    columns = {
        "i": pa.chunked_array([numbers[:5], numbers[5:]]),
        "f": numbers * 0.5,
        "text": [f"row {i % 100}" for i in range(ROWS)],
        "null": pa.array(numbers, mask=numbers % 3 == 0),
    }
    return pa.table(columns)


class Program:
    """The server's process, and clients of it."""

    def __init__(self, process: subprocess.Popen[str], location: str) -> None:
        self.process, self.location = process, location

    def connect(self) -> Any:
        from pyarrow import flight

        return flight.connect(self.location)

    def ask(self, action: str, body: bytes = b"") -> Any:
        """Run an action of the server and return its JSON document."""
        from pyarrow import flight

        with self.connect() as client:
            (result,) = client.do_action(flight.Action(action, body), flight.FlightCallOptions(timeout=60))
            return json.loads(result.body.to_pybytes())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)


@contextmanager
def running(location: str) -> Iterator[Program]:
    """Start the program and yield it; a location ends with the port 0, or is a Unix socket."""
    from helpers.paths import ROOT

    process = subprocess.Popen(
        [sys.executable, __file__, location],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        yield Program(process, location.removesuffix(":0") + (f":{port}" if location.endswith(":0") else ""))
    finally:
        process.kill()
        process.wait(60)
        process.stdin.close()
        process.stdout.close()


def _server(location: str) -> Any:
    import pyarrow as pa
    from pyarrow import flight

    import zerocopy as zc
    from zerocopy.integrations import flight as exchange
    from zerocopy.shared.blocks import large_blocks

    class Server(flight.FlightServerBase):
        def __init__(self) -> None:
            super().__init__(location)
            self.tables: dict[str, Any] = {"arrow": table(), "small": pa.table({"x": [1, 2, 3]})}
            self.tables["slice"] = table().slice(7, 100_000)
            self.tables["empty"] = table().slice(0, 0)

        def table(self, name: str) -> Any:
            """Return a table by its name, or another framework's copy of it, made for each call."""
            if name in self.tables:
                return self.tables[name]
            return zc.convert(self.tables["arrow"], to=name)

        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.RecordBatchStream(self.table(ticket.ticket.decode()))

        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            command = descriptor.command
            if command == b"sleep":
                time.sleep(120)
            if not command.startswith(b"raw:"):
                exchange.serve_exchange(self.table(command.decode()), reader, writer)
                return
            reader.read_chunk()
            writer.write_metadata(command[4:])
            reader.read_chunk()
            writer.begin(self.tables["small"].schema)
            writer.write_table(self.tables["small"])

        def do_action(self, context: Any, action: Any) -> Any:
            if action.type == "share":  # the table's memory is shared from then on
                self.tables["shared"] = zc.convert(zc.share(table()), to="pyarrow")
            if action.type == "stale":
                with zc.share(self.tables["arrow"]) as shared:
                    yield json.dumps(bytes(shared).hex()).encode()
                    return
            if action.type == "drop":
                del self.tables[action.body.to_pybytes().decode()]
            blocks = {"made": large_blocks.fresh + large_blocks.recycled, "idle": large_blocks.idle_bytes}
            yield json.dumps({**blocks, "kept": len(exchange._kept)}).encode()

    return Server()


def _main(location: str) -> None:
    server = _server(location)
    print(server.port, flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve()


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]
    _main(sys.argv[1])
