"""Announcements of processes when they connect, which decide whether frames and handles are sent.

Dask's handshake gives each end of a connection a dict of the other. A worker or a client adds to it that
it reads frames, and which memory it can open. The scheduler adds nothing: messages that it passes on
unread, and spilled data, are serialized as by Dask without zerocopy.
"""

from __future__ import annotations

import functools
from typing import Any

from zerocopy.frames.header import VERSION as FRAMES_VERSION
from zerocopy.shared.handle import accessible_memory

#: Key of the announcement in a handshake.
KEY = "zerocopy"
#: Key in the handshake of a connection over which ``get_data`` sends now: the handles in flight.
_IN_FLIGHT = "zerocopy-in-flight"

_announced: list[dict[str, Any]] = []


def announce(server: Any, same_host: bool) -> None:
    """Announce in new connections of a worker or client that it reads frames, and handles if `same_host`.

    Must be called in the server's event loop: it closes connections that are idle.
    """
    arguments = server.rpc.connection_args
    others = arguments.get("handshake_overrides") or {}
    arguments["handshake_overrides"] = {**others, KEY: _announcement(same_host)}
    _announced.append(arguments)
    server.rpc.collect()


def withdraw(server: Any) -> None:
    """Announce nothing in new connections; must be called in the server's event loop."""
    arguments = server.rpc.connection_args
    if arguments.get("handshake_overrides", {}).pop(KEY, None) is not None:
        _announced[:] = [other for other in _announced if other is not arguments]
        server.rpc.collect()


def refuse_handles() -> None:
    """Announce in new connections that this process opens no handles, because opening one failed."""
    for arguments in _announced:
        arguments["handshake_overrides"][KEY] = _announcement(same_host=False)


def _announcement(same_host: bool) -> dict[str, Any]:
    return {"frames": FRAMES_VERSION, "memory": accessible_memory() if same_host else b""}


def reads_frames(context: Any) -> bool:
    """Whether the recipient of a message has announced that it reads frames."""
    announced = _recipient(context).get(KEY)
    return isinstance(announced, dict) and announced.get("frames") == FRAMES_VERSION


def handles_in_flight(context: Any) -> list[Any] | None:
    """Return the list that keeps handles until the recipient has them; None if it cannot get handles."""
    handles: list[Any] | None = _recipient(context).get(_IN_FLIGHT)
    return handles


def _recipient(context: Any) -> Any:
    return (context or {}).get("recipient") or {}


def keep_in_flight(get_data: Any) -> Any:
    """Return a worker's handler ``get_data`` that keeps handles until the recipient has confirmed.

    Dask confirms only the replies of this handler, so that all other messages are sent without handles.
    """

    @functools.wraps(get_data)  # Dask reads the names of its parameters
    async def wrapped(comm: Any, *args: Any, **kwargs: Any) -> Any:
        info = comm.remote_info
        announced = info.get(KEY)
        if isinstance(announced, dict) and announced.get("memory") and announced["memory"] == _ours():
            info[_IN_FLIGHT] = []
        try:
            return await get_data(comm, *args, **kwargs)
        finally:
            info.pop(_IN_FLIGHT, None)

    return wrapped


@functools.cache
def _ours() -> bytes:
    return accessible_memory()
