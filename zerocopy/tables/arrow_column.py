"""Columns in Arrow memory, in one chunk or several, of any producer."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import prod

import numpy as np

from zerocopy import registry
from zerocopy.device import HOST, Device
from zerocopy.dtype import DType, by_name
from zerocopy.errors import Fix, Reason, UnsupportedConversionError
from zerocopy.protocols.array_interface import ALIGNMENT
from zerocopy.protocols.arrow_c import Memory
from zerocopy.protocols.arrow_schema import Field
from zerocopy.protocols.exporter_errors import malformed
from zerocopy.source import Array, HostCopy, Source
from zerocopy.strided_view import StridedView, contiguous_strides
from zerocopy.tables import memory, placement
from zerocopy.tables.column import ArrowArray, Column
from zerocopy.tables.hub import hub, new_memory

#: Kinds without children, offsets or dictionaries.
FLAT = ("number", "bool", "date", "time", "timestamp", "duration", "decimal", "fixed_binary")
_BOOL = by_name("bool")
BITS = Reason(
    "Arrow packs booleans into bits",
    code="packed-bits",
    fixes=[Fix(action="cast:bool8", effect="stores them in bytes")],
)
_VALIDITY = Reason("Arrow packs nulls into bits, and a mask has one byte per row", code="packed-bits")


class ArrowColumn(Column):
    """A column described by the C data interface.

    Parameters
    ----------
    name, field
        See :class:`Column`.
    chunks : callable
        ``chunks() -> sequence of Memory`` of that type; called when memory is first read.
    length : int
        Rows.
    arrow : callable, optional
        Returns the same memory as a pyarrow array; children have none.
    reasons : sequence of Reason
        See :class:`Column`.
    size : callable, optional
        Returns the bytes of the column, if the producer knows them.
    device : Device
        The device of the memory, known before the memory is read.
    """

    field: Field
    #: The number of chunks, if it is known without reading the memory.
    chunk_count: int | None = None
    #: Whether the hub joins several chunks, because reading each of 1,024 takes longer (10 ms).
    is_joined = False
    _chunks: tuple[Memory, ...] | None = None
    _null_count: int | None = None

    def __init__(
        self,
        name: str,
        field: Field,
        chunks: Callable[[], Sequence[Memory]],
        length: int,
        arrow: Callable[[], ArrowArray] | None = None,
        reasons: Sequence[Reason] = (),
        size: Callable[[], int] | None = None,
        device: Device = HOST,
    ) -> None:
        self.name = name
        self.field = field
        self.length = length
        self.device = device
        self.reasons: tuple[Reason, ...] = tuple(reasons)
        self._load, self._arrow, self._size = chunks, arrow, size

    # Not a cached property, which takes a lock before Python 3.12.
    @property
    def chunks(self) -> tuple[Memory, ...]:
        """The memory, each chunk with its owner; read once. One chunk may be empty, further ones are not."""
        if self._chunks is None:
            chunks = tuple(self._read())
            # A column with one chunk and further empty chunks is aliased, because streams omit empty chunks.
            self._chunks = tuple([c for c in chunks if c.length]) or chunks[:1] if len(chunks) > 1 else chunks
        return self._chunks

    def _read(self) -> Sequence[Memory]:
        return self._load()

    def dense(self) -> Column:
        name = self.field.extension
        owner = registry.by_metadata_key(name.partition(".")[0].encode()) if name else None
        if owner is None or not owner.is_tensor_type(name):
            return self
        column = copy.copy(self)
        column.field = self.field.storage
        return column

    def as_lists(self) -> Column:
        return self.dense()

    def plan_key(self) -> Hashable:
        field, chunks = self.field, () if self.is_joined else self.chunks
        if field.kind != "number" or field.extension or len(chunks) != 1 or not self.device.is_host:
            return None
        nulls, start = self.null_count, chunks[0].buffers[1] + chunks[0].offset * field.width
        return type(self), field.format, self.length, nulls, start % ALIGNMENT, self.reasons

    def arrow(self) -> ArrowArray:
        assert self._arrow is not None
        return self._arrow()

    def arrow_reasons(self) -> list[Reason]:
        if not self.device.is_host:
            # pyarrow's wheels lack CUDA, and would read the addresses as host memory.
            why = f"it is on {self.device}, and Arrow's tables are in host memory"
            remedy = "copy it to the host in its own framework, or convert it to tensors"
            raise UnsupportedConversionError("", why, remedy, code="other-device")
        return list(self.reasons)

    # -- nulls ------------------------------------------------------------------

    @property
    def null_count(self) -> int:
        if self._null_count is None:
            chunks = self._chunks or self.chunks
            self._null_count = (
                memory.null_count(chunks[0])
                if len(chunks) == 1
                else sum([memory.null_count(chunk) for chunk in chunks])
            )
        return self._null_count

    def mask(self) -> Source:
        def nulls(chunk: Memory) -> Array:
            valid = memory.valid(chunk)
            return np.logical_not(valid, out=valid)

        return self._computed(_BOOL, _VALIDITY, nulls)

    # -- values -----------------------------------------------------------------

    def values(self, dtype: DType, shape: tuple[int, ...] = ()) -> Source:
        if self.field.kind == "bool":
            return self._computed(_BOOL, BITS, lambda chunk: memory.bits(chunk, chunk.buffers[1]))
        return self._blocks(dtype, shape, 1)

    def offsets(self) -> Source:
        kind = self.field.kind
        if kind in ("string_view", "binary_view"):
            why = Reason(f"a {kind} has no offsets", code="view-layout", fixes=[self._with_offsets()])
            return self._source(
                by_name("int64"), (self.length + 1,), [why], lambda: offsets_of_views(self.chunks)
            )
        dtype = by_name("int64" if self.field.wide else "int32")
        if kind == "list_view":
            if len(self.chunks) == 1:
                return self._blocks(dtype, (), 1)
            return self._chunked(dtype, (self.length,), self._view_offsets)
        # Offsets have one element more than the column has rows.
        if not self.length:
            zero = np.zeros(1, dtype.storage)
            view = StridedView(zero.ctypes.data, (1,), (dtype.itemsize,), dtype, HOST, False, zero)
            return Source(self.name, view, lambda: zero, obj=zero)
        if len(self.chunks) == 1:
            chunk = self.chunks[0]
            ptr = chunk.buffers[1] + chunk.offset * dtype.itemsize
            return self._alias(ptr, (chunk.length + 1,), dtype, chunk)
        return self._chunked(dtype, (self.length + 1,), self._list_offsets)

    def sizes(self) -> Source:
        return self._blocks(by_name("int64" if self.field.wide else "int32"), (), 2)

    def text(self) -> Source:
        if self.field.kind.endswith("_view"):
            noun = "bytes are" if self.field.kind == "binary_view" else "text is"
            fixes = [self._with_offsets()]
            why = Reason(f"its {noun} not in one buffer", code="view-layout", fixes=fixes)
            count = int(offsets_of_views(self.chunks)[-1])
            return self._source(memory.BYTE, (count,), [why], lambda: text_of_views(self.chunks))
        ranges = [memory.used(chunk) for chunk in self.chunks]
        if len(self.chunks) == 1:
            # From the start of the buffer, because the offsets count from there.
            count = ranges[0][1] if self.length else 0
            return self._alias(self.chunks[0].buffers[2], (count,), memory.BYTE, self.chunks[0])
        pieces = [
            (c.buffers[2] + low, high - low) for c, (low, high) in zip(self.chunks, ranges, strict=True)
        ]
        count = sum(size for _, size in pieces)
        if not self.field.wide:
            _check_end(count, np.dtype("i4"), [Fix(action=f"cast:large_{self.field.kind}")])

        def host() -> Array:
            parts = [
                memory.read(chunk, ptr, size) for (ptr, size), chunk in zip(pieces, self.chunks, strict=True)
            ]
            return np.concatenate(parts) if parts else np.empty(0, np.uint8)

        return self._source(memory.BYTE, (count,), [self._in_chunks()], host)

    # -- parts ------------------------------------------------------------------

    def child(self, index: int = 0) -> Column:
        field = self.field.children[index]
        parts = [self._child_memory(chunk, index) for chunk in self.chunks]
        name = f"{self.name}[{field.name!r}]" if self.field.kind == "struct" else self.name
        count = sum(c.length for c in parts)
        return ArrowColumn(name, field, lambda: parts, count, reasons=self.reasons, device=self.device)

    def _child_memory(self, chunk: Memory, index: int) -> Memory:
        kind, inner = self.field.kind, chunk.children[index]
        if kind == "struct":
            return memory.slice_rows(inner, chunk.offset, chunk.length)
        if kind == "fixed_list":
            size = self.field.list_size
            return memory.slice_rows(inner, chunk.offset * size, chunk.length * size)
        if kind in ("list", "map") and len(self.chunks) != 1:
            low, high = memory.used(chunk)
            return memory.slice_rows(inner, low, high - low)
        return inner if chunk.length else memory.slice_rows(inner, 0, 0)

    def items(self, start: int, count: int) -> Column:
        parts, skipped, rest = [], start, count
        for child in (self._child_memory(chunk, 0) for chunk in self.chunks):
            low = min(skipped, child.length)
            kept = min(rest, child.length - low)
            parts.append(memory.slice_rows(child, low, kept))
            skipped, rest = skipped - low, rest - kept
        field = self.field.children[0]
        return ArrowColumn(self.name, field, lambda: parts, count, reasons=self.reasons, device=self.device)

    def dictionary(self) -> Column:
        dictionaries = [chunk.dictionary for chunk in self.chunks if chunk.dictionary is not None]
        if any(not _same(dictionaries[0], other) for other in dictionaries[1:]):
            why = "its chunks have different dictionaries"
            fixes = [Fix(action="unify-dictionaries")]
            raise UnsupportedConversionError("", why, "unify them first", code="chunks", fixes=fixes)
        inner = self.field.dictionary
        assert inner is not None
        count = dictionaries[0].length if dictionaries else 0
        name = f"{self.name} categories"
        return ArrowColumn(
            name, inner, lambda: dictionaries[:1], count, reasons=self.reasons, device=self.device
        )

    # -- memory -----------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        return self._size() if self._size is not None else sum(high - low for low, high in self.extents())

    def extents(self) -> Iterator[tuple[int, int]]:
        for chunk in self.chunks:
            yield from memory.extents(chunk)

    def _blocks(self, dtype: DType, shape: tuple[int, ...], buffer: int) -> Source:
        """Return a buffer of elements of one width: an alias, or the chunks concatenated."""
        width = dtype.itemsize * prod(shape) if shape else dtype.itemsize
        chunks = () if self.is_joined else self._chunks or self.chunks
        if len(chunks) == 1:
            chunk = chunks[0]
            ptr = chunk.buffers[buffer]
            return self._alias(ptr + chunk.offset * width if ptr else 0, (chunk.length, *shape), dtype, chunk)

        def host() -> Array:
            if self.is_joined:
                return self._whole().values(dtype, shape).host()
            out = new_memory((self.length, *shape), dtype.storage)
            target = out.ctypes.data
            for chunk in self.chunks:
                ptr, count = chunk.buffers[buffer] + chunk.offset * width, chunk.length * width
                if not chunk.device.is_host:
                    fetched = memory.read(chunk, ptr, count)
                    ptr = fetched.ctypes.data
                ctypes.memmove(target, ptr, count)  # an array for each of 1,024 chunks takes 5 ms more
                target += count
            return out

        return self._chunked(dtype, (self.length, *shape), host)

    def _alias(self, ptr: int, shape: tuple[int, ...], dtype: DType, chunk: Memory) -> Source:
        strides = contiguous_strides(shape, dtype.itemsize)
        # Arrow memory is immutable. If there are reasons, the memory is a copy without other users.
        readonly = not self.reasons
        view = StridedView(ptr, shape, strides, dtype, chunk.device, readonly, chunk.owner)
        if not chunk.device.is_host:
            return placement.alias(self.name, view, chunk, self.reasons)
        return Source(self.name, view, view.numpy, "arrow-c", self.reasons, obj=view)

    def _computed(self, dtype: DType, why: Reason, of_chunk: Callable[[Memory], Array]) -> Source:
        def host() -> Array:
            parts = [of_chunk(chunk) for chunk in (self._whole() if self.is_joined else self).chunks]
            if len(parts) == 1:
                return parts[0]
            return np.concatenate(parts) if parts else np.empty(0, dtype.storage)

        return self._source(dtype, (self.length,), [why], host)

    def _chunked(self, dtype: DType, shape: tuple[int, ...], host: Callable[[], Array]) -> Source:
        return self._source(dtype, shape, [self._in_chunks()], host)

    def _whole(self) -> ArrowColumn:
        """Return a copy of several chunks in one, without other users."""
        column: ArrowColumn = hub().table(self.arrow().combine_chunks()).columns[0]
        column.reasons = (self._in_chunks(),)
        return column

    def _in_chunks(self) -> Reason:
        count = self.chunk_count if self.is_joined else len(self.chunks)
        fix = Fix(action="combine-chunks", effect="copies it into one")
        return Reason(f"it is in {count} chunks", code="chunks", fixes=[fix])

    def _with_offsets(self) -> Fix:
        return Fix(action=f"cast:{self.field.kind.removesuffix('_view')}", effect="stores it with offsets")

    def _source(
        self, dtype: DType, shape: tuple[int, ...], why: list[Reason], host: Callable[[], Array]
    ) -> Source:
        strides = contiguous_strides(shape, dtype.itemsize)
        view = StridedView(0, shape, strides, dtype, self.device, True, self)
        source = Source(self.name, view, host, "arrow-c", (*self.reasons, *why), obj=view)
        if self.device.is_host:
            return source
        source.to_host = HostCopy(lambda stream: host(), lambda: placement.check_driver(view))
        return placement.via_host(source)

    def _list_offsets(self) -> Array:
        dtype = np.dtype("i8" if self.field.wide else "i4")
        out = np.zeros(self.length + 1, dtype)
        row = 0
        for chunk in self.chunks:
            if chunk.length:
                offsets = memory.offsets(chunk)
                # As Python integers, because the sum of two chunks' int32 offsets may exceed 2^31.
                _check_end(int(out[row]) + int(offsets[-1]) - int(offsets[0]), dtype)
                out[row + 1 : row + 1 + chunk.length] = offsets[1:] - offsets[0] + out[row]
                row += chunk.length
        return out

    def _view_offsets(self) -> Array:
        dtype = by_name("int64" if self.field.wide else "int32")
        parts, base = [np.empty(0, dtype.storage)], 0
        for chunk in self.chunks:
            starts = memory.elements(chunk, dtype)
            parts.append(starts + dtype.storage.type(base) if base else starts)
            base += chunk.children[0].length if chunk.length else 0
            _check_end(base, dtype.storage)
        return np.concatenate(parts)


def _check_end(end: int, dtype: np.dtype[np.signedinteger], fixes: Sequence[Fix] = ()) -> None:
    """Refuse chunks whose bytes or elements, one after the other, exceed the type of the offsets."""
    if end > np.iinfo(dtype).max:
        why = "it has more than 2^31 bytes or elements in its chunks"
        remedy = "cast it in Arrow to the type with 64-bit offsets, such as large_string"
        raise UnsupportedConversionError("", why, remedy, code="too-many-elements", fixes=fixes)


def _same(a: Memory, b: Memory) -> bool:
    if a.field.kind in ("string_view", "binary_view") and a.length == b.length:
        ours, theirs = ([offsets_of_views([x]), text_of_views([x]), memory.valid(x)] for x in (a, b))
        return all(map(np.array_equal, ours, theirs))
    return memory.same(a, b)


class UnreadColumn(ArrowColumn):
    """A column of a stream or a query: only its type is known before it is read."""

    is_unread = True

    def __init__(self, name: str, field: Field, reasons: Sequence[Reason] = ()) -> None:
        super().__init__(name, field, tuple, 0, reasons=reasons)


_INLINE = 12
_VIEW = np.dtype([("size", "<i4"), ("prefix", "<u4"), ("block", "<i4"), ("offset", "<i4")])
#: Bytes gathered at a time, limited because each byte needs an index of 8 bytes.
_AT_ONCE = 1 << 20


# A string or binary view is 16 bytes: a length, and either the text itself or four of its bytes, the index of
# a block and an offset in it (Columnar Format, "Variable-size Binary View Layout").


def offsets_of_views(chunks: Sequence[Memory]) -> Array:
    """Return int64 offsets of the texts, as if they were stored one after the other."""
    for chunk in chunks:
        _check(chunk)
    sizes = [np.empty(0, np.int64), *(_sizes(chunk) for chunk in chunks)]
    out = np.zeros(sum(map(len, sizes)) + 1, np.int64)
    np.cumsum(np.concatenate(sizes), out=out[1:])
    return out


def text_of_views(chunks: Sequence[Memory]) -> Array:
    """Return the texts one after the other."""
    out = np.empty(int(offsets_of_views(chunks)[-1]), np.uint8)
    done = 0
    for chunk in chunks:
        starts, sizes = _starts(chunk), _sizes(chunk)
        ends = np.cumsum(sizes)
        row = 0
        while row < len(sizes):
            before = int(ends[row - 1]) if row else 0
            # Rows of about _AT_ONCE bytes together, at least one.
            stop = max(row + 1, int(np.searchsorted(ends, before + _AT_ONCE, side="right")))
            count = int(ends[stop - 1]) - before
            _gather(chunk, starts[row:stop], sizes[row:stop], out[done : done + count])
            done += count
            row = stop
    return out


def _gather(chunk: Memory, starts: Array, sizes: Array, out: Array) -> None:
    used = sizes > 0
    starts, sizes = starts[used], sizes[used]
    if not len(sizes):
        return
    low = int(starts.min())
    if len(sizes) == 1:
        out[:] = memory.read(chunk, low, int(sizes[0]))
        return
    # One array from the lowest address to the highest. Only the texts are read, because memory of
    # other owners may lie between the blocks.
    span = memory.read(chunk, low, int((starts + sizes).max()) - low)
    shift = np.cumsum(sizes) - sizes
    np.take(span, np.repeat(starts - low - shift, sizes) + np.arange(len(out)), out=out, mode="clip")


def _views(chunk: Memory) -> Array:
    start = chunk.buffers[1] + chunk.offset * _VIEW.itemsize
    return memory.read(chunk, start, chunk.length * _VIEW.itemsize).view(_VIEW)


def _check(chunk: Memory) -> None:
    """Refuse views that are not inside their blocks: `text` would read past them."""
    views = _views(chunk)[memory.valid(chunk)]
    if (views["size"] < 0).any():
        raise malformed("", "the size of a view is negative")
    views = views[views["size"] > _INLINE]
    blocks = len(chunk.buffers) - 3
    if not ((views["block"] >= 0) & (views["block"] < blocks)).all():
        raise malformed("", f"a view refers to a block of text that does not exist: there are {blocks}")
    if len(views):
        ends = memory.read(chunk, chunk.buffers[-1], blocks, by_name("int64"))[views["block"]]
        if (views["offset"] < 0).any() or (views["offset"].astype(np.int64) + views["size"] > ends).any():
            raise malformed("", "a view refers to bytes outside its block of text")


def _sizes(chunk: Memory) -> Array:
    # The view of a null row is undefined.
    return np.where(memory.valid(chunk), _views(chunk)["size"], 0).astype(np.int64)


def _starts(chunk: Memory) -> Array:
    """Return the address of each row's text."""
    views = _views(chunk)
    base = chunk.buffers[1] + chunk.offset * _VIEW.itemsize
    inside = base + 4 + np.arange(len(views), dtype=np.int64) * _VIEW.itemsize
    blocks = np.array([*chunk.buffers[2:-1], 0], np.int64)
    inline = (views["size"] <= _INLINE) | ~memory.valid(chunk)
    outside = blocks[np.where(inline, len(blocks) - 1, views["block"])] + views["offset"]
    return np.where(inline, inside, outside)
