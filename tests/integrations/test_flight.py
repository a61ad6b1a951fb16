"""Arrow Flight: handles for clients of the same machine, streams for all others, with a real server."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.flight_server import Program, running, table
from helpers.free_threaded import with_gil
from helpers.paths import ROOT

import zerocopy as zc
from zerocopy.errors import HandleFormatError, SharedMemoryError
from zerocopy.integrations import flight as exchange

pa = pytest.importorskip("pyarrow")
flight = pytest.importorskip("pyarrow.flight")
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="Linux only")


@pytest.fixture(scope="module", params=["tcp", "unix"])
def program(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    socket = tmp_path_factory.mktemp("flight") / "s"
    location = "grpc://127.0.0.1:0" if request.param == "tcp" else f"grpc+unix://{socket}"
    with running(location) as started:
        yield started


@pytest.fixture
def client(program: Program) -> Iterator[Any]:
    with program.connect() as connected:
        yield connected


@pytest.fixture
def own_program() -> Iterator[Program]:
    """A server that the test may kill."""
    with running("grpc://127.0.0.1:0") as started:
        yield started


def get(client: Any, name: str | bytes, to: Any = "pyarrow.Table", **options: Any) -> Any:
    descriptor = flight.FlightDescriptor.for_command(name)
    limit = flight.FlightCallOptions(timeout=60)
    return exchange.fetch(client, descriptor, to, call_options=limit, **options)


def is_shared(obj: Any) -> bool:
    """Whether all of an object's memory lies in shared memory."""
    return zc.share(obj).copied_bytes == 0


def wait_until(condition: Any) -> None:
    limit = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


# -- values and memory ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["arrow", "slice", "polars", "pandas", "duckdb"])
def test_tables_of_all_frameworks_arrive_in_shared_memory(client: Any, name: str) -> None:
    if name not in ("arrow", "slice"):
        pytest.importorskip(name)
    result = get(client, name)
    wanted = table().slice(7, 100_000) if name == "slice" else table()
    assert result.select(["i", "f", "null"]).equals(wanted.select(["i", "f", "null"]))
    assert result.column("text").to_pylist() == wanted.column("text").to_pylist()
    assert result.schema.names == wanted.schema.names
    assert is_shared(result)


@pytest.mark.parametrize("to", ["polars", "pandas", "numpy", "torch", "jax"])
def test_the_target_can_be_any_framework(client: Any, to: str) -> None:
    pytest.importorskip(to)
    result = get(client, "arrow", to, columns=["f"])
    column = np.asarray(result["f"])
    np.testing.assert_array_equal(column, np.arange(len(column)) * 0.5)
    assert zc.shares_memory(result["f"], get(client, "arrow").column("f").chunk(0))


def test_clients_share_one_copy_of_an_arrow_table(program: Program, client: Any) -> None:
    first = get(client, "arrow")
    before = program.ask("status")
    with program.connect() as other:
        second = get(other, "arrow")
    assert program.ask("status") == before
    pointers = {t.column("f").chunk(0).buffers()[1].address for t in (first, second)}
    assert len(pointers) == 1


def test_a_table_in_shared_memory_is_not_copied_by_the_server(program: Program, client: Any) -> None:
    before = program.ask("share")["made"]
    assert get(client, "shared").equals(table())
    after = program.ask("status")["made"]
    assert after - before <= 1  # the index of its frames


@pytest.mark.hazard("robustness#writes-to-received-tables")
@pytest.mark.parametrize("to", ["torch", "numpy"])
def test_a_write_changes_neither_the_server_nor_others(client: Any, to: str) -> None:
    pytest.importorskip(to)
    column = get(client, "arrow", to, columns=["f"], writable=True)["f"]
    column[:] = -1
    assert get(client, "arrow").equals(table())
    with pytest.raises(ValueError, match="read-only"):
        get(client, "arrow", "numpy", columns=["f"])["f"][0] = 1


@with_gil("the table is freed later than its last reference is dropped")
def test_the_server_frees_the_copy_with_the_table(own_program: Program) -> None:
    with own_program.connect() as client:
        result = get(client, "slice")
        assert own_program.ask("status")["kept"] == 1
        idle = own_program.ask("drop", b"slice")
        assert idle["kept"] == 0
        assert idle["idle"] > 0
        for _ in range(3):  # recycled segments must not be the one in use here
            get(client, "polars")
        assert result.equals(table().slice(7, 100_000))


# -- streams ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small", "empty"])
def test_small_tables_are_streamed(program: Program, client: Any, name: str) -> None:
    before = program.ask("status")
    result = get(client, name)
    assert result.equals(pa.table({"x": [1, 2, 3]}) if name == "small" else table().slice(0, 0))
    assert program.ask("status") == before


@pytest.mark.parametrize("place", [b"", bytes(32), bytes(range(32))], ids=["empty", "zeros", "other"])
def test_a_client_of_another_machine_gets_the_stream(
    client: Any, place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_place", lambda: place)
    result = get(client, "arrow")
    assert result.equals(table())
    assert not is_shared(result)


def test_a_client_of_another_user_gets_the_stream(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert not is_shared(get(client, "arrow"))


@pytest.mark.parametrize("name", ["OtherHostError", "HandleAccessError", "StaleHandleError"])
def test_a_client_that_cannot_open_the_handle_gets_the_stream(
    client: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zerocopy.shared import reading

    def refuse(*arguments: Any) -> Any:
        raise getattr(zc.errors, name)("", "the test refuses it")

    monkeypatch.setattr(reading, "open_segment", refuse)
    assert get(client, "polars").num_rows == table().num_rows


@pytest.mark.hazard("robustness#receiver-without-descriptors")
def test_a_client_whose_objects_hold_half_of_its_descriptors_gets_the_stream(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zerocopy.shared import descriptors, segment

    kept = [get(client, "polars") for _ in range(2)]
    assert all(map(is_shared, kept))
    monkeypatch.setattr(descriptors, "object_quota", lambda: len(segment.mappings))
    streamed = get(client, "polars")
    assert not is_shared(streamed)
    assert streamed.equals(kept[0])
    del kept
    monkeypatch.undo()
    assert is_shared(get(client, "polars"))


@pytest.mark.hazard("training#streams-at-other-addresses")
def test_streamed_columns_are_aligned_where_the_target_needs_it(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.setattr(exchange, "_place", lambda: b"")
    column = get(client, "arrow", "jax", columns=["f"])["f"]
    assert column.unsafe_buffer_pointer() % 64 == 0
    np.testing.assert_array_equal(column, np.arange(len(column)) * 0.5)


def test_clients_without_zerocopy_get_the_stream(client: Any) -> None:
    assert client.do_get(flight.Ticket(b"arrow")).read_all().equals(table())


# -- a server in this process, whose parts a test replaces ---------------------------------


@pytest.fixture
def local() -> Iterator[Any]:
    class Server(flight.FlightServerBase):
        source = table()

        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            if descriptor.command != b"none":
                exchange.serve_exchange(self.source, reader, writer)

    with Server("grpc://127.0.0.1:0") as server, flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        yield client


def test_a_server_without_room_streams(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from zerocopy.shared import share

    def refuse(obj: Any) -> Any:
        raise SharedMemoryError("", "the test has no room")

    assert is_shared(get(local, "x"))
    exchange._kept.clear()
    monkeypatch.setattr(share, "share", refuse)
    assert get(local, "x").equals(table())


def test_a_stream_splits_batches_that_are_too_long(local: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_place", lambda: b"")
    monkeypatch.setattr(exchange, "_BATCH_BYTES", 1 << 20)
    result = get(local, "x")
    assert result.equals(table())
    assert max(batch.nbytes for batch in result.to_batches()) < 2 << 20


@pytest.mark.parametrize(
    ("rows", "nbytes", "most"), [(10, 100, 10), (9, 3 << 30, 3), (2, 3 << 30, 1), (0, 0, 1)]
)
def test_a_batch_has_a_gibibyte_or_one_row(rows: int, nbytes: int, most: int) -> None:
    assert exchange._rows_per_batch(SimpleNamespace(num_rows=rows, nbytes=nbytes)) == most


def test_a_server_that_answers_nothing_raises(local: Any) -> None:
    with pytest.raises(HandleFormatError, match="did not answer"):
        get(local, "none")


def test_a_server_without_exchange_raises() -> None:
    with flight.FlightServerBase("grpc://127.0.0.1:0") as server:
        client = flight.connect(f"grpc://127.0.0.1:{server.port}")
        with client, pytest.raises(NotImplementedError):
            get(client, "x")


def test_systems_without_shared_memory_stream(run_python: Any) -> None:
    done = run_python(
        """
        import os
        del os.memfd_create
        import pyarrow as pa, pyarrow.flight
        from zerocopy.integrations import flight

        def host_id():
            raise FileNotFoundError

        flight.host_id = host_id
        numbers = pa.table({"x": range(1_000_000)})

        class Server(pyarrow.flight.FlightServerBase):
            def do_exchange(self, context, descriptor, reader, writer):
                flight.serve_exchange(numbers, reader, writer)

        with Server("grpc://127.0.0.1:0") as server:
            with pyarrow.flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
                result = flight.fetch(client, pyarrow.flight.FlightDescriptor.for_command(b"x"))
        assert result.equals(numbers)
        """
    )
    assert done.returncode == 0, done.stderr


# -- processes that end --------------------------------------------------------------------

DIES = """
import sys, os
from pyarrow import flight
from zerocopy.integrations import flight as exchange
client = flight.connect(sys.argv[1])
writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"polars"))
writer.write_metadata(exchange._message(exchange._HELLO, exchange._place()))
print(exchange._receive(reader, "")[0], flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.hazard("robustness#client-that-ends")
def test_a_client_that_dies_with_a_handle_leaves_nothing(own_program: Program) -> None:
    pytest.importorskip("polars")
    done = subprocess.run(
        [sys.executable, "-c", DIES, own_program.location],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (str(exchange._HANDLE), -signal.SIGKILL), done.stderr
    wait_until(lambda: own_program.ask("status")["idle"] > 0)
    with own_program.connect() as client:
        assert get(client, "polars").num_rows == table().num_rows


def test_a_result_survives_its_server(own_program: Program) -> None:
    with own_program.connect() as client:
        result = get(client, "arrow")
        own_program.kill()
        assert result.equals(table())
        with pytest.raises(flight.FlightUnavailableError):
            get(client, "arrow")


def test_a_server_that_dies_while_a_client_waits_raises(own_program: Program) -> None:
    with own_program.connect() as client:
        killer = threading.Timer(0.3, own_program.process.kill)
        killer.start()
        with pytest.raises(flight.FlightError):
            get(client, "sleep")
        killer.join()


# -- hostile peers ---------------------------------------------------------------------------


@pytest.mark.hazard("robustness#other-versions")
def test_hostile_clients_get_an_error_and_the_server_goes_on(program: Program, client: Any) -> None:
    rng = random.Random(18)
    hello = exchange._message(exchange._HELLO, exchange._place())
    messages = [b"", b"ZCFL", hello[:6], hello[:-1], b"ZCFL\x02" + hello[5:], rng.randbytes(1 << 16)]
    messages += [exchange._message(kind) for kind in (0, *range(2, 7), 255)]
    messages += [hello[:i] + rng.randbytes(1) + hello[i + 1 :] for i in range(6)]
    for message in messages:
        writer, reader = client.do_exchange(
            flight.FlightDescriptor.for_command(b"small"), flight.FlightCallOptions(timeout=60)
        )
        try:
            writer.write_metadata(message)
            writer.done_writing()
            reader.read_all()
        except pa.ArrowException:
            pass  # refused
        finally:
            reader.cancel()
    assert get(client, "small").num_rows == 3


@pytest.mark.hazard("robustness#other-versions")
def test_a_client_of_another_version_is_refused(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_VERSION", 2)
    with pytest.raises(pa.ArrowInvalid, match="has version 2 of the protocol"):
        get(client, "arrow")


@pytest.mark.hazard("robustness#other-versions")
@pytest.mark.parametrize("first", [b"", b"x", b"ZCFL\x01", b"ZCFL\x01\x09", b"ZCFL\x02\x02"])
def test_hostile_servers_raise(client: Any, first: bytes) -> None:
    with pytest.raises(HandleFormatError, match="fetch"):
        get(client, b"raw:" + first)


@pytest.mark.hazard("robustness#handle-of-a-server")
def test_hostile_handles_are_refused_and_the_stream_is_used(program: Program, client: Any) -> None:
    """Truncated and changed handles, and one whose memory is gone."""
    rng = random.Random(19)
    stale = bytes.fromhex(program.ask("stale"))
    changed = [stale[:i] + rng.randbytes(1) + stale[i + 1 :] for i in range(0, len(stale), 3)]
    for handle in (b"", stale, stale[:-1], rng.randbytes(500), *changed):
        command = b"raw:" + exchange._message(exchange._HANDLE, handle)
        assert get(client, command).column("x").to_pylist() == [1, 2, 3]


# -- many clients -------------------------------------------------------------------------


def test_many_clients_at_once_share_one_copy(own_program: Program) -> None:
    wanted, failures = table(), []

    def work() -> None:
        try:
            with own_program.connect() as client:
                for _ in range(10):
                    assert get(client, "arrow").equals(wanted)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    status = own_program.ask("status")
    assert (status["kept"], status["made"]) == (1, 1)
