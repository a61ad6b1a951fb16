"""Arrow Flight: tables by handle to clients of the same machine, and as a stream to all others.

`serve_exchange` is the body of a server's ``do_exchange``, and `fetch` is the client's call. A message is
the metadata of one Flight message: `_MAGIC`, `_VERSION`, its kind, and its content.

1. The client sends `_HELLO` with its machine, PID namespace, user and capabilities.
2. The server answers with `_HANDLE` and waits, or with `_STREAM` and the record batches.
3. After a handle, the client sends `_OPENED`, or `_REFUSED` to receive the stream.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any
from weakref import ref

from zerocopy import forks
from zerocopy._engine.convert import convert
from zerocopy.errors import HandleFormatError, SharedMemoryError, ZeroCopyError
from zerocopy.protocols.exporter_errors import ignored_errors
from zerocopy.shared.handle import host_id
from zerocopy.tables.hub import hub

if TYPE_CHECKING:
    from zerocopy.shared.objects import Shared

_MAGIC, _VERSION = b"ZCFL", 1
_HEAD = struct.Struct("<4sBB")
_HELLO, _HANDLE, _STREAM, _OPENED, _REFUSED = range(1, 6)
#: Smaller tables are streamed, as with the other integrations.
MIN_BYTES = 512 * 1024
#: Flight sends each record batch as one message of gRPC, whose length has 31 bits.
_BATCH_BYTES = 1 << 30
_TABLE = "pyarrow.Table"


# -- the server ---------------------------------------------------------------------


def serve_exchange(table: Any, reader: Any, writer: Any, *, min_bytes: int = MIN_BYTES) -> None:
    """Send a table to a client that called `fetch`: call it in ``do_exchange`` of a Flight server.

    Parameters
    ----------
    table : object
        A table of any framework. A query is executed.
    reader : pyarrow.flight.MetadataRecordBatchReader
        The argument of ``do_exchange``.
    writer : pyarrow.flight.MetadataRecordBatchWriter
        The argument of ``do_exchange``.
    min_bytes : int
        Size in bytes; a smaller table is streamed.

    Raises
    ------
    HandleFormatError
        The client did not call `fetch`, or has another version of the protocol.
    UnsupportedConversionError
        The object is not a table.

    Notes
    -----
    A client of the same machine, PID namespace and user, with the same capabilities, gets a handle, whose
    memory stays until the client has opened it or has ended. All other clients, and those that cannot open
    the handle, get the record batches. A ``pyarrow.Table`` is copied into shared memory for its first client
    only, and the copy stays as long as the table. A table of another framework can be changed in place, and
    is therefore copied for each client.

    The server decides who may read a table, as for ``do_get``, before it calls this function.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.flight, zerocopy as zc
    >>> from zerocopy.integrations import flight
    >>> class Server(pyarrow.flight.FlightServerBase):
    ...     table = pa.table({"x": [1, 2]})
    ...
    ...     def do_exchange(self, context, descriptor, reader, writer):
    ...         flight.serve_exchange(self.table, reader, writer)
    ...
    ...     def do_get(self, context, ticket):  # for clients without zerocopy
    ...         return pyarrow.flight.RecordBatchStream(self.table)
    >>> with Server("grpc://127.0.0.1:0") as server, pyarrow.flight.connect(
    ...     f"grpc://127.0.0.1:{server.port}"
    ... ) as client:
    ...     flight.fetch(client, pyarrow.flight.FlightDescriptor.for_command(b"x"), to="numpy")
    {'x': array([1, 2])}
    """
    hello = _receive(reader, "serve_exchange()")
    if hello is None:
        return  # the client has ended
    kind, place = hello
    if kind != _HELLO:
        raise _unexpected("serve_exchange()", f"the client began with a message of kind {kind}")
    arrow = convert(table, _TABLE)
    shared = None
    if place and place == _place() and arrow.nbytes >= min_bytes:
        shared = _shared(arrow, arrow is table)
    if shared is not None:
        writer.write_metadata(_message(_HANDLE, bytes(shared)))
        answer = _receive(reader, "serve_exchange()")
        if answer is None or answer[0] == _OPENED:
            return
        if answer[0] != _REFUSED:
            raise _unexpected("serve_exchange()", f"the client answered with a message of kind {answer[0]}")
    else:
        writer.write_metadata(_message(_STREAM))
    writer.begin(arrow.schema)
    writer.write_table(hub().writable(arrow), max_chunksize=_rows_per_batch(arrow))


def _rows_per_batch(table: Any) -> int:
    """Return the most rows of a record batch; a table below 1 GiB keeps its chunks."""
    batches = max(1, -(-int(table.nbytes) // _BATCH_BYTES))
    return max(1, -(-int(table.num_rows) // batches))


class _Kept:
    """A table's copy in shared memory; many threads that ask for it at once make one copy."""

    __slots__ = ("_lock", "_shared", "table")

    def __init__(self, table: Any) -> None:
        key = id(table)
        # Runs before the address, and so the key, can belong to another table.
        self.table = ref(table, lambda _: _kept.pop(key, None))
        self._lock = forks.plain_lock()
        self._shared: Shared | None = None

    def shared(self, table: Any) -> Shared:
        from zerocopy.shared.share import share

        with self._lock:
            if self._shared is None:
                self._shared = share(table)
            return self._shared


#: By the table's ``id``, until the table is gone.
_kept: dict[int, _Kept] = {}


def _shared(table: Any, keep: bool) -> Shared | None:
    """Return the handle of a table, or None if there is no room for its copy."""
    from zerocopy.shared.share import share

    try:
        return _kept.setdefault(id(table), _Kept(table)).shared(table) if keep else share(table)
    except SharedMemoryError:
        return None  # the stream needs no shared memory


# -- the client ---------------------------------------------------------------------


def fetch(client: Any, descriptor: Any, to: Any = _TABLE, *, call_options: Any = None, **options: Any) -> Any:
    """Return a table of a server that calls `serve_exchange`, without a copy on the server's machine.

    Parameters
    ----------
    client : pyarrow.flight.FlightClient
    descriptor : pyarrow.flight.FlightDescriptor
        It identifies the table for the server's ``do_exchange``.
    to : str, module or type
        As in :func:`zerocopy.convert`.
    call_options : pyarrow.flight.FlightCallOptions, optional
        For example a timeout or headers.
    **options
        Further options of :func:`zerocopy.convert`, such as ``columns`` and ``nulls``.

    Returns
    -------
    object
        On the server's machine it aliases shared memory, and keeps it alive after the server's end. A write
        to it changes neither the server's table nor the tables of other clients.

    Raises
    ------
    HandleFormatError
        The server did not call `serve_exchange`, or has another version of the protocol.
    pyarrow.flight.FlightError, pyarrow.ArrowException
        The server raised an error, does not implement ``do_exchange``, or does not answer.
    ZeroCopyError
        The errors of :func:`zerocopy.convert`.

    Notes
    -----
    If the handle cannot be opened, the same call receives the record batches.
    The content of Arrow columns is not checked: pass ``validate="full"`` if the server is not trusted.
    """
    return convert(_exchange(client, descriptor, call_options), to, **options)


def _exchange(client: Any, descriptor: Any, call_options: Any) -> Any:
    """Return the server's table as pyarrow's."""
    arguments = () if call_options is None else (call_options,)
    writer, reader = client.do_exchange(descriptor, *arguments)
    try:
        writer.write_metadata(_message(_HELLO, _place()))
        kind, handle = _receive(reader, "fetch()") or (None, b"")
        if kind not in (_HANDLE, _STREAM):
            raise _unexpected("fetch()", "the server did not answer with a handle or a stream")
        table = None
        if kind == _HANDLE:
            table = _opened(handle)
            writer.write_metadata(_message(_REFUSED if table is None else _OPENED))
        writer.done_writing()
        if table is None:
            table = reader.read_all()
    except BaseException:
        reader.cancel()
        with ignored_errors():  # a repetition of the error; a writer that stays open prints it
            writer.close()
        raise
    writer.close()
    return table


def _opened(handle: bytes) -> Any:
    """Return the table of a handle, or None if this process cannot open it."""
    from zerocopy.shared.descriptors import object_quota
    from zerocopy.shared.objects import Shared
    from zerocopy.shared.segment import mappings

    if len(mappings) >= object_quota():  # calls of pyarrow need free descriptors too
        return None
    try:
        return convert(Shared.from_bytes(handle), _TABLE)
    except ZeroCopyError:
        return None  # the stream needs no shared memory, and no common format of handles


# -- messages -----------------------------------------------------------------------


def _place() -> bytes:
    """Return the machine, PID namespace and user: equal in two processes that open each other's handles.

    A client without the server's capabilities refuses the handle, and then gets the record batches.
    """
    try:
        return host_id() + struct.pack("<Q", os.geteuid())
    except (OSError, SharedMemoryError):
        return b""  # without /proc, as on other systems than Linux, or without a file descriptor


def _message(kind: int, content: bytes = b"") -> bytes:
    return _HEAD.pack(_MAGIC, _VERSION, kind) + content


def _receive(reader: Any, asked: str) -> tuple[int, bytes] | None:
    """Return the kind and the content of the next message, or None at the end."""
    try:
        chunk = reader.read_chunk()
    except StopIteration:
        return None
    data = b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
    if chunk.data is not None or len(data) < _HEAD.size or data[:4] != _MAGIC:
        raise _unexpected(asked, "the message is not one of this protocol")
    _, version, kind = _HEAD.unpack_from(data)
    if version != _VERSION:
        why = f"the message has version {version} of the protocol, and this zerocopy has version {_VERSION}"
        raise HandleFormatError(asked, why, "install the same version of zerocopy on both sides")
    return kind, data[_HEAD.size :]


def _unexpected(asked: str, why: str) -> HandleFormatError:
    remedy = "call zerocopy.integrations.flight.serve_exchange on the server, and fetch on the client"
    return HandleFormatError(asked, why, remedy)
