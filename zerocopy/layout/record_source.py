"""Inputs accepted as records: structured arrays, their subclasses, and buffers with a dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zerocopy.errors import LossyConversionError, OptionError, UnsupportedConversionError
from zerocopy.layout.schema import (
    AOS_TO_SOA,
    FieldLeaf,
    RecordType,
    count_records,
    parts,
    record_type,
    refuse_objects,
)
from zerocopy.protocols.array_interface import masked_elements
from zerocopy.source import Array


class RecordSource:
    """Records in host memory.

    Attributes
    ----------
    array : ndarray
        The records, as a plain structured array.
    converted : dict of str to ndarray
        Fields whose values the array's class converts when they are read: see :func:`_converted`.
    """

    def __init__(self, array: Array, converted: dict[str, Array]) -> None:
        self.array = array
        self.converted = converted

    @property
    def rows(self) -> Array:
        """The records in one dimension: a view, unless the strides do not allow one."""
        return self.array if self.array.ndim == 1 else self.array.reshape(-1)

    def select(self, fields: Sequence[str] | None) -> tuple[RecordType, list[FieldLeaf]]:
        """Return the type of the fields to read from the records, and the leaves of all results."""
        if fields is None and not self.converted:
            kind = record_type(self.array.dtype)
            return kind, kind.leaves
        names = self.array.dtype.names or ()
        selected = names if fields is None else check_fields(fields, names)
        stored = tuple(name for name in selected if name not in self.converted)
        kind = record_type(self.array.dtype, None if stored == names else stored)
        leaves = list(kind.leaves)
        for name in selected:
            if name in self.converted:
                values = self.converted[name]
                refuse_objects(name, values.dtype)
                inner = values.shape[self.array.ndim :]
                leaves.append(FieldLeaf((name,), values.dtype.newbyteorder("="), inner, 0, ()))
        places = {name: place for place, name in enumerate(selected)}
        leaves.sort(key=lambda leaf: places[leaf.path[0]])
        return kind, leaves


def has_table(obj: Any) -> bool:
    """Whether an object exports Arrow data: a table or one of its columns."""
    return hasattr(type(obj), "__arrow_c_stream__") or hasattr(type(obj), "__arrow_c_array__")


def check_fields(fields: Sequence[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the requested fields without repetitions; raise if a name is not a field."""
    if isinstance(fields, str):
        why = f"fields must be a list of names, not {fields!r}"
        raise OptionError(AOS_TO_SOA, why, f"pass fields=[{fields!r}]")
    fields, known_names = tuple(fields), {*names}
    for name in fields:
        if not isinstance(name, str) or name not in known_names:
            from difflib import get_close_matches

            same = [known for known in names if known.lower() == str(name).lower()]
            near = same or get_close_matches(str(name), names, 3, 0.5)
            why = f"the records have no field {name!r}; the fields are {', '.join(map(repr, names[:20]))}"
            remedy = f"did you mean {' or '.join(map(repr, near))}?" if near else "select some of these"
            raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="unknown-name")
    return tuple(dict.fromkeys(fields))


_NONE_CONVERTED: dict[str, Array] = {}


def record_source(records: Any, dtype: Any = None, fields: Sequence[str] | None = None) -> RecordSource:
    """Return an object's records; raise if it has none, or masked ones.

    Only the selected fields are examined for converted values.
    """
    if type(records) is np.ndarray and dtype is None and records.dtype.names is not None:
        return RecordSource(records, _NONE_CONVERTED)
    if masked_elements(records):
        why = "some values are masked, and columns have no masks"
        remedy = "replace masked values first: records.filled()"
        raise LossyConversionError(AOS_TO_SOA, why, remedy, code="masked")
    if isinstance(records, np.ma.MaskedArray):
        records = records.data
    array = _array(records, dtype)
    plain = array.view(np.ndarray)
    return RecordSource(plain, _converted(array, plain, fields))


def _array(records: Any, dtype: Any) -> Array:
    if dtype is not None:
        return _typed(records, np.dtype(dtype))
    if isinstance(records, np.ndarray) and records.dtype.names is not None:
        return records
    if isinstance(records, np.void) and records.dtype.names is not None:
        return np.asarray(records)
    if has_table(records):
        why = f"a {type(records).__name__} has separate columns already"
        remedy = 'zc.convert(x, to="numpy") returns them as arrays'
        raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="not-an-array")
    name = (
        f"an array of {records.dtype}" if isinstance(records, np.ndarray) else f"a {type(records).__name__}"
    )
    why = f"{name} has no fields"
    remedy = "pass a structured array, numpy.array(rows, dtype=[('x', 'f4'), ...]), or a buffer with dtype="
    raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="no-fields")


def _typed(records: Any, dtype: np.dtype[Any]) -> Array:
    if dtype.names is None:
        why = f"dtype={dtype} has no fields"
        remedy = "pass a structured dtype: dtype=[('x', 'f4'), ('y', 'f4')]"
        raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="no-fields")
    flat = _bytes(records, dtype)
    if not flat.flags.c_contiguous:
        why = "the buffer is not contiguous, so NumPy cannot view it as another type"
        raise UnsupportedConversionError(AOS_TO_SOA, why, "numpy.ascontiguousarray(x)", code="not-contiguous")
    if dtype.hasobject or flat.dtype.hasobject:
        why = "Python objects cannot be read from a buffer"
        remedy = "leave their fields out of dtype"
        raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="python-objects")
    count_records(flat.nbytes, dtype.itemsize)
    return flat.reshape(-1).view(np.uint8).view(dtype)


def _bytes(records: Any, dtype: np.dtype[Any]) -> Array:
    """Return an array over memory that has no record type itself."""
    if isinstance(records, np.ndarray):
        if records.dtype != dtype and (records.dtype.itemsize != 1 or records.dtype.names is not None):
            why = f"the array has the dtype {records.dtype} already, and dtype= is for buffers without one"
            remedy = "leave dtype= out, or pass the bytes: x.view(numpy.uint8)"
            raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="option-value")
        return records
    try:
        return np.frombuffer(records, np.uint8)
    except (TypeError, BufferError, ValueError) as error:
        why = f"a {type(records).__name__} is not a contiguous buffer: {error}"
        remedy = (
            "pass bytes, a memoryview, an mmap or an array of uint8; numpy.array(rows, dtype) makes records "
            "from a list, numpy.memmap(path, dtype) from a file"
        )
        raise UnsupportedConversionError(AOS_TO_SOA, why, remedy, code="not-an-array") from error


def _converted(array: Array, plain: Array, fields: Sequence[str] | None) -> dict[str, Array]:
    """Return the fields whose values differ from those stored in the records.

    ``astropy.io.fits.FITS_rec`` converts scaled numbers, unsigned ones and logicals: the file
    stores ``a + b * x``, signed integers and the letters T and F. Text, which it decodes,
    is returned as the stored bytes, which have the records' dtype.
    """
    converted: dict[str, Array] = {}
    if type(array) in (np.ndarray, np.recarray, np.memmap):
        return converted
    for name, part, _ in parts(plain.dtype):
        base, _ = part.subdtype or (part, ())
        if base.names is not None or (fields is not None and name not in fields):
            continue
        stored, values = plain[name], np.asarray(array[name])
        if values.dtype.kind == "U" and stored.dtype.kind == "S":
            continue
        if values.dtype != stored.dtype or values.shape != stored.shape or not _same_memory(values, stored):
            converted[name] = values
    return converted


def _same_memory(a: Array, b: Array) -> bool:
    pointers = [array.__array_interface__["data"][0] for array in (a, b)]
    return a.size == 0 or (pointers[0] == pointers[1] and a.strides == b.strides)
