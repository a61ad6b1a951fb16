"""Placeholder rows of a schema, which ``explain`` converts to find the columns that a target aliases."""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.loading.batch_plan import BatchPlan
from zerocopy.loading.contents import slice_rows
from zerocopy.loading.dataset import Dataset, Stream
from zerocopy.protocols.array_interface import aligned_empty
from zerocopy.source import Array


def sample(source: Dataset | Stream, rows: int) -> Any:
    """Return at most `rows` rows: those of a source in memory or in mapped files, otherwise zeros."""
    if isinstance(source, Dataset) and source.groups and (source.in_memory or source.schema is None):
        return slice_rows(source.read(0), 0, rows)
    import pyarrow as pa

    if source.schema is None:
        return {}
    columns = [
        codes(field.type, source.dictionaries[field.name], rows)
        if field.name in source.dictionaries
        else array(field.type, rows)
        for field in source.schema
    ]
    return pa.Table.from_arrays(columns, schema=source.schema)


def array(type_: Any, rows: int) -> Any:
    """Return an Arrow array of zeros, empty text and empty lists, without nulls where possible.

    Examples
    --------
    >>> import pyarrow as pa
    >>> array(pa.int32(), 2).to_pylist(), array(pa.list_(pa.string()), 2).to_pylist()
    ([0, 0], [[], []])
    """
    import pyarrow as pa

    if isinstance(type_, pa.BaseExtensionType):
        return type_.wrap_array(array(type_.storage_type, rows))
    if pa.types.is_dictionary(type_):
        return codes(type_, array(type_.value_type, 1), rows)
    if pa.types.is_struct(type_):
        children = [array(field.type, rows) for field in type_]
        return pa.Array.from_buffers(type_, rows, [None], null_count=0, children=children)
    if pa.types.is_fixed_size_list(type_):
        children = [array(type_.value_type, rows * type_.list_size)]
        return pa.Array.from_buffers(type_, rows, [None], null_count=0, children=children)
    nulls = pa.nulls(rows, type_)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        buffers = [None, nulls.buffers()[1]]
        return pa.Array.from_buffers(
            type_, rows, buffers, null_count=0, children=[array(type_.value_type, 0)]
        )
    if pa.types.is_nested(type_) or pa.types.is_null(type_):
        return nulls
    return pa.Array.from_buffers(type_, rows, [None, *nulls.buffers()[1:]], null_count=0)


def codes(type_: Any, words: Any, rows: int) -> Any:
    """Return codes of the first word; if there are no words, of an empty or zero word."""
    import pyarrow as pa

    words = words if len(words) else array(words.type, 1)
    return pa.DictionaryArray.from_arrays(array(type_.index_type, rows), words, ordered=type_.ordered)


def aligned_array(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an uninitialised array at a multiple of 64 bytes, the alignment of the arrays of batches."""
    return aligned_empty(shape, np.dtype(dtype))


def rows(count: int, plan: BatchPlan) -> Array:
    """Return uninitialised rows of a window: uint8 of shape (count, pitch)."""
    assert plan.template is not None
    return aligned_empty((count, plan.template.pitch), np.dtype(np.uint8))
