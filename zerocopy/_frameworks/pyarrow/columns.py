"""pyarrow's arrays as columns, and Arrow arrays over any memory, which other frameworks exchange.

Other frameworks' files call `ArrowExchange` through the registry, and do not import this file. Its functions
take the module pyarrow as `pa`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import islice
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy._frameworks import _obstacles as obstacles
from zerocopy._frameworks.pyarrow.kernels import (
    cast_views,
    contains,
    joined,
    may_lack_text,
    whole_array,
    with_decoded_lists,
    with_text,
    without_invalid_empties,
)
from zerocopy.device import HOST
from zerocopy.dtype import BOOL8, DType
from zerocopy.errors import DeviceError, Reason, UnsupportedConversionError, ZeroCopyError
from zerocopy.framework import Framework
from zerocopy.protocols import arrow_c
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.protocols.arrow_schema import Field, read_schema
from zerocopy.source import Array
from zerocopy.tables import memory, placement
from zerocopy.tables.arrow_column import FLAT, ArrowColumn, UnreadColumn
from zerocopy.tables.column import Column
from zerocopy.tables.decode import refused_by
from zerocopy.tables.tensor_column import TensorColumn


def field_of_type(of: Any) -> Field:
    """Return a type or a field as the C data interface describes it; one without children has no name."""
    kind = getattr(of, "type", of)
    # pyarrow compares types without the metadata of their children: so only types without children
    # are cached, which saves 50 us per column.
    if not kind.num_fields and not getattr(of, "metadata", None):
        try:
            return _plain_field(kind, getattr(of, "nullable", True))
        except TypeError:  # extension types written in Python are often not hashable
            pass
    return read_schema(of.__arrow_c_schema__())


@lru_cache(maxsize=4096)
def _plain_field(kind: Any, nullable: bool) -> Field:
    field = read_schema(kind.__arrow_c_schema__())
    return field if nullable else replace(field, nullable=False)


_TEXT_VIEWS = ("string_view", "binary_view")


def column_of(pa: Any, array: Any, name: str, of: Any = None) -> ArrowColumn:
    """Describe an array, chunked or not; its memory is exported when it is read."""
    if not getattr(array, "is_cpu", True):
        raise DeviceError(
            f"convert({name})",
            "the array is not in host memory",
            "copy it to the host: x.copy_to(...)",
            code="other-device",
        )
    array = checked(pa, array, name)
    field = field_of_type(of if of is not None else array.type)
    if may_lack_text(pa) and any(part.kind in _TEXT_VIEWS for part in field.walk()):
        array = with_text(pa, array)
    return _ArrayColumn(pa, array, name, field)


class _ArrayColumn(ArrowColumn):
    """A column over a pyarrow array. One object: nested functions take 1 us more, in thousands of columns."""

    def __init__(self, pa: Any, array: Any, name: str, field: Field) -> None:
        self.name, self.field, self.length, self._array = name, field, len(array), array
        self._is_chunked = isinstance(array, pa.ChunkedArray)
        self.chunk_count = array.num_chunks if self._is_chunked else 1
        self._is_flat = field.kind in FLAT and not field.extension
        if self.chunk_count > 1 and self._is_flat:
            self.is_joined = len([*islice(filter(len, array.iterchunks()), 2)]) > 1
            self._null_count = array.null_count

    def arrow(self) -> Any:
        return self._array

    @property
    def nbytes(self) -> int:
        # pyarrow 26 omits the bitmap of a struct, and counts a bitmap without nulls, which is not shared.
        if self.field.kind in memory.BARE:
            return sum(high - low for low, high in self.extents())
        return int(self._array.nbytes)

    def _read(self) -> list[arrow_c.Memory]:
        field, chunks = self.field, self._array.chunks if self._is_chunked else [self._array]
        # A type without children needs only its buffers: exporting it would take 20 us more per chunk.
        if self._is_flat:
            return [_flat_memory(field, chunk) for chunk in chunks]
        return [arrow_c.read_array(chunk) for chunk in chunks]


def _flat_memory(field: Field, chunk: Any) -> arrow_c.Memory:
    """Describe an array without children as the C data interface would."""
    places = tuple([buffer.address if buffer is not None else 0 for buffer in chunk.buffers()])
    return arrow_c.Memory(field, len(chunk), chunk.offset, chunk.null_count, places, (), None, chunk)


def checked(pa: Any, array: Any, name: str) -> Any:
    """Refuse buffers that are too small for their rows, as readers of IPC files may return them (130 ns)."""
    try:
        array.validate()
    except pa.ArrowInvalid:
        return without_invalid_empties(pa, array, name)
    return array


def allocation_of(array: Any, address: int) -> tuple[int, int] | None:
    """Return the bounds of the outermost buffer that holds an address: an IPC message, or a mapped file."""
    for buffer in array.buffers():
        if buffer is not None and buffer.address <= address < buffer.address + buffer.size:
            while (parent := buffer.parent) is not None and _holds(parent, buffer):
                buffer = parent
            return buffer.address, buffer.address + buffer.size
    return None


def _holds(parent: Any, buffer: Any) -> bool:
    low, high = parent.address, parent.address + parent.size
    return bool(low <= buffer.address and buffer.address + buffer.size <= high)


_REGISTERED = tuple(f"arrow.{name}" for name in ("bool8", "fixed_shape_tensor", "json", "opaque", "uuid"))

#: Types by pyarrow's names: those stored as views, those with offsets, and those that its IPC writer pads.
_VIEWS = ("Type_STRING_VIEW", "Type_BINARY_VIEW", "Type_LIST_VIEW", "Type_LARGE_LIST_VIEW")
_LISTS = ("Type_LIST", "Type_LARGE_LIST", "Type_MAP")
_PADDED = ("Type_SPARSE_UNION", "Type_DENSE_UNION", "Type_LIST_VIEW", "Type_LARGE_LIST_VIEW")


class ArrowExchange(Framework):
    """The methods of pyarrow's Framework that other table frameworks use."""

    def read_all(self, obj: Any) -> Any:
        """Read an object with the C data interface: a table or a column."""
        pa, opened = self.module(), None
        try:
            if not hasattr(type(obj), "__arrow_c_stream__"):
                array = _imported(pa, obj)
                # pyarrow imports an extension whose name it cannot decode as its storage.
                is_column = isinstance(obj, arrow_c.Export) and obj.field.extension
                is_table = pa.types.is_struct(array.type) and not is_column
                return pa.RecordBatch.from_struct_array(array) if is_table else array
            if isinstance(obj, pa.RecordBatchReader):
                stream = obj
            else:
                # Its type decides who imports it: an importer that refuses a stream has used it up.
                opened = obj if isinstance(obj, arrow_c.Stream) else arrow_c.Stream(obj)
                if opened.field.kind != "struct" or opened.field.extension:
                    return pa.chunked_array(opened)
                stream = pa.RecordBatchReader.from_stream(opened)
            if not any(contains(pa, field.type, _VIEWS) for field in stream.schema):
                return stream.read_all()
            # pyarrow 26 rejects imported empty slices of string views as invalid.
            return pa.Table.from_batches([batch for batch in stream if batch.num_rows], stream.schema)
        except ZeroCopyError:
            raise
        except (pa.ArrowException, OSError, RuntimeError, TypeError, ValueError) as error:
            refusal = None if opened is None else opened.refusal
            raise _unreadable(obj, error) if refusal is None else refusal from error

    def array_of_result(self, result: Any) -> tuple[Any, list[Reason]]:
        """Return the rows of a `Masked` or an `Encoded` as one array, and why parts of it are copies."""
        from zerocopy._frameworks.pyarrow.results import ResultReader

        reader = ResultReader(self.module())
        return reader.read(result), reader.reasons

    def stream_of_result(self, result: Any, requested_schema: object) -> object:
        """Return the capsule of a stream of one array, which has the rows of a `Masked`."""
        array, _ = self.array_of_result(result)
        capsule: object = self.module().chunked_array([array]).__arrow_c_stream__(requested_schema)
        return capsule

    def check_type(self, field: Field) -> None:
        """Refuse a canonical extension type with storage or metadata that pyarrow does not import."""
        for part in field.walk():
            if not part.extension.startswith("arrow."):
                continue
            pairs = tuple(sorted(part.metadata.items()))
            refusal = _refusal(self.module(), _stand_in(self.module(), part), pairs)
            if refusal:
                why = f"pyarrow does not import the type {part}: {refusal}"
                remedy = "fix the program that wrote its metadata"
                raise UnsupportedConversionError("", why, remedy, code="invalid-metadata")

    def copied(self, array: Any) -> Any:
        """Return a copy of an array, with the same chunks."""
        pa = self.module()
        chunks = [c for c in (array.chunks if isinstance(array, pa.ChunkedArray) else [array]) if len(c)]
        if not chunks:  # pyarrow cannot write an empty slice whose buffers start before it
            return pa.chunked_array([], type=array.type)
        if any(contains(pa, array.type.field(i).type, _LISTS) for i in range(array.type.num_fields)):
            # polars refuses empty slices whose offsets are not 0. IPC keeps them; concatenation resets them.
            chunks = [joined(pa, [chunk, chunk.slice(0, 0)]) for chunk in chunks]
        sink = pa.BufferOutputStream()
        schema = pa.schema([pa.field("x", array.type)])
        # Writing and reading copies every type, and only the used part of its buffers.
        with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=False)) as out:
            for chunk in chunks:
                out.write_batch(pa.record_batch([self.writable(chunk)], schema=schema))
        return pa.ipc.open_stream(sink.getvalue()).read_all().column(0)

    def cast_views(self, array: Any, kind: Any) -> Any:
        """Return an array, chunked or not, cast to `kind`, after the views of nulls are made empty."""
        return cast_views(self.module(), array, kind)

    def with_decoded_lists(self, array: Any) -> Any:
        """Return an array with decoded categories inside its fixed-size lists, at any depth."""
        return with_decoded_lists(self.module(), array)

    def without_views(self, kind: Any) -> Any:
        """Return a type in which large types replace views."""
        pa = self.module()
        if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
            return pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        if pa.types.is_dictionary(kind):
            return pa.dictionary(kind.index_type, self.without_views(kind.value_type), kind.ordered)
        return self.with_fields(kind, lambda field: field.with_type(self.without_views(field.type)))

    def decoded(self, array: Any) -> Any:
        """Return the values of an array of dictionaries, chunked or not, in a type without views."""
        pa = self.module()
        if isinstance(array, pa.ChunkedArray):
            kind = self.without_views(array.type.value_type)
            return pa.chunked_array([self.decoded(chunk) for chunk in array.chunks], kind)
        words = array.dictionary
        # pyarrow 26 cannot gather views.
        return self.cast_views(words, self.without_views(words.type)).take(array.indices)

    def whole(self, array: Any) -> Any:
        """Return an array, chunked or not, as one array."""
        return whole_array(array)

    def writable(self, data: Any) -> Any:
        """Return a table, column or array that Arrow's IPC writer can write, with the same chunks."""
        pa = self.module()
        is_table = isinstance(data, pa.Table)
        if not any(contains(pa, kind, _PADDED) for kind in (data.schema.types if is_table else [data.type])):
            return data
        # The writer rounds slices of type ids, offsets and sizes up to 8 bytes, and reads past a foreign
        # buffer (GetTruncatedBuffer, seen in pyarrow 26). Joined arrays start at 0, in padded memory.
        if is_table:
            return pa.Table.from_arrays([self.writable(each) for each in data.columns], schema=data.schema)
        if isinstance(data, pa.ChunkedArray):
            return pa.chunked_array([self.writable(chunk) for chunk in data.chunks], data.type)
        return joined(pa, [data])

    def with_fields(self, kind: Any, change: Callable[[Any], Any]) -> Any:
        """Return a type with ``change(field)`` for each field inside it; other types as they are."""
        pa, types = self.module(), self.module().types
        if types.is_struct(kind):
            return pa.struct([change(field) for field in kind])
        if types.is_map(kind):
            return pa.map_(change(kind.key_field), change(kind.item_field), kind.keys_sorted)
        if types.is_fixed_size_list(kind):
            return pa.list_(change(kind.value_field), kind.list_size)
        if types.is_large_list(kind) or types.is_list(kind):
            build = pa.large_list if types.is_large_list(kind) else pa.list_
            return build(change(kind.value_field))
        return kind

    def tensor_reasons(self, column: TensorColumn) -> list[Reason]:
        """Return the reasons to copy a column of a tensor to Arrow."""
        source, field = column.source, column.field
        if source.refusal is not None:
            raise refused_by(source.refusal)
        reasons = list(source.reasons)
        if not source.view.device.is_host:
            source.check_copy()
            why = f"it is on {source.view.device}, and Arrow arrays are on the host"
            reasons.append(Reason(why, code="other-device"))
        if field is not None and field.kind == "fixed_binary":
            if not source.view.c_contiguous:
                reasons.append(obstacles.layout("Arrow", "memory without gaps"))
            return reasons
        form = _column_form(len(source.view.shape))
        # The target is another framework, whose name the caller knows.
        obstructions: list[Reason] = form.copy_reasons(source.view, "Arrow")
        if len(source.view.shape) > 1 and not obstructions and not source.view.c_contiguous:
            # The type could be permuted; most readers of such columns would ignore that.
            obstructions = [obstacles.layout("a column of tensors", "row-major memory")]
        return reasons + obstructions

    def tensor_to_arrow(self, column: TensorColumn) -> Any:
        """Return a column of a tensor as an array, which aliases it if it has no reasons to copy."""
        pa = self.module()
        source, field, nulls = column.source, column.field, column.nulls
        view = source.view
        on_host = view.device.is_host
        array = placement.fetch(source)
        if view.dtype.name != "bool" and (
            not array.flags.c_contiguous or (on_host and not source.reasons and column.obstacles)
        ):
            array = aligned_copy(array)
        if len(view.shape) > 1 and field is None:
            return _column_form(len(view.shape)).from_host(array, view.dtype, HOST, None)
        result = flat_array(pa, array, view.dtype, nulls if column.null_count else None, _type(pa, field))
        if field is not None and field.kind == "dictionary":
            names = column.dictionary().arrow()
            return pa.DictionaryArray.from_arrays(result, whole_array(names), ordered=field.ordered)
        return result

    def unregistered_extension(self, column: Column) -> str:
        """Return the name of a column's extension type if pyarrow does not know it, else an empty string."""
        name = "" if column.field is None else column.field.extension
        if not name or not isinstance(column, ArrowColumn):
            return ""
        if isinstance(column, UnreadColumn):
            return "" if name in _REGISTERED else name
        return "" if isinstance(column.arrow().type, self.module().BaseExtensionType) else name

    def compute(self) -> Any:
        """Return Arrow's module of functions, such as the lookup of words."""
        import pyarrow.compute

        return pyarrow.compute

    def memory(self, nbytes: int) -> Array:
        """Return uninitialised bytes of Arrow's pool, aligned to 64 bytes."""
        return np.frombuffer(self.module().allocate_buffer(nbytes), np.uint8)

    def binary_from_padded(self, rows: Array) -> Any:
        """Return rows of bytes without the NULs at their ends."""
        pa = self.module()
        count, width = rows.shape
        if rows.size:
            array = pa.array(rows.view(f"S{width}")[:, 0], from_pandas=False)
            # pyarrow 26 drops bytes after the first NUL of a value: the array then has fewer than the rows.
            is_whole = isinstance(array, pa.BinaryArray)
            if is_whole and np.frombuffer(array.buffers()[1], np.int32)[count] == np.count_nonzero(rows):
                return array
        lengths = np.char.str_len(rows.view(f"S{width}")[:, 0]) if rows.size else np.zeros(count, np.int64)
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        kind = pa.binary()
        if offsets[-1] > np.iinfo(np.int32).max:
            kind = pa.large_binary()
        else:
            offsets = offsets.astype(np.int32)
        values = rows[np.arange(width) < lengths[:, None]]
        return pa.Array.from_buffers(
            kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(values)], null_count=0
        )

    def text(self, offsets: Array, values: Array, nulls: Array | None) -> Any:
        """Return bytes of UTF-8 and their offsets as an array of text, which aliases them."""
        pa = self.module()
        kind = pa.string() if offsets.dtype.itemsize == 4 else pa.large_string()
        bitmap = None if nulls is None else _bits(pa, ~nulls)
        buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)

    def nested(self, field: Field, parts: list[Any], length: int) -> Any:
        """Return arrays as the fields of structs, or as the elements of lists of one length."""
        pa = self.module()
        whole = [whole_array(part) for part in parts]
        inner = [field_of(pa, f.name, p.type, f) for f, p in zip(field.children, whole, strict=True)]
        kind = pa.struct(inner) if field.kind == "struct" else pa.list_(inner[0], field.list_size)
        return pa.Array.from_buffers(kind, length, [None], null_count=0, children=whole)


def flat_array(pa: Any, array: Array, dtype: DType, nulls: Array | None = None, kind: Any = None) -> Any:
    """Return values of one dimension as an array: booleans packed into bits, others as an alias."""
    bitmap = None if nulls is None else _bits(pa, ~nulls)
    if dtype.name == "bool":
        kind, data = pa.bool_(), _bits(pa, array)
    else:
        storage = array.view("int8") if dtype is BOOL8 else array
        kind, data = kind or pa.from_numpy_dtype(storage.dtype), pa.py_buffer(storage)
    count = 0 if nulls is None else int(np.count_nonzero(nulls))
    result = pa.Array.from_buffers(kind, len(array), [bitmap, data], null_count=count)
    return pa.ExtensionArray.from_storage(pa.bool8(), result) if dtype is BOOL8 else result


@cache
def _column_form(ndim: int) -> Any:
    """Return the framework of columns of numbers, or of tensors."""
    return registry.by_name(f"pyarrow.{'Array' if ndim == 1 else 'FixedShapeTensorArray'}")


def _type(pa: Any, field: Field | None) -> Any:
    """Return the type of a field stored as integers or bytes; None for other fields."""
    kind = "" if field is None else field.kind
    if field is None or kind not in ("timestamp", "duration", "date", "fixed_binary"):
        return None
    if kind == "timestamp":
        return pa.timestamp(field.unit, field.timezone or None)
    if kind == "duration":
        return pa.duration(field.unit)
    return pa.binary(field.width) if kind == "fixed_binary" else pa.date32()


@lru_cache(maxsize=256)
def _refusal(pa: Any, storage: Any, pairs: tuple[tuple[bytes, bytes], ...]) -> str:
    """Return why pyarrow's IPC reader refuses the type of a field with this metadata, or an empty text."""
    schema = pa.schema([pa.field("x", storage, metadata=dict(pairs))])
    try:
        pa.ipc.read_schema(schema.serialize())
    except (pa.ArrowException, TypeError, ValueError) as error:
        return str(error)
    return ""


def _stand_in(pa: Any, field: Field) -> Any:
    """Return the type of pyarrow that a field's storage has, as far as canonical extension types check it."""
    inner = [pa.field(child.name, _stand_in(pa, child), child.nullable) for child in field.children]
    if field.kind == "struct":
        return pa.struct(inner)
    if field.kind == "fixed_list":
        return pa.list_(inner[0], field.list_size)
    if field.kind == "list":
        return (pa.large_list if field.wide else pa.list_)(inner[0])
    if field.kind == "fixed_binary":
        return pa.binary(field.width)
    try:
        return pa.type_for_alias(str(field.storage))
    except ValueError:
        return pa.null()  # a type with parameters, which no canonical extension type requires


def _bits(pa: Any, flags: Array) -> Any:
    # Any byte but 0 is True. A million values take 0.1 ms, and pa.array 1.1.
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def field_of(pa: Any, name: str, kind: Any, field: Field | None) -> Any:
    """Return pyarrow's field of a column, with the nullability and the metadata of `field`."""
    if field is None:
        return pa.field(name, kind)
    # A registered extension type has this metadata itself; of others the array has the storage only.
    own = field.metadata
    if isinstance(kind, pa.BaseExtensionType):
        own = {k: v for k, v in own.items() if not k.startswith(b"ARROW:extension:")}
    return pa.field(name, kind, nullable=field.nullable, metadata=own or None)


def _imported(pa: Any, obj: Any) -> Any:
    """Return an array of an object that exports one; capsules are imported once."""
    if not isinstance(obj, arrow_c.Export):
        return pa.array(obj)
    if obj.imported is None:
        obj.imported = pa.array(obj)
    return obj.imported


def _unreadable(obj: Any, error: Exception) -> UnsupportedConversionError:
    return UnsupportedConversionError(
        "",
        f"pyarrow cannot read the {type(obj).__qualname__}: {error}",
        "see the cause above",
        code="producer-raised",
    )
