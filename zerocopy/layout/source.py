"""What is taken for records: structured arrays, their subclasses, buffers with a type beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from zerocopy.errors import LossyConversionError, UnsupportedConversionError
from zerocopy.layout.rows import RecordType, record_type
from zerocopy.layout.schema import ASKED, Leaf, parts, refuse_objects

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Source:
    """Records in host memory.

    Attributes
    ----------
    array : ndarray
        The records as they lie: a plain structured array.
    shown : dict of str to ndarray
        Fields that the array's class shows as something else than what lies there.
    """

    array: Array
    shown: dict[str, Array]

    @property
    def rows(self) -> Array:
        """The records in one dimension: in place, unless steps between dimensions differ."""
        return self.array if self.array.ndim == 1 else self.array.reshape(-1)

    def kind(self, fields: Sequence[str] | None) -> tuple[RecordType, list[Leaf]]:
        """Return the type of what is taken from the records, and all leaves that are wanted.

        Raises
        ------
        UnsupportedConversionError
            There is no such field, or one holds Python objects.
        """
        if fields is None and not self.shown:
            whole = record_type(self.array.dtype)
            return whole, whole.leaves
        names = self.array.dtype.names or ()
        wanted = names if fields is None else known(fields, names)
        lying = tuple(name for name in wanted if name not in self.shown)
        kind = record_type(self.array.dtype, None if lying == names else lying)
        leaves = list(kind.leaves)
        for name in wanted:
            if name in self.shown:
                shown = self.shown[name]
                refuse_objects(name, shown.dtype)
                inner = shown.shape[self.array.ndim :]
                leaves.append(Leaf((name,), shown.dtype.newbyteorder("="), inner, 0, ()))
        leaves.sort(key=lambda leaf: wanted.index(leaf.path[0]))
        return kind, leaves


def has_table(obj: Any) -> bool:
    """Whether an object says its types by Arrow's interface: a table or a column of one."""
    return hasattr(type(obj), "__arrow_c_stream__") or hasattr(type(obj), "__arrow_c_array__")


def known(fields: Sequence[str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of fields that were asked for; raise for one that there is not."""
    if isinstance(fields, str):
        raise ValueError(f"{ASKED}: fields is a list of names, not {fields!r}")
    fields = tuple(fields)
    for name in fields:
        if name not in names:
            same = [known for known in names if known.lower() == str(name).lower()]
            near = same or get_close_matches(str(name), names, 3, 0.5)
            raise UnsupportedConversionError(
                ASKED,
                f"there is no field {name!r}; the fields are {', '.join(map(repr, names[:20]))}",
                f"did you mean {' or '.join(map(repr, near))}?" if near else "pick some of these",
            )
    return tuple(dict.fromkeys(fields))


_NOTHING: dict[str, Array] = {}


def source(records: Any, dtype: Any = None, fields: Sequence[str] | None = None) -> Source:
    """Return an object's records; of its fields, those that are wanted are looked at.

    Raises
    ------
    UnsupportedConversionError
        It holds no records, or not whole ones.
    LossyConversionError
        Some are masked.
    """
    if type(records) is np.ndarray and dtype is None and records.dtype.names is not None:
        return Source(records, _NOTHING)
    if isinstance(records, np.ma.MaskedArray):
        mask = np.ascontiguousarray(np.ma.getmaskarray(records))  # type: ignore[no-untyped-call]
        if mask.view(np.bool_).any():
            raise LossyConversionError(
                ASKED,
                "some values are masked, and columns have no masks",
                "records.filled() puts values there",
            )
        records = records.data
    array = _array(records, dtype)
    plain = array.view(np.ndarray)
    return Source(plain, _shown(array, plain, fields))


def _array(records: Any, dtype: Any) -> Array:
    if dtype is not None:
        return _typed(records, np.dtype(dtype))
    if isinstance(records, np.ndarray) and records.dtype.names is not None:
        return records
    if isinstance(records, np.void) and records.dtype.names is not None:
        return np.asarray(records)
    if has_table(records):
        raise UnsupportedConversionError(
            ASKED,
            f"it is a {type(records).__name__}, whose columns lie apart already",
            'zc.convert(x, to="numpy") gives them as arrays',
        )
    said = (
        f"an array of {records.dtype}" if isinstance(records, np.ndarray) else f"a {type(records).__name__}"
    )
    raise UnsupportedConversionError(
        ASKED,
        f"it is {said}, and has no fields",
        "pass a structured array, numpy.array(rows, dtype=[('x', 'f4'), ...]), or a buffer with dtype=",
    )


def _typed(records: Any, dtype: np.dtype[Any]) -> Array:
    """Return a buffer as records of a type."""
    if dtype.names is None:
        raise UnsupportedConversionError(
            ASKED, f"dtype={dtype} has no fields", "dtype=[('x', 'f4'), ('y', 'f4')] has"
        )
    flat = _bytes(records, dtype)
    if not flat.flags.c_contiguous:
        raise UnsupportedConversionError(
            ASKED, "it is not contiguous, so no type can be laid over it", "numpy.ascontiguousarray(x)"
        )
    if dtype.hasobject or flat.dtype.hasobject:
        raise UnsupportedConversionError(ASKED, "Python objects have no bytes to read", "leave them out")
    if not dtype.itemsize or flat.nbytes % dtype.itemsize:
        raise UnsupportedConversionError(
            ASKED,
            f"{flat.nbytes} bytes are no whole number of records of {dtype.itemsize} bytes",
            "cut what is left over off, or look at the type: align=True adds padding",
        )
    return flat.reshape(-1).view(np.uint8).view(dtype)


def _bytes(records: Any, dtype: np.dtype[Any]) -> Array:
    """Return memory that does not say what it holds."""
    if isinstance(records, np.ndarray):
        if records.dtype != dtype and (records.dtype.itemsize != 1 or records.dtype.names is not None):
            raise UnsupportedConversionError(
                ASKED,
                f"it is an array of {records.dtype} already, and dtype= is for memory that says no type",
                "leave dtype out; x.view(numpy.uint8) is the bytes alone",
            )
        return records
    try:
        return np.frombuffer(records, np.uint8)
    except (TypeError, BufferError, ValueError) as error:
        raise UnsupportedConversionError(
            ASKED,
            f"a {type(records).__name__} is no contiguous buffer: {error}",
            "pass bytes, a memoryview, an mmap or an array of uint8; numpy.array(rows, dtype) makes records "
            "of a list, numpy.memmap(path, dtype) of a file",
        ) from error


def _shown(array: Array, plain: Array, fields: Sequence[str] | None) -> dict[str, Array]:
    """Return the fields whose values are not those that lie in the records.

    ``astropy.io.fits.FITS_rec`` shows scaled numbers, unsigned ones and logicals, where the
    file has ``a + b * x``, signed integers and the letters T and F. Text it decodes: there the
    bytes are given, as the type of the records says.
    """
    found: dict[str, Array] = {}
    if type(array) in (np.ndarray, np.recarray, np.memmap):
        return found
    for name, part, _ in parts(plain.dtype):
        base, _ = part.subdtype or (part, ())
        if base.names is not None or (fields is not None and name not in fields):
            continue
        lies, shows = plain[name], np.asarray(array[name])
        if shows.dtype.kind == "U" and lies.dtype.kind == "S":
            continue
        if shows.dtype != lies.dtype or shows.shape != lies.shape or not _same(shows, lies):
            found[name] = shows
    return found


def _same(a: Array, b: Array) -> bool:
    said, given = a.__array_interface__, b.__array_interface__
    return a.size == 0 or (said["data"][0] == given["data"][0] and a.strides == b.strides)
