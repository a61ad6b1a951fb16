"""The blocks of memory of any object: of tensors, columns, tables, and containers of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from zerocopy._view import describe
from zerocopy.device import HOST
from zerocopy.dtype import by_name
from zerocopy.errors import UnsupportedConversionError
from zerocopy.protocols.array_interface import address
from zerocopy.source import Array
from zerocopy.strided_view import StridedView
from zerocopy.tables.describe import table_of
from zerocopy.tables.result import Encoded, parts


def blocks(obj: Any) -> Iterator[StridedView]:
    """Yield where each block of an object's memory is.

    Raises
    ------
    UnsupportedConversionError
        It is a query or a stream, whose memory is there once it has been read.
    """
    if isinstance(obj, (dict, list, tuple, Encoded)):
        # A Masked is a tuple; what is in an Encoded its parts say.
        if isinstance(obj, Encoded):
            items = [leaf for _, leaf in parts(obj)]
        else:
            items = list(obj.values() if isinstance(obj, dict) else obj)
        for item in items:
            yield from blocks(item)
        return
    table = None if isinstance(obj, StridedView) else table_of(obj)
    if table is not None and isinstance(obj, np.ndarray):
        yield _bytes(obj)  # dates, text, records: whatever they stand for
        return
    if table is None:
        yield from _tensor(obj)
        return
    if table.read is not None:
        raise UnsupportedConversionError(
            f"shares_memory({table.name})", "its memory is there once it has been read", "read it first"
        )
    for column in table.columns:
        source = getattr(column, "source", None)
        if source is not None and not source.reasons and not column.reasons:
            yield source.view
        elif not column.reasons:
            device = getattr(column, "device", HOST)
            for low, high in column.extents():
                yield StridedView(low, (high - low,), (1,), by_name("uint8"), device, True, column)


def _bytes(array: Array) -> StridedView:
    shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
    return StridedView(address(array), shape, strides, by_name("uint8"), HOST, True, array)


def _tensor(obj: Any) -> Iterator[StridedView]:
    if isinstance(obj, StridedView):
        yield obj
        return
    source = describe(obj)
    if not source.reasons:
        yield source.view
