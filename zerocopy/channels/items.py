"""Layout of an item in a slot: arrays at fixed places, or a table with a header of its own."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from zerocopy._engine.convert import convert
from zerocopy.describe import describe_array
from zerocopy.dtype import DType
from zerocopy.errors import LossyConversionError, OptionError, UnsupportedConversionError, ZeroCopyError
from zerocopy.formatting import printable, shown
from zerocopy.frames import from_frames, to_frames
from zerocopy.frames.arrays import array_header, ndarray_over, parse_array, parse_dtype
from zerocopy.shared.handle import SAME_BLOCK, pack_index, pack_names, unpack_index, unpack_names
from zerocopy.shared.segment import Array
from zerocopy.tables.hub import hub

#: JAX and TensorFlow alias memory at multiples of 64 bytes.
_ALIGNMENT = 64
_LENGTH = struct.Struct("<Q")
FIELDS, TABLES = 1, 2
_NUMBERS = (bool, int, float, complex)
#: Bytes of a frame's place in the index of a table.
_PLACE = 20


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class Items(Protocol):
    """The form of a channel's items.

    Attributes
    ----------
    form : int
        `FIELDS` or `TABLES`.
    header : bytes
        Describes the form in the memory of the channel.
    nbytes : int
        Bytes of a slot, a multiple of 64.
    """

    form: int
    header: bytes
    nbytes: int

    def write(self, slot: Array, batch: Any) -> None:
        """Copy a batch into the bytes of a slot."""

    def read(self, slot: Array, to: Any, options: dict[str, Any]) -> Any:
        """Return the batch of a slot in a framework."""


class Slot(dict[str, Any]):
    """The arrays of a slot that is written: ndarrays over shared memory, by the name of the field."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name in self and value is self[name]:  # slot["x"] += 1
            return
        place = f"slot[{shown(name)}]"
        why = "another array in the dict is not in the slot"
        raise UnsupportedConversionError(f"{place} = ...", why, f"write to the array: {place}[...] = value")

    def update(self, *batches: Any, **fields: Any) -> None:
        """Refuse other arrays, as ``slot[name] = ...`` does."""
        for name, value in dict(*batches, **fields).items():
            self[name] = value

    def __ior__(self, batch: Any) -> Slot:  # type: ignore[misc, override]
        self.update(batch)
        return self

    def _refuse(self, *arguments: Any) -> Any:
        why = "a slot keeps its fields and their arrays"
        raise UnsupportedConversionError("slot", why, 'write to an array: slot["name"][...] = value')

    __delitem__ = pop = popitem = clear = setdefault = _refuse

    def to(self, framework: Any) -> dict[str, Any]:
        """Return the arrays in another framework, over the same memory.

        Raises
        ------
        CopyRequiredError
            The framework cannot write to memory of others, or would copy it.
        """
        return {name: convert(array, framework, copy=False, writable=True) for name, array in self.items()}


class Fields:
    """Items that are dicts of arrays with fixed shapes and dtypes.

    Parameters
    ----------
    headers : dict of str to bytes
        The header of each field's array; see `zerocopy.frames`.
    """

    form = FIELDS

    def __init__(self, headers: dict[str, bytes]) -> None:
        self.header: bytes = pack_names(headers)
        self._layouts = {name: parse_array(header) for name, header in headers.items()}
        self._headers = headers
        self._places: dict[str, slice] = {}
        end = 0
        for name, layout in self._layouts.items():
            self._places[name] = slice(end, end + layout.nbytes)
            end = _aligned(end + layout.nbytes)
        self.nbytes: int = max(end, _ALIGNMENT)
        self._is_plain = all(layout.standard is None for layout in self._layouts.values())

    @classmethod
    def of_spec(cls, spec: Mapping[Any, Any]) -> Fields:
        """Return the form of ``{name: (shape, dtype)}``.

        Raises
        ------
        OptionError
            A name, shape or dtype is invalid.
        """
        headers = {}
        for name, field in spec.items():
            try:
                shape, of_type = field
                sizes = (shape,) if isinstance(shape, int) else tuple(map(operator.index, shape))
                if not isinstance(name, str) or min(sizes, default=0) < 0 or of_type is None:
                    raise ValueError("a name is a str, a size is 0 or more, and a dtype is needed")
                dtype, standard = _types(of_type)
                headers[name] = array_header("numpy", dtype, standard, sizes, ())
                parse_array(headers[name])
                name.encode()
            except (TypeError, ValueError, OverflowError, struct.error, ZeroCopyError) as error:
                why = f"the field {shown(name)} is {shown(field)}: {error}"
                remedy = 'pass a shape and a dtype: {"image": ((480, 640, 3), "u1")}, or like=table'
                raise OptionError("channel()", why, remedy) from error
        if not headers:
            raise OptionError("channel()", "there are no fields", 'pass {"t": ((), "f8")}, or like=batch')
        return cls(headers)

    @classmethod
    def like(cls, batch: Mapping[str, Any]) -> Fields:
        """Return the form of the arrays of a batch."""
        spec = {}
        for name, value in batch.items():
            view = describe_array(np.asarray(value) if isinstance(value, _NUMBERS) else value).view
            spec[name] = view.shape, view.dtype.name
        return cls.of_spec(spec)

    def views(self, slot: Array) -> dict[str, Array]:
        """Return the arrays in the bytes of a slot, by name."""
        return {
            name: ndarray_over(slot[place], layout.dtype, layout.shape, (), layout.nbytes)
            for (name, layout), place in zip(self._layouts.items(), self._places.values(), strict=True)
        }

    def write(self, slot: Array, batch: Any) -> None:
        has_names = isinstance(batch, Mapping)
        if not has_names or batch.keys() != self._layouts.keys():
            given = f"has the fields {shown(list(batch))}" if has_names else f"is of {type(batch)}"
            why = f"the batch {printable(given)}, and the channel has the fields {list(self._layouts)}"
            raise UnsupportedConversionError(
                "", why, "pass a dict with one array for each field", code="other-fields"
            )
        for name, layout in self._layouts.items():
            array, standard = _as_ndarray(batch[name], layout.dtype)
            if (array.dtype, standard, array.shape) != (layout.dtype, layout.standard, layout.shape):
                expected = _text(layout.dtype, layout.standard, layout.shape)
                given = _text(array.dtype, standard, array.shape)
                why = f"the array of {shown(name)} is {given}, and the field is {expected}"
                remedy = f"cast or reshape it to {expected}"
                raise UnsupportedConversionError("", why, remedy, code="other-fields")
            place = slot[self._places[name]]
            ndarray_over(place, array.dtype, layout.shape, (), layout.nbytes)[...] = array

    def read(self, slot: Array, to: Any, options: dict[str, Any]) -> Any:
        if self._is_plain:
            arrays = self.views(slot)
            return arrays if to == "numpy" and not options else convert(arrays, to, **options)
        batch = {
            name: from_frames(self._headers[name], [slot[place]], to) for name, place in self._places.items()
        }
        return convert(batch, to, **options) if options else batch


def _types(of_type: Any) -> tuple[np.dtype[Any], Any]:
    if isinstance(of_type, str):
        try:
            return parse_dtype(of_type)
        except ZeroCopyError:  # an alias of NumPy, such as "f8"
            pass
    dtype = np.dtype(of_type)
    if dtype.hasobject:
        raise ValueError("Python objects have no memory that another process could read")
    return dtype, None


def _as_ndarray(value: Any, dtype: np.dtype[Any]) -> tuple[Array, DType | None]:
    """Return an ndarray, and its type if NumPy lacks it; a Python number gets `dtype`."""
    if isinstance(value, _NUMBERS):
        value = _as_number(value, dtype)
    if type(value) is np.ndarray and value.dtype.isbuiltin == 1:  # not a type of ml_dtypes
        return value, None
    split = to_frames(value)
    layout = parse_array(split.header)
    array = ndarray_over(split.frames[0], layout.dtype, layout.shape, layout.order, layout.nbytes)
    return array, layout.standard


def _as_number(value: Any, dtype: np.dtype[Any]) -> Array:
    """Return a Python number in a dtype of its kind; a number of another kind keeps its own."""
    is_exact = isinstance(value, (bool, int))
    if dtype.kind in "iu" and is_exact:
        limits = np.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            why = f"{shown(value)} is out of the range of {dtype}"
            raise UnsupportedConversionError("", why, "pass a number that fits", code="other-fields")
        return np.asarray(value, dtype)
    if dtype.kind not in ("c" if isinstance(value, complex) else "fc"):
        return np.asarray(value)
    try:  # zerocopy.convert refuses the same numbers; it has no long double, and integers up to 64 bits
        with np.errstate(over="ignore"):
            array = np.asarray(value, dtype)
        parts = ((array.real, value.real), (array.imag, value.imag))
        is_kept = all(int(a) == b if is_exact else math.isinf(a) == math.isinf(b) for a, b in parts)
    except OverflowError:
        is_kept = False
    if not is_kept:
        why = f"{dtype} cannot hold {shown(value) if is_exact else value}" + " exactly" * is_exact
        raise LossyConversionError("", why, "pass a number that fits", code="lossy-cast")
    return array


def _text(dtype: np.dtype[Any], standard: DType | None, shape: tuple[int, ...]) -> str:
    return f"{dtype if standard is None else standard.name}{list(shape)}"


class Tables:
    """Items that are tables of one schema, each with up to some number of bytes.

    Parameters
    ----------
    schema : pyarrow.Schema
        Its metadata is not compared.
    nbytes : int
        Bytes of a slot.
    max_rows : int
        The most rows of a table; 0 without a limit.
    """

    form = TABLES

    def __init__(self, schema: Any, nbytes: int, max_rows: int = 0) -> None:
        self._schema, self._max_rows = schema, max_rows
        self.header: bytes = _LENGTH.pack(max_rows) + schema.serialize().to_pybytes()
        self.nbytes: int = _aligned(nbytes)

    @classmethod
    def of_rows(cls, schema: Any, max_rows: int) -> Tables:
        """Return the form of tables with up to `max_rows` rows.

        Raises
        ------
        OptionError
            A column has values of different lengths, so that the rows do not limit its bytes.
        """
        header = to_frames(schema.empty_table()).header
        nbytes = _aligned(_LENGTH.size + 2 * len(header) + _PLACE * (2 + 4 * len(schema)))
        types = hub().module().types
        for field in schema:
            try:
                if types.is_dictionary(field.type):
                    raise ValueError("the dictionary has any length")
                bits = field.type.bit_width
            except ValueError:
                why = f"the values of {field.name!r} ({field.type}) have different lengths"
                remedy = "pass max_bytes= in place of max_rows=: the most bytes of one table"
                raise OptionError("channel()", why, remedy) from None
            nbytes += _aligned(-(-bits * max_rows // 8)) + _aligned(-(-max_rows // 8))
        return cls(schema, nbytes, max_rows)

    def write(self, slot: Array, batch: Any) -> None:
        table = convert(batch, "pyarrow")
        is_table = isinstance(table, hub().module().Table)
        if not is_table or not table.schema.equals(self._schema):
            columns = _columns(table.schema) if is_table else type(table).__qualname__
            if columns != _columns(self._schema):
                why = f"the batch has the columns {printable(columns)}"
                remedy = f"cast it to the columns of the channel: {printable(_columns(self._schema))}"
                raise UnsupportedConversionError("", why, remedy, code="other-fields")
            table = table.cast(self._schema.with_metadata(table.schema.metadata))
        if 0 < self._max_rows < table.num_rows:
            why = f"the table has {table.num_rows:,} rows, and the channel takes {self._max_rows:,}"
            remedy = f"put parts of it, or create the channel with max_rows={table.num_rows}"
            raise UnsupportedConversionError("", why, remedy, code="other-fields")
        split = to_frames(table.combine_chunks())
        places = [(SAME_BLOCK, 0, 0)] * len(split.frames)
        end = _aligned(_LENGTH.size + len(pack_index(split.header, [], places)))
        for number, frame in enumerate(split.frames):
            places[number] = (SAME_BLOCK, end, frame.nbytes)
            end = _aligned(end + frame.nbytes)
        if end > slot.nbytes:
            why = f"the table needs {end:,} bytes, and a slot has {slot.nbytes:,}"
            remedy = f"create the channel with max_bytes={end}, or put fewer rows"
            raise UnsupportedConversionError("", why, remedy, code="other-fields")
        index = pack_index(split.header, [], places)
        slot[: _LENGTH.size + len(index)] = np.frombuffer(_LENGTH.pack(len(index)) + index, np.uint8)
        for (_, first, count), frame in zip(places, split.frames, strict=True):
            slot[first : first + count] = frame

    def read(self, slot: Array, to: Any, options: dict[str, Any]) -> Any:
        (length,) = _LENGTH.unpack_from(slot.data)
        header, _, places = unpack_index(slot[_LENGTH.size : _LENGTH.size + length].data)
        frames = [slot[first : first + count] for _, first, count in places]
        table = from_frames(header, frames, "pyarrow")
        return table if to == "pyarrow" and not options else convert(table, to, **options)


def _columns(schema: Any) -> str:
    """Return the names and types of the columns; the forms of text are one type."""
    texts = {"large_string": "string", "string_view": "string"}
    types = [texts.get(str(each.type), str(each.type)) + " not null" * (not each.nullable) for each in schema]
    return ", ".join(f"{name}: {kind}" for name, kind in zip(schema.names, types, strict=True))


def items_of(form: int, header: bytes, nbytes: int) -> Items:
    """Return the form of the items that a channel's memory describes."""
    if form == FIELDS:
        return Fields(unpack_names(header))
    if form != TABLES:
        raise ValueError("it has items of an unknown form")
    pa = hub().module()
    (max_rows,) = _LENGTH.unpack_from(header)
    return Tables(pa.ipc.read_schema(pa.py_buffer(header[_LENGTH.size :])), nbytes, max_rows)
