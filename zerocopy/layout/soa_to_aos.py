"""Columns to records: ``soa_to_aos`` for arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

from zerocopy.errors import Fix, LossyConversionError, UnsupportedConversionError
from zerocopy.layout import on_device, outputs
from zerocopy.layout.fixed_text import fixed_text, holds_text
from zerocopy.layout.record_source import has_table
from zerocopy.layout.rows import to_rows
from zerocopy.layout.schema import (
    SOA_TO_AOS,
    FieldLeaf,
    RecordType,
    check_options,
    copy_required,
    dtype_of,
    keep_layout,
    record_type,
    refuse_stream,
    view_of,
)
from zerocopy.protocols.array_interface import address, aligned_empty, masked_elements
from zerocopy.protocols.exporter_errors import is_error
from zerocopy.source import Array

_CONVERT = 'zc.convert(x, to="numpy", layout="records") converts tables and dicts of their columns'


def soa_to_aos(
    columns: Mapping[str, Any],
    dtype: Any = None,
    *,
    out: Array | None = None,
    copy: bool | None = None,
    threads: int | None = None,
    stream: Any = None,
) -> Array:
    """Return arrays as the fields of records, as the public function does; tables are refused.

    Records are assembled in the first-level cache and written one cache line at a time.
    """
    check_options(SOA_TO_AOS, threads, copy)
    if _on_device(columns):
        on_gpu: Array = on_device.soa_to_aos(columns, dtype, out=out, copy=copy, stream=stream)
        return on_gpu
    refuse_stream(SOA_TO_AOS, stream)
    arrays = _arrays(columns)
    if dtype is None and isinstance(out, np.ndarray) and out.dtype.names is not None:
        dtype = out.dtype
    # Kept next to `kind`, whose dtype may be another, equal one: record_type caches by equality,
    # and numpy.record's dtypes are equal to plain ones.
    result_dtype = _structured(dtype_of(arrays) if dtype is None else dtype)
    kind = _record_type(result_dtype)
    keep_layout(result_dtype, kind.prepared)
    if dtype is None and all(_is_plain(column) for column in arrays.values()):
        parts = chain.from_iterable((name, column.dtype) for name, column in arrays.items())
        keep_layout(tuple(parts), result_dtype)
    sources, length = _matched(arrays, kind)
    if out is None and copy is not True:
        view = _existing_records(sources, kind, result_dtype)
        if view is not None:
            return view
    if copy is False and out is not None:
        raise copy_required(SOA_TO_AOS, "out= requests a copy", code="option-value")
    if copy is False and length and result_dtype.itemsize:
        why = "the columns are not the fields of existing records"
        raise copy_required(SOA_TO_AOS, why, code="separate-memory")
    if out is None:
        empty = aligned_empty if result_dtype.itemsize else np.empty
        records: Array = empty((length,), result_dtype)
    else:
        records, asked = out, "soa_to_aos(columns, out=out)"
        outputs.check_fits("out", out, result_dtype, (length,), asked)
        outputs.refuse_overlap(asked, out, sources)
    to_rows(sources, kind, records, threads)
    return records


def _is_plain(column: Any) -> bool:
    """Whether the core's ``join_columns`` accepts a column without the type of the records."""
    return type(column) is np.ndarray and column.ndim == 1 and column.dtype.metadata is None


def _on_device(columns: Any) -> bool:
    if type(columns) is np.ndarray:
        return False
    if type(columns) is dict or isinstance(columns, Mapping):
        return any(_on_device(column) for column in columns.values())
    return on_device.is_on_device(columns)


def _structured(dtype: Any) -> np.dtype[Any]:
    result: np.dtype[Any] = np.dtype(dtype)
    if result.names is None:
        why = f"dtype={result} has no fields"
        remedy = "pass a structured dtype: dtype=[('x', 'f4'), ('y', 'f4')]"
        raise UnsupportedConversionError(SOA_TO_AOS, why, remedy, code="no-fields")
    return result


def _record_type(dtype: np.dtype[Any]) -> RecordType:
    try:
        return record_type(dtype)
    except UnsupportedConversionError as error:
        error.with_context(asked=SOA_TO_AOS, remedy="leave the column out")
        raise


def _arrays(columns: object) -> dict[str, Any]:
    if not isinstance(columns, Mapping):
        name = type(columns).__name__
        if has_table(columns):
            raise UnsupportedConversionError(
                SOA_TO_AOS, f"a {name} is a table, not a mapping of names to columns", _CONVERT, code="nulls"
            )
        why = f"a {name} is not a mapping of names to columns"
        raise UnsupportedConversionError(SOA_TO_AOS, why, "pass a dict of arrays", code="not-a-mapping")
    return {
        name: column
        if type(column) is np.ndarray  # the common case, and faster than a check against an ABC
        else _arrays(column)
        if isinstance(column, Mapping)
        else _array(str(name), column)
        for name, column in columns.items()
    }


def _array(name: str, column: Any) -> Array:
    if masked_elements(column):
        why = f"values of column {name!r} are masked, and records have no masks"
        remedy = "replace masked values first: column.filled()"
        raise LossyConversionError(SOA_TO_AOS, why, remedy, code="masked")
    if has_table(column):
        # NumPy would convert integers with nulls to floats, and drop time zones.
        why = (
            f"column {name!r} is a {type(column).__module__.partition('.')[0]} {type(column).__name__}, "
            "which may have nulls or types that records do not have"
        )
        raise UnsupportedConversionError(SOA_TO_AOS, why, _CONVERT, code="nulls")
    try:
        return np.asarray(column)
    except MemoryError:
        raise
    except Exception as error:
        if not is_error(error):
            raise
        why = f"NumPy cannot convert column {name!r} to an array: {type(error).__name__}: {error}"
        raise UnsupportedConversionError(SOA_TO_AOS, why, _CONVERT, code="not-an-array") from error


def _matched(columns: dict[str, Any], kind: RecordType) -> tuple[list[Array], int]:
    """Return the columns in the order of the leaves, cast to their types, and the number of rows."""
    leaves = {leaf.path: leaf for leaf in kind.leaves}
    flat = dict(_flat(columns, ()))
    if set(flat) != set(leaves):
        why = (
            f"the fields are {sorted('.'.join(p) for p in leaves)}, "
            f"the columns {sorted('.'.join(map(str, p)) for p in flat)}"
        )
        remedy = "give fields and columns the same names"
        raise UnsupportedConversionError(SOA_TO_AOS, why, remedy, code="unknown-name")
    scalars = [".".join(path) for path, column in flat.items() if not column.ndim]
    if scalars:
        why = f"{scalars[0]!r} is a scalar, not a column"
        raise UnsupportedConversionError(
            SOA_TO_AOS, why, "repeat it: numpy.full(rows, value)", code="shape-mismatch"
        )
    lengths = {path: len(column) for path, column in flat.items()}
    if len(set(lengths.values())) > 1:
        listing = ", ".join(f"{'.'.join(path)!r} has {length}" for path, length in lengths.items())
        why = f"the columns differ in length: {listing}"
        raise UnsupportedConversionError(
            SOA_TO_AOS, why, "pass columns of one length", code="different-lengths"
        )
    return [_cast(flat[leaf.path], leaf) for leaf in kind.leaves], max(lengths.values(), default=0)


def _flat(columns: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Array]]:
    for name, column in columns.items():
        if type(column) is dict:
            yield from _flat(column, (*path, name))
        else:
            yield (*path, name), column


def check_types(columns: np.dtype[Any], records: np.dtype[Any]) -> None:
    """Refuse a type of records that cannot hold columns, before they are read; `columns` has their types."""
    wanted = {leaf.path: leaf for leaf in _record_type(records).leaves}
    for leaf in _record_type(columns).leaves:
        if leaf.path in wanted:
            _check_type(leaf.dtype, leaf.shape, wanted[leaf.path])


def _check_type(dtype: np.dtype[Any], shape: tuple[int, ...], leaf: FieldLeaf) -> None:
    if shape != leaf.shape:
        why = f"field {leaf.name!r} has the shape {leaf.shape}, a row of its column {shape}"
        remedy = "give the field the shape of a row of its column"
        raise UnsupportedConversionError(SOA_TO_AOS, why, remedy, code="shape-mismatch")
    # NumPy takes S0 and U0 for text of any length.
    is_empty = leaf.dtype.kind in "SU" and not leaf.dtype.itemsize
    if not holds_text(dtype, leaf.dtype) and (is_empty or not np.can_cast(dtype, leaf.dtype, "safe")):
        why = f"field {leaf.name!r} is {leaf.dtype}, which cannot hold {dtype}"
        raise LossyConversionError(SOA_TO_AOS, why, code="lossy-cast", fixes=_casts(leaf))


def _cast(column: Array, leaf: FieldLeaf) -> Array:
    """Return a column in its field's type, in native byte order."""
    _check_type(column.dtype, column.shape[1:], leaf)
    if column.dtype == leaf.dtype:
        return column
    if holds_text(column.dtype, leaf.dtype):
        try:
            values = fixed_text(column.reshape(-1).tolist(), leaf.dtype, f"column {leaf.name!r}")
        except LossyConversionError as error:
            raise error.with_context(asked=SOA_TO_AOS) from error.__cause__
        return values.reshape(column.shape)
    try:
        cast = column.astype(leaf.dtype)
    except OverflowError as error:  # dates, which NumPy wraps around before 2.5
        raise _lossy(column, leaf) from error
    if not _values_kept(column, cast):
        raise _lossy(column, leaf)
    return cast


def _lossy(column: Array, leaf: FieldLeaf) -> LossyConversionError:
    return LossyConversionError(
        SOA_TO_AOS,
        f"field {leaf.name!r} is {leaf.dtype}, which cannot hold all values of its {column.dtype} column",
        "give the field the column's type",
        code="lossy-cast",
    )


def _casts(leaf: FieldLeaf) -> list[Fix]:
    """Return the fix that casts a column, and checks its values, if the field has numbers."""
    if leaf.dtype.kind not in "biufc" or leaf.dtype.char in "gG":
        return []
    column = "x" + "".join(f"[{name!r}]" for name in leaf.path)
    code = f'zc.convert({column}, "numpy", dtype="{leaf.dtype.name}")'
    return [Fix(code, "casts the column, and checks its values", alone=True)]


def _values_kept(column: Array, cast: Array) -> bool:
    """Whether a safe cast (NumPy's term) kept all values: casts to floats and of dates can change them."""
    if not column.size:
        return True
    if column.dtype.kind in "iu" and cast.dtype.kind in "fc":
        limit = 2 ** (np.finfo(cast.dtype).nmant + 1)  # floats beyond it skip integers
        return bool(-limit <= int(column.min()) and int(column.max()) <= limit)
    if column.dtype.kind in "mM":  # nanoseconds cover 1678 to 2262, and wrap around outside
        return bool((cast.astype(column.dtype).view(np.int64) == column.view(np.int64)).all())
    return True


def _existing_records(columns: list[Array], kind: RecordType, dtype: np.dtype[Any]) -> Array | None:
    """Return the records whose fields the columns are, or None.

    All bytes of the records, padding included, must be in the memory of one array.
    """
    if not columns or not columns[0].size or columns[0].strides[0] < kind.dtype.itemsize:
        return None  # usually separate columns
    if any(leaf.swap or not leaf.width for leaf in kind.leaves):
        return None
    root = _root(columns[0])
    if any(_root(column) is not root for column in columns):
        return None
    if root.dtype.hasobject or not root.flags.c_contiguous:
        return None  # NumPy does not view memory with objects as another type
    first, offset = columns[0], kind.leaves[0].pieces[0][0]
    start, stride = address(first) - offset - address(root), first.strides[0]
    end = start + (len(first) - 1) * stride + kind.dtype.itemsize
    if start < 0 or end > root.nbytes:
        return None
    memory = root.view(np.ndarray).reshape(-1).view(np.uint8)
    rows: Array = np.ndarray((len(first),), dtype, memory, start, (stride,))
    for column, leaf in zip(columns, kind.leaves, strict=True):
        field = view_of(rows, leaf)
        if address(field) != address(column) or field.strides != column.strides:
            return None
    if not all(column.flags.writeable for column in columns):
        rows.flags.writeable = False
    return rows


def _root(array: Array) -> Array:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
