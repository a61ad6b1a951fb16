"""``view`` and ``shares_memory``: looking at memory with no framework needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.device import same_place
from zerocopy.errors import CopyRequiredError, ZeroCopyError
from zerocopy.framework import Source
from zerocopy.protocols.producer import describe as describe_producer
from zerocopy.strided_view import StridedView

# The exact problem is NP-complete; this many steps are some 10 ms.
_MAX_WORK: Any = 100_000
_TOO_HARD = getattr(np, "exceptions", np).TooHardError  # it moved in NumPy 1.25


def describe(obj: Any) -> Source:
    """Describe an object by its framework, or by the protocols it speaks."""
    framework = registry.by_type(type(obj))
    if framework is None:
        return describe_producer(obj)
    source = framework.source(obj)
    source.framework, source.obj = framework, obj
    return source


def view(obj: Any) -> StridedView:
    """Return where an object's memory is and how it is laid out.

    Parameters
    ----------
    obj : object
        An array or tensor of any framework, or an object that speaks DLPack, the
        CUDA Array Interface, NumPy's array interface, the Arrow C data interface
        or the buffer protocol.

    Returns
    -------
    StridedView
        Aliases nothing and copies nothing: it describes. Its ``owner`` keeps the
        memory alive.

    Raises
    ------
    ZeroCopyError
        The object has no one block of memory with its values: it is no array, is
        lazily conjugated, chunked, bit-packed, sparse or sharded.

    Examples
    --------
    >>> import zerocopy as zc
    >>> zc.view(b"abc").nbytes
    3
    """
    if isinstance(obj, StridedView):
        return obj
    try:
        source = describe(obj)
    except ZeroCopyError as error:
        error.asked = error.asked.replace("convert(", "view(", 1)
        error.args = (error.asked, error.why, error.remedy)
        raise
    if source.reasons:
        reason = source.reasons[0]
        raise CopyRequiredError(f"view({source.name})", reason.why, reason.remedy)
    return source.view


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
        Whether they have at least one byte in common, be it of one column of many.
        A zero-size array has no bytes and shares none. An array whose values are
        not the bytes in its memory (see :func:`view`) shares none.

    Raises
    ------
    ZeroCopyError
        One of them is no array or table, or is a query or stream that has not been read.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> x = np.arange(4)
    >>> zc.shares_memory(x, memoryview(x)), zc.shares_memory(x[:2], x[2:])
    (True, False)
    """
    from zerocopy.tables.blocks import blocks

    if a is b:
        return _has_bytes(a)
    ours = list(blocks(a))
    return any(_overlap(one, other) for other in blocks(b) for one in ours)


def _has_bytes(obj: Any) -> bool:
    """An object shares memory with itself, unless it is known to have none."""
    from zerocopy.tables.describe import table_of

    try:
        if isinstance(obj, StridedView):
            return obj.size != 0
        table = table_of(obj)
        if table is not None and table.read is None:
            return any(column.nbytes for column in table.columns)
        return describe(obj).view.size != 0
    except ZeroCopyError:
        return True  # sparse, sharded, traced: it has no one block, but it is itself


def _overlap(a: StridedView, b: StridedView) -> bool:
    if not same_place(a.device, b.device):
        return False
    (low_a, high_a), (low_b, high_b) = a.bounds, b.bounds
    if max(low_a, low_b) >= min(high_a, high_b):
        return False
    if a.compact and b.compact:
        return True
    # The bounds overlap and there are gaps: an exact answer needs a solver. NumPy's
    # looks at addresses and strides alone, so it serves device memory as well.
    try:
        return bool(np.shares_memory(_addresses(a), _addresses(b), max_work=_MAX_WORK))
    except _TOO_HARD:
        return True  # not proved apart, so writing one could change the other


class _Addresses:
    """Addresses in the clothes of an array; nothing ever reads through it."""

    def __init__(self, view: StridedView) -> None:
        self.__array_interface__ = {
            "shape": view.shape,
            "strides": view.strides,
            "typestr": f"|V{view.dtype.itemsize}",
            "data": (view.ptr, True),
            "version": 3,
        }


def _addresses(view: StridedView) -> np.ndarray[Any, Any]:
    return np.asarray(_Addresses(view))
