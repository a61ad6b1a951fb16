"""``view`` and ``shares_memory``: the addresses of any object; no framework is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._engine.container_types import is_container, is_plain_object, items_of
from zerocopy.describe import describe, describe_array, opened, translated_errors
from zerocopy.device import HOST
from zerocopy.dtype import by_name
from zerocopy.errors import CopyRequiredError, UnsupportedConversionError, ZeroCopyError
from zerocopy.errors.tracebacks import public
from zerocopy.protocols.array_interface import address
from zerocopy.protocols.own_dlpack import StridedView
from zerocopy.source import Array, Source, type_name
from zerocopy.strided_view import overlap

#: Codes of reasons to copy memory whose values have another form: a write changes them all the same.
_OTHER_FORM = frozenset(("byte-order", "invalid-booleans"))


@public
def view(obj: Any) -> StridedView:
    """Return the address and layout of an object's memory.

    Parameters
    ----------
    obj : object
        An array or tensor of any framework, or an object that supports DLPack, the
        CUDA Array Interface, NumPy's array interface, the Arrow C data interface
        or the buffer protocol.

    Returns
    -------
    StridedView
        A description, not an alias. Its ``owner`` keeps the memory alive.

    Raises
    ------
    ZeroCopyError
        The object is not an array, or its values are not in one block of memory: it is
        lazily conjugated, chunked, bit-packed, sparse or sharded.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.view(b"abc").nbytes
    3
    """
    if type(obj) is StridedView:
        return obj
    with translated_errors(lambda: f"view({type_name(obj)})"):
        source = describe_array(obj)
    if source.reasons:
        reason = source.reasons[0]
        raise CopyRequiredError(f"view({source.name})", reason.why, reason.remedy, code=reason.code)
    return source.view


@public
def shares_memory(a: Any, b: Any) -> bool:
    """Return whether writing one object could change the other.

    Parameters
    ----------
    a, b : object
        As for :func:`view`, of the same or of different frameworks; or tables,
        columns, and containers of any of these.

    Returns
    -------
    bool
        Whether they have at least one byte in common, in any column or leaf. Leaves of
        containers that are not arrays or tables, such as text, are skipped. The categories of
        pandas and polars belong to the type of a column, and are not compared; nor is the index of a
        pandas Series, which is immutable and not a column.
        A zero-size array shares no bytes. Neither does an array whose values are
        not the bytes in its memory (see :func:`view`), unless only their order differs.

    Raises
    ------
    ZeroCopyError
        One of them is not an array or table, or is a query or stream that has not been read.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> x = np.arange(4)
    >>> zc.shares_memory(x, memoryview(x)), zc.shares_memory(x[:2], x[2:])
    (True, False)
    """
    with translated_errors(lambda: f"shares_memory({type_name(a)}, {type_name(b)})"):
        if a is b:
            return has_bytes(a)
        blocks_of_a = list(blocks(a))
        return any(overlap(one, other) for other in blocks(b) for one in blocks_of_a)


def blocks(obj: object) -> Iterator[StridedView]:
    """Yield each block of an object's memory: of arrays, columns, tables, and containers of them.

    Raises
    ------
    UnsupportedConversionError
        The object is a query or a stream, which has no memory before it is read.
    """
    if type(obj) is StridedView:
        yield obj
        return
    items = _items(obj)
    if items is not None:
        for item in items:
            if not is_plain_object(item):  # text and numbers have no memory of their own
                yield from blocks(item)
        return
    try:
        description = describe(obj)
    except ZeroCopyError as error:
        array = opened(obj)
        if error.code == "nulls" and hasattr(type(array), "__arrow_c_stream__"):
            from zerocopy.tables.hub import hub

            # Rows that are null as a whole are refused as a table; they have memory as a column.
            yield from blocks(hub().module().chunked_array(array))
            return
        if array is not obj and is_container(array):  # the tensors of weights
            yield from blocks(array)
            return
        if type(array) is not np.ndarray:
            raise
        yield _bytes(array)  # only NumPy has its dtype or shape
        return
    if description.row_labels is not None:
        yield from blocks(description.row_labels())
    if isinstance(description, Source):
        if _is_own_memory(description):
            yield description.view
    elif isinstance(description.obj, np.ndarray):
        # Dates, text or records: columns for most targets, one array to NumPy.
        yield _bytes(description.obj)
    elif description.read is not None and not description.read_reasons:
        raise UnsupportedConversionError(
            f"shares_memory({description.name})",
            "it has memory only after it has been read",
            "read it first",
            code="unread",
        )
    else:
        for column in description.columns:
            if description.read is None or _is_in_memory(column):
                yield from _column_blocks(column)


def _items(obj: object) -> list[Any] | None:
    """Return the parts of a container or of an `Encoded` column; None for other objects."""
    if is_container(obj):
        return [value for _, value in items_of(obj)]
    framework = registry.by_type(type(obj))
    if framework is not None:
        # A column of lists is described with the elements that its own rows have, and its parts have all.
        is_compound = framework.has_hook("compound") and not (framework.tables and framework.table(obj))
        return _parts(obj) if is_compound else None
    from zerocopy.tables.result import Encoded, result_leaves

    return [leaf for _, leaf in result_leaves(obj)] if isinstance(obj, Encoded) else None


def _parts(obj: object) -> list[Any] | None:
    """Return the parts of an array of several buffers; None if it is not one, or cannot be read."""
    from zerocopy._engine.compounds import parts_of

    try:
        return parts_of(obj)
    except ZeroCopyError:
        return None  # describe() has the reason


def _is_own_memory(source: Source) -> bool:
    """Whether the view of a source describes memory of the object itself, if only in another form."""
    if not source.reasons:
        return True
    # A column of dates that it computes has no address.
    return bool(source.view.ptr) and all(reason.code in _OTHER_FORM for reason in source.reasons)


def _is_in_memory(column: object) -> bool:
    """Whether a column of an unread table is in memory already."""
    from zerocopy.tables.arrow_column import UnreadColumn
    from zerocopy.tables.column import RefusedColumn

    return not isinstance(column, (RefusedColumn, UnreadColumn))


def _column_blocks(column: Any) -> Iterator[StridedView]:
    from zerocopy.tables.column import RefusedColumn

    if column.held is not None and (column.reasons or isinstance(column, RefusedColumn)):
        yield _bytes(column.held)
        return
    source = getattr(column, "source", None)
    if source is not None and not column.reasons and _is_own_memory(source):
        yield source.view
        return
    device = getattr(column, "device", HOST)
    for low, high in column.own_extents() if column.reasons else column.extents():
        yield StridedView(low, (high - low,), (1,), by_name("uint8"), device, True, column)


def _bytes(array: Array) -> StridedView:
    shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
    return StridedView(address(array), shape, strides, by_name("uint8"), HOST, True, array)


def has_bytes(obj: object) -> bool:
    """Whether an object shares memory with itself; True unless it is known to have none."""
    if type(obj) is StridedView:
        return obj.size != 0
    try:
        with translated_errors(lambda: ""):
            items = _items(obj)
            description = describe(obj) if items is None else None
    except ZeroCopyError:
        # Records without fields have no bytes; sparse, sharded and traced arrays are not one block of memory.
        array = opened(obj)
        if array is not obj and is_container(array):
            return has_bytes(array)
        return type(array) is not np.ndarray or array.nbytes != 0
    if description is None:
        return any(has_bytes(item) for item in items or () if not is_plain_object(item))
    if isinstance(description, Source):
        return description.view.size != 0
    columns = description.columns
    return description.read is not None or any(column.length and column.nbytes for column in columns)
