"""Records to columns: the public ``aos_to_soa``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from zerocopy._native import core
from zerocopy.errors.tracebacks import public
from zerocopy.layout import on_device, outputs
from zerocopy.layout.outputs import allocate_columns
from zerocopy.layout.record_source import RecordSource, record_source
from zerocopy.layout.rows import to_columns
from zerocopy.layout.schema import (
    AOS_TO_SOA,
    LAYOUTS,
    FieldLeaf,
    check_options,
    copy_required,
    keep_layout,
    refuse_stream,
    view_of,
)
from zerocopy.protocols.array_interface import misalignment
from zerocopy.source import Array


@public
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
    """Return the fields of records as separate columns: AoS to SoA.

    The records are read once, in tiles that fit the first-level cache, and columns are written one
    cache line at a time, on all cores, without the GIL. Without the compiled core, Numba
    (``pip install numba``) or else NumPy does the same more slowly.

    Parameters
    ----------
    records : numpy.ndarray or buffer
        Structured, of any shape and strides: recarrays, memmaps and the tables of
        ``astropy.io.fits`` too. Packed or aligned, of either byte order, nested, with
        sub-arrays, overlapping fields or titles. With `dtype`, any contiguous buffer: bytes, an
        ``mmap``, an array of uint8, or one in the memory of a CUDA device.
    fields : sequence of str, optional
        The top-level fields to convert, in the order of the result; no others are read. None: all.
    out : mapping of str to array, or array of shape (k, n), optional
        Memory for the result: arrays of the shapes and types that are returned otherwise, which
        overlap neither `records` nor each other. Contiguous arrays at multiples of 64 bytes are
        fastest. A matrix is for `n` records of `k` fields of one type; its rows become the columns.
    copy : bool, optional
        False: the columns are strided views of the records, or CopyRequiredError is raised.
        True: the result never aliases the records. None: it aliases them only where a record is a
        single field, so that the records are already a contiguous, aligned column.
    threads : int, optional
        Maximum number of threads. None: one for each core that this process may use.
    dtype : numpy.dtype, optional
        The type of the records, for a buffer that has none.
    stream : int or stream object, optional
        For records on a CUDA device: an int as DLPack numbers streams, an object with
        ``__cuda_stream__``, or a Numba stream.

    Returns
    -------
    dict of str to numpy.ndarray
        One column per field, in order: contiguous, at a multiple of 64 bytes, in native byte
        order. A column's shape is that of `records`, followed by that of the field if it is a
        sub-array. A nested record is a nested dict. All columns share one allocation; those of
        records of one type are the rows of one matrix, so that ``convert(columns, "torch",
        layout="matrix")`` does not copy them. With `out`, its arrays; for records on a
        CUDA device, Numba's device arrays.

    Raises
    ------
    UnsupportedConversionError
        The input has no records, no such field, or Python objects; or `out` does not fit.
    CopyRequiredError
        With ``copy=False``: a field does not have native byte order.
    LossyConversionError
        Values are masked.
    ValueError
        `threads` or `copy` has a value that is not allowed.

    Notes
    -----
    If an array class converts a field's values when they are read, as ``FITS_rec`` does with scaled
    columns, the column has the converted values.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> rows = np.array([(1, (2.0, 3.0)), (4, (5.0, 6.0))], [("id", ">i4"), ("at", "f8", (2,))])
    >>> columns = zc.aos_to_soa(rows)
    >>> columns["id"], columns["at"].shape
    (array([1, 4], dtype=int32), (2, 2))
    """
    is_plain = fields is None and out is None and copy is None and threads is None
    if core is not None and is_plain and dtype is None and stream is None:
        split: dict[str, Any] | None = core.split_records(records, LAYOUTS)
        if split is not None:
            return split
    check_options(AOS_TO_SOA, threads, copy)
    if type(records) is not np.ndarray and on_device.is_on_device(records):
        return nested(
            *on_device.aos_to_soa(records, fields=fields, out=out, copy=copy, dtype=dtype, stream=stream)
        )
    refuse_stream(AOS_TO_SOA, stream)
    if fields is not None and not isinstance(fields, str):
        fields = tuple(fields)
    source = record_source(records, dtype, fields)
    kind, leaves = source.select(fields)
    if fields is None and not source.converted:
        keep_layout(source.array.dtype, kind.prepared)
    if copy is False:
        return nested(leaves, [_view(source, leaf, out) for leaf in leaves])
    shape = source.array.shape
    if out is not None:
        columns = outputs.out_columns(out, leaves, shape, source.array)
    elif copy is None and _is_column(source, leaves):
        return nested(leaves, [_view(source, leaf, out) for leaf in leaves])
    else:
        columns = allocate_columns(leaves, shape)
    stored = columns
    if source.converted or len(shape) != 1:
        stored = []
        for leaf, column in zip(leaves, columns, strict=True):
            if leaf.path[0] in source.converted:
                column[...] = source.converted[leaf.path[0]]
            else:
                stored.append(column if len(shape) == 1 else column.reshape(source.array.size, *leaf.shape))
    to_columns(source.rows, kind, stored, threads)
    return nested(leaves, columns)


def nested(leaves: Sequence[FieldLeaf], columns: Sequence[Any]) -> dict[str, Any]:
    """Return columns by the names of their leaves, those of nested records in nested dicts."""
    result: dict[str, Any] = {}
    for leaf, column in zip(leaves, columns, strict=True):
        inner = result
        for name in leaf.path[:-1]:
            inner = inner.setdefault(name, {})
        inner[leaf.path[-1]] = column
    return result


def _is_column(source: RecordSource, leaves: Sequence[FieldLeaf]) -> bool:
    """Whether a record is a single field, so that the records are its column."""
    array = source.array
    return (
        len(leaves) == 1
        and not source.converted
        and leaves[0].swap == 0
        and leaves[0].pieces == ((0, array.itemsize),)
        and array.flags.c_contiguous
        and misalignment(array) == 0
    )


def _view(source: RecordSource, leaf: FieldLeaf, out: Any) -> Array:
    if out is not None:
        raise copy_required(AOS_TO_SOA, "out= requests a copy", code="option-value")
    if leaf.path[0] in source.converted:
        why = f"the array's class converts the values of field {leaf.name!r}"
        raise copy_required(AOS_TO_SOA, why, code="exporter-copies")
    if leaf.swap:
        raise copy_required(AOS_TO_SOA, f"field {leaf.name!r} is not in native byte order", code="byte-order")
    return view_of(source.array, leaf)
