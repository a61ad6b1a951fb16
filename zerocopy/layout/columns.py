"""Rows to columns: the public ``aos_to_soa``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zerocopy.errors import CopyRequiredError, UnsupportedConversionError
from zerocopy.layout import arena, on_device, outputs, threads as parallel
from zerocopy.layout.rows import view_of
from zerocopy.layout.schema import ASKED, Leaf
from zerocopy.layout.source import Source, source
from zerocopy.layout.transposition import to_columns
from zerocopy.protocols.array_interface import misalignment

Array = np.ndarray[Any, Any]


def aos_to_soa(
    records: Any,
    *,
    fields: Sequence[str] | None = None,
    out: Mapping[str, Any] | Array | None = None,
    copy: bool | None = None,
    threads: int | None = None,
    dtype: Any = None,
    stream: Any = None,
) -> dict[str, Any]:
    """Return the fields of records as columns of their own: AoS to SoA.

    The records are read once, in tiles that stay in the first cache, and columns are written a
    line at a time, on all cores, without the GIL. That is Numba's work (``pip install
    'zerocopy[kernels]'``), which is imported at the first call with more than 256 KiB; smaller
    records, and those where there is no Numba, are moved by NumPy.

    Parameters
    ----------
    records : numpy.ndarray or buffer
        Structured, of any shape and strides: recarrays, memmaps and the tables of
        ``astropy.io.fits`` too. Packed or aligned, of either byte order, nested, with
        sub-arrays, overlapping fields, titles. With `dtype`, any contiguous buffer: bytes, an
        ``mmap``, an array of uint8, or one in the memory of a CUDA device.
    fields : sequence of str, optional
        The fields of the top level that are wanted, in the order in which they are; no others
        are read. None: all.
    out : mapping of str to array, or array of shape (k, n), optional
        Where to write: arrays of the shapes and types that are returned otherwise, in any
        memory that overlaps neither `records` nor each other. Contiguous ones at multiples
        of 64 bytes are the fastest. A matrix is for `n` records of `k` fields of one type,
        whose columns are its rows.
    copy : bool, optional
        False: nothing is moved, the columns are strided views of the records, or
        CopyRequiredError is raised. True: never an alias. None: an alias where a column lies
        there already, contiguous and aligned, which is where a record is one field.
    threads : int, optional
        At most so many threads. None: one for each core that this process may use.
    dtype : numpy.dtype, optional
        The type of records, for a buffer that does not say it.
    stream : int or stream object, optional
        For records on a CUDA device: an int as DLPack numbers streams, an object with
        ``__cuda_stream__``, or a Numba stream.

    Returns
    -------
    dict of str to numpy.ndarray
        A column a field, in their order: contiguous, at a multiple of 64 bytes, in native byte
        order. A column's shape is that of `records` and after it that of the field, if it is a
        sub-array. A nested record is a dict again. All columns lie in one allocation; those of
        records of one type are the rows of one matrix, so that ``convert(columns, "torch",
        layout="matrix")`` takes them as they are. With `out`, its arrays; for records on a
        CUDA device, Numba's device arrays.

    Raises
    ------
    UnsupportedConversionError
        It holds no records, no such field, or Python objects; `out` does not fit.
    CopyRequiredError
        With ``copy=False``: a field is in the other byte order.
    LossyConversionError
        Values are masked.
    ValueError
        `threads` is no number of threads, `copy` no answer.

    Notes
    -----
    Fields that a class of arrays shows otherwise than they lie, scaled columns of FITS files
    say, are given as they are shown.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> rows = np.array([(1, (2.0, 3.0)), (4, (5.0, 6.0))], [("id", ">i4"), ("at", "f8", (2,))])
    >>> columns = zc.aos_to_soa(rows)
    >>> columns["id"], columns["at"].shape
    (array([1, 4], dtype=int32), (2, 2))
    """
    parallel.check(threads, ASKED)
    if not (copy is None or copy is True or copy is False):  # 0 == False, and would be none of them
        raise ValueError(f"{ASKED}: copy is True, False or None, not {copy!r}")
    if type(records) is not np.ndarray and on_device.is_there(records):
        return nested(
            *on_device.aos_to_soa(records, fields=fields, out=out, copy=copy, dtype=dtype, stream=stream)
        )
    if stream is not None:
        raise UnsupportedConversionError(
            ASKED, "these records are in host memory, where there are no streams", "leave stream out"
        )
    if fields is not None and not isinstance(fields, str):
        fields = tuple(fields)
    given = source(records, dtype, fields)
    kind, leaves = given.kind(fields)
    if copy is False:
        return nested(leaves, [_view(given, leaf, out) for leaf in leaves])
    shape = given.array.shape
    if out is not None:
        columns = outputs.columns(out, leaves, shape, given.array)
    elif copy is None and _lies_there(given, leaves):
        return nested(leaves, [_view(given, leaf, out) for leaf in leaves])
    else:
        columns = arena.columns(leaves, shape)
    moved = columns
    if given.shown or len(shape) != 1:
        moved = []
        for leaf, column in zip(leaves, columns, strict=True):
            if leaf.path[0] in given.shown:
                column[...] = given.shown[leaf.path[0]]
            else:
                moved.append(column if len(shape) == 1 else column.reshape(given.array.size, *leaf.shape))
    to_columns(given.rows, kind, moved, threads)
    return nested(leaves, columns)


def nested(leaves: Sequence[Leaf], columns: Sequence[Any]) -> dict[str, Any]:
    """Return columns under the names of their leaves, those of a record in a dict of its own."""
    made: dict[str, Any] = {}
    for leaf, column in zip(leaves, columns, strict=True):
        inner = made
        for name in leaf.path[:-1]:
            inner = inner.setdefault(name, {})
        inner[leaf.path[-1]] = column
    return made


def _lies_there(given: Source, leaves: Sequence[Leaf]) -> bool:
    """Whether a record is one field, and so the records are its column already."""
    array = given.array
    return (
        len(leaves) == 1
        and not given.shown
        and leaves[0].swap == 0
        and leaves[0].pieces == ((0, array.itemsize),)
        and array.flags.c_contiguous
        and misalignment(array) == 0
    )


def _view(given: Source, leaf: Leaf, out: Any) -> Array:
    """Return a field where it lies."""
    why = (
        "out= is memory to copy to"
        if out is not None
        else f"field {leaf.name!r} is shown otherwise than it lies there"
        if leaf.path[0] in given.shown
        else f"field {leaf.name!r} is in the other byte order"
        if leaf.swap
        else ""
    )
    if why:
        raise CopyRequiredError("aos_to_soa(records, copy=False)", why, "leave copy=False out")
    return view_of(given.array, leaf)
