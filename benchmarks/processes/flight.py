"""Arrow Flight on one machine: ``fetch`` by handle, compared with ``do_get``.

The server runs in another process, and its contenders take turns with a memcpy of the same bytes::

    python -m benchmarks.processes.flight
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter
from typing import Any

from benchmarks.children import environment

ROWS, COLUMNS = 1_000_000, 10
TCP = "grpc://127.0.0.1:0"


def rows(rounds: int = 9, count: int = ROWS) -> list[tuple[str, float, float]]:
    """Measure a table of float64 columns, interleaved.

    Parameters
    ----------
    rounds : int
        Calls of each side.
    count : int
        Rows of the table, which has `COLUMNS` columns.

    Returns
    -------
    list of (str, float, float)
        The side; the median of its calls; the median of the memcpy, in seconds.
    """
    import numpy as np

    source = np.ones(count * COLUMNS)
    target = np.ones_like(source)
    with ExitStack() as stack:
        sides: dict[str, Callable[[], Any]] = {"memcpy": lambda: np.copyto(target, source)}
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for name, location in (("grpc", TCP), ("unix socket", f"grpc+unix://{folder}/s")):
            client = stack.enter_context(_client(location, count))
            sides |= {f"{side}, {name}": call for side, call in _sides(client).items()}
        samples: dict[str, list[float]] = {side: [] for side in sides}
        for turn in range(rounds + 1):
            for side, call in sides.items():
                start = perf_counter()
                result = call()
                taken = perf_counter() - start
                del result  # not within the time: it frees or unmaps the memory
                if turn:  # the first turn is the warm-up
                    samples[side].append(taken)
    medians = {side: statistics.median(taken) for side, taken in samples.items()}
    memcpy = medians.pop("memcpy")
    return [(side, median, memcpy) for side, median in medians.items()]


def _sides(client: Any) -> dict[str, Callable[[], Any]]:
    from pyarrow import flight

    from zerocopy.integrations.flight import fetch

    def descriptor(name: str) -> Any:
        return flight.FlightDescriptor.for_command(name)

    return {
        "do_get": lambda: client.do_get(flight.Ticket(b"kept")).read_all(),
        "fetch, a table that the server keeps": lambda: fetch(client, descriptor("kept")),
        "fetch, a table that the server makes for the call": lambda: fetch(client, descriptor("new")),
    }


@contextmanager
def _client(location: str, count: int) -> Iterator[Any]:
    """Start a server in another process and connect to it."""
    from pyarrow import flight

    command = [sys.executable, "-m", "benchmarks.processes.flight", location, str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment())
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        with flight.connect(location.replace(":0", f":{port}")) as client:
            yield client
    finally:
        process.kill()
        process.communicate()


def _serve(location: str, count: int) -> None:
    import numpy as np
    import pyarrow as pa
    from pyarrow import flight

    from zerocopy.integrations.flight import serve_exchange

    kept = pa.table({f"c{i}": np.ones(count) for i in range(COLUMNS)})

    class Server(flight.FlightServerBase):
        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.RecordBatchStream(kept)

        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            table = kept if descriptor.command == b"kept" else kept.replace_schema_metadata()
            serve_exchange(table, reader, writer)

    server = Server(location)
    print(server.port, flush=True)
    server.serve()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _serve(sys.argv[1], int(sys.argv[2]))
    else:
        for side, seconds, memcpy in rows():
            print(f"{side:64} {seconds * 1e3:8.3f} ms = {seconds / memcpy:6.3f}x memcpy")
