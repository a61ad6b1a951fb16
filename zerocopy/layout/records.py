"""Structured arrays to columns and back: AoS <-> SoA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from zerocopy.errors import LossyConversionError, UnsupportedConversionError
from zerocopy.layout.blocks import blocks
from zerocopy.protocols.array_interface import aligned_empty

Array = np.ndarray[Any, Any]


def aos_to_soa(records: Array) -> dict[str, Any]:
    """Return the fields of a structured array as columns of their own.

    Parameters
    ----------
    records : numpy.ndarray
        Structured, of any shape; a recarray too. Padding, overlapping fields, titles and
        either byte order are all taken.

    Returns
    -------
    dict of str to numpy.ndarray
        A column a field, in their order: contiguous, at a multiple of 64 bytes, in native
        byte order, and never an alias. A column's shape is that of `records` and after it
        that of the field, if it is a sub-array. A nested record is a dict again.

    Raises
    ------
    UnsupportedConversionError
        It is not structured, or a field holds Python objects.

    Examples
    --------
    >>> rows = np.array([(1, (2.0, 3.0)), (4, (5.0, 6.0))], [("id", ">i4"), ("at", "f8", (2,))])
    >>> columns = aos_to_soa(rows)
    >>> columns["id"], columns["at"].shape
    (array([1, 4], dtype=int32), (2, 2))
    """
    if not isinstance(records, np.ndarray) or records.dtype.names is None:
        raise UnsupportedConversionError(
            "aos_to_soa(records)", "it is no structured array", "pass an ndarray whose dtype has fields"
        )
    records = records.view(np.ndarray)
    columns: dict[str, Any] = {}
    pairs = list(_apart(records, columns, ""))
    if records.ndim:
        for rows in blocks(len(records), _row_bytes(records)):
            for column, field in pairs:
                column[rows] = field[rows]
    else:
        for column, field in pairs:
            column[...] = field
    return columns


def _apart(records: Array, columns: dict[str, Any], path: str) -> Iterator[tuple[Array, Array]]:
    """Fill `columns` with memory for each field; yield it with the field's view."""
    for name in records.dtype.names or ():
        field, where = records[name], f"{path}{name}"
        if field.dtype.names is not None:
            columns[name] = {}
            yield from _apart(field, columns[name], f"{where}.")
            continue
        if field.dtype.hasobject:
            raise UnsupportedConversionError(
                "aos_to_soa(records)",
                f"field {where!r} holds Python objects",
                "leave it out: records[['a', 'b']] picks fields",
            )
        columns[name] = _fresh(field.shape, field.dtype.newbyteorder("="))
        yield columns[name], field


def soa_to_aos(columns: Mapping[str, Any], dtype: Any = None) -> Array:
    """Return columns as the fields of a structured array.

    Parameters
    ----------
    columns : mapping of str to array or mapping
        As :func:`aos_to_soa` returns them: the first dimensions, of one length, are the
        rows; a mapping is a nested record.
    dtype : dtype, optional
        The records' type, with fields of the same names. None: the columns' types one
        after the other, without padding.

    Returns
    -------
    numpy.ndarray
        One-dimensional, at a multiple of 64 bytes, and never an alias.

    Raises
    ------
    UnsupportedConversionError
        The columns differ in length, or their names are not the fields'.
    LossyConversionError
        A field's type does not hold its column's values.

    Examples
    --------
    >>> soa_to_aos({"id": np.array([1, 2]), "x": np.array([0.5, 1.5])})
    array([(1, 0.5), (2, 1.5)], dtype=[('id', '<i8'), ('x', '<f8')])
    """
    given = _arrays(columns)
    made = dtype_of(given) if dtype is None else np.dtype(dtype)
    lengths = {len(array) for array in _leaves(given)}
    if len(lengths) > 1:
        raise UnsupportedConversionError(
            "soa_to_aos(columns)", f"they differ in length: {sorted(lengths)}", "records have one length"
        )
    records = _fresh((lengths.pop() if lengths else 0,), made)
    if _padded(made):
        records.view(np.uint8)[...] = 0  # or what other arrays have left there would travel along
    pairs = list(_together(records, given, ""))
    for rows in blocks(len(records), _row_bytes(records)):
        for field, column in pairs:
            field[rows] = column[rows]
    return records


def dtype_of(columns: Mapping[str, Any]) -> np.dtype[Any]:
    """Return the type of records that hold columns: their own types, without padding."""
    if not columns:
        return np.dtype([])
    formats: list[Any] = [
        dtype_of(column) if isinstance(column, Mapping) else (column.dtype, column.shape[1:])
        for column in columns.values()
    ]
    return np.dtype({"names": list(columns), "formats": formats})


def _arrays(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _arrays(column) if isinstance(column, Mapping) else np.asarray(column)
        for name, column in columns.items()
    }


def _leaves(columns: Mapping[str, Any]) -> Iterator[Array]:
    for column in columns.values():
        if isinstance(column, Mapping):
            yield from _leaves(column)
        else:
            yield column


def _together(records: Array, columns: Mapping[str, Any], path: str) -> Iterator[tuple[Array, Array]]:
    """Yield each field's view with the column that goes there."""
    names = records.dtype.names or ()
    if set(names) != set(columns):
        raise UnsupportedConversionError(
            "soa_to_aos(columns)",
            f"the fields {path or 'of the records'} are {list(names)}, the columns {list(columns)}",
            "name the fields as the columns",
        )
    for name, column in columns.items():
        field = records[name]
        if isinstance(column, Mapping):
            yield from _together(field, column, f"{path}{name}.")
            continue
        if field.shape != column.shape:
            raise UnsupportedConversionError(
                "soa_to_aos(columns)",
                f"field {path}{name} has the shape {field.shape}, its column {column.shape}",
                "give the field the shape of a row of its column",
            )
        if not np.can_cast(column.dtype, field.dtype, "safe"):
            raise LossyConversionError(
                "soa_to_aos(columns)",
                f"field {path}{name} is {field.dtype}, which does not hold {column.dtype}",
                "cast the column first: column.astype(...)",
            )
        yield field, column


def _fresh(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    # Types without bytes (no fields, S0) make no view of bytes.
    plain = dtype.itemsize and not dtype.hasobject
    return aligned_empty(shape, dtype) if plain else np.empty(shape, dtype)


def type_of(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return the type of a field, sub-arrays included."""
    fields: Any = dtype.fields
    found: np.dtype[Any] = fields[name][0]
    return found


def _padded(dtype: np.dtype[Any]) -> bool:
    """Whether records have bytes that belong to no field."""
    if dtype.subdtype is not None:
        return _padded(dtype.subdtype[0])
    if dtype.names is None:
        return False
    parts = [type_of(dtype, name) for name in dtype.names]
    return sum(part.itemsize for part in parts) < dtype.itemsize or any(map(_padded, parts))


def _row_bytes(records: Array) -> int:
    rows = len(records)
    return records.nbytes // rows if rows else 1
