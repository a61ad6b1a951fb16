"""``zc.channel``: create a channel of arrays or tables, or open one by its handle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zerocopy._engine.convert import convert
from zerocopy.channels.channel import FULL, MODES, MOST_SLOTS, Channel
from zerocopy.channels.items import Fields, Items, Tables
from zerocopy.channels.ring import ENTRIES, Ring
from zerocopy.errors import OptionError, SharedMemoryError
from zerocopy.errors.tracebacks import public
from zerocopy.formatting import shown
from zerocopy.tables.hub import hub


@public
def channel(
    spec: Any = None,
    *,
    like: Any = None,
    slots: int = 4,
    mode: str = "queue",
    full: str = "block",
    readers: int = 1,
    max_rows: int | None = None,
    max_bytes: int | None = None,
) -> Channel:
    """Create a channel that hands arrays or tables to other processes of this machine, or open one.

    Parameters
    ----------
    spec : dict, pyarrow.Schema or str
        The fields of each item, ``{name: (shape, dtype)}``; the schema of tables; or the handle of a channel,
        which opens it.
    like : dict of arrays, or table
        An item: its shapes and dtypes, or its schema, in place of `spec`.
    slots : int
        How many items there is room for, at least 2. A batch that a reader keeps holds its slot.
    mode : {"queue", "latest"}
        Whether each reader gets every item, or the newest whole item.
    full : {"block", "drop"}
        Whether :meth:`Channel.put` waits for a free slot, or drops the item and counts it.
    readers : int
        Of a queue: how many readers must have begun before an item may be overwritten.
    max_rows : int, optional
        Of tables: the most rows. Values of different sizes need `max_bytes`. Default: the rows of `like`.
    max_bytes : int, optional
        Of tables: the most bytes of one table.

    Returns
    -------
    Channel
        Picklable. One process writes; a second writer is refused while the first one lives.

    Raises
    ------
    OptionError
        An option is invalid, or the fields are not arrays with a fixed dtype.
    SharedMemoryError
        There is no room, or no free file descriptor.
    HandleFormatError, StaleHandleError, OtherHostError, HandleAccessError
        A handle cannot be opened: see :func:`zerocopy.share`.

    Notes
    -----
    The memory is one memfd (memfd_create(2)), which the kernel frees with its last process. A process that
    is killed releases its slots: locks are open file description locks (fcntl(2)). An item that was not
    published whole is never read.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> channel = zc.channel({"image": ((2, 3), "u1"), "t": ((), "f8")})
    >>> reader = channel.read(to="numpy")  # usually in another process, which got the channel by pickle
    >>> channel.put({"image": np.ones((2, 3), "u1"), "t": 0.5})
    True
    >>> with channel.slot() as slot:  # written in place, without a copy
    ...     slot["image"][:] = 7
    ...     slot["t"][...] = 0.6
    >>> [int(batch["image"].sum()) for batch in (next(reader), next(reader))]
    [6, 42]
    """
    if isinstance(spec, str):
        return Channel.from_handle(spec)
    choices: list[tuple[str, Any, tuple[str, str]]] = [("mode", mode, MODES), ("full", full, FULL)]
    for name, value, allowed in choices:
        if not isinstance(value, str) or value not in allowed:
            raise OptionError("channel()", f"{name}={shown(value)} is unknown", f"pass one of {allowed}")
    limits: list[tuple[str, Any, int, int]] = [
        ("slots", slots, 2, MOST_SLOTS),
        ("readers", readers, 1, ENTRIES),
    ]
    for name, number, least, most in limits:
        if not isinstance(number, int) or not least <= number <= most:
            why = f"{name}={shown(number)} is invalid"
            raise OptionError("channel()", why, f"pass an int from {least} to {most}")
    if (spec is None) == (like is None):
        raise OptionError("channel()", "it takes either a spec or like=", 'zc.channel({"t": ((), "f8")})')
    items = _items(spec, like, max_rows, max_bytes)
    ring = Ring(slots, mode == "queue", readers)
    try:
        return Channel.create(items, ring, full == "drop")
    except SharedMemoryError as error:
        raise error.with_context(asked="channel()") from error.__cause__


def _items(spec: Any, like: Any, max_rows: int | None, max_bytes: int | None) -> Items:
    if isinstance(spec, Mapping):
        return Fields.of_spec(spec)
    if isinstance(like, Mapping):
        return Fields.like(like)
    limits: list[tuple[str, Any]] = [("max_rows", max_rows), ("max_bytes", max_bytes)]
    for name, number in limits:
        if number is not None and (not isinstance(number, int) or not 0 < number < 1 << 60):
            why = f"{name}={shown(number)} is invalid"
            raise OptionError("channel()", why, "pass an int from 1 to 2**60 - 1")
    if like is not None:
        table = convert(like, "pyarrow")
        spec = getattr(table, "schema", None)
        if max_rows is None and max_bytes is None:
            max_rows = getattr(table, "num_rows", None) or None
    if not isinstance(spec, hub().module().Schema):
        why = "it is not a dict of fields, a schema of pyarrow, or a table"
        raise OptionError("channel()", why, 'pass {"t": ((), "f8")}, table.schema, or like=table')
    if max_bytes is not None:
        return Tables(spec, max_bytes, max_rows or 0)
    if max_rows is None:
        why = "a schema does not limit the length of tables"
        raise OptionError("channel()", why, "pass max_rows= or max_bytes=")
    return Tables.of_rows(spec, max_rows)
