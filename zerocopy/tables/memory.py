"""Arrow memory read with NumPy: elements, bits, offsets, and the extent of each buffer.

Layouts are those of Arrow's columnar format, "Physical Memory Layout".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np

from zerocopy._native import core
from zerocopy.dtype import DType, by_name
from zerocopy.protocols import arrow_c
from zerocopy.protocols.arrow_c import Memory
from zerocopy.source import Array
from zerocopy.strided_view import StridedView
from zerocopy.tables.hub import new_memory

BYTE = by_name("uint8")
#: Kinds whose only own buffer is the bitmap of nulls.
BARE = ("struct", "fixed_list")
#: Elements that are padded at a time without the core, because each needs an index of 8 bytes.
_BLOCK = 1 << 18


def read(chunk: Memory, ptr: int, count: int, dtype: DType = BYTE) -> Array:
    """Return `count` elements at an address inside a chunk's memory: an alias, on the host."""
    if not chunk.device.is_host:
        return arrow_c.fetch(chunk, ptr, count, dtype)
    place = ptr if count else 0
    return StridedView(place, (count,), (dtype.itemsize,), dtype, chunk.device, True, chunk.owner).numpy()


def elements(chunk: Memory, dtype: DType, buffer: int = 1) -> Array:
    """Return a chunk's rows in a buffer of values of one width."""
    return read(chunk, chunk.buffers[buffer] + chunk.offset * dtype.itemsize, chunk.length, dtype)


def bits(chunk: Memory, address: int) -> Array:
    """Return a bitmap's bits for a chunk's rows as booleans; the least significant comes first."""
    if not chunk.length:
        return np.empty(0, np.bool_)
    first, shift = divmod(chunk.offset, 8)
    packed = read(chunk, address + first, (shift + chunk.length + 7) // 8)
    return np.unpackbits(packed, count=shift + chunk.length, bitorder="little")[shift:].view(np.bool_)


def valid(chunk: Memory) -> Array:
    """Return which rows of a chunk are not null."""
    if chunk.field.kind == "null":
        return np.zeros(chunk.length, np.bool_)
    if chunk.nulls == 0 or not chunk.buffers or not chunk.buffers[0]:
        return np.ones(chunk.length, np.bool_)
    return bits(chunk, chunk.buffers[0])


def null_count(chunk: Memory) -> int:
    """Return the number of null rows of a chunk; count them if the producer does not report it."""
    if chunk.nulls >= 0 and chunk.field.kind != "null":
        return chunk.nulls
    return chunk.length - int(np.count_nonzero(valid(chunk)))


def _has_nulls(chunk: Memory) -> bool:
    """Whether rows are null, or may be if the producer does not report it."""
    if chunk.nulls < 0 and chunk.field.kind in BARE and chunk.device.is_host:
        return null_count(chunk) > 0  # frameworks drop a bitmap without nulls, often the only buffer
    return chunk.nulls != 0


def offset_type(chunk: Memory) -> DType:
    """Return the type of a chunk's offsets."""
    return by_name("int64" if chunk.field.wide else "int32")


def offsets(chunk: Memory) -> Array:
    """Return the offset at which each row of a chunk begins, and the end of the last row."""
    dtype = offset_type(chunk)
    if not chunk.length:
        # Without rows the offsets may be missing, or be an empty buffer ("Variable-size Binary Layout").
        return np.zeros(1, dtype.storage)
    return read(chunk, chunk.buffers[1] + chunk.offset * dtype.itemsize, chunk.length + 1, dtype)


def used(chunk: Memory) -> tuple[int, int]:
    """Return the range of elements, or bytes, that a chunk's rows use: first, and one past the last."""
    if not chunk.device.is_host and chunk.buffers[1]:
        # Copy two offsets from the device, not all of them.
        dtype = offset_type(chunk)
        ptr = chunk.buffers[1] + chunk.offset * dtype.itemsize
        ends = (ptr, ptr + chunk.length * dtype.itemsize)
        return int(read(chunk, ends[0], 1, dtype)[0]), int(read(chunk, ends[1], 1, dtype)[0])
    bounds = offsets(chunk)
    return int(bounds[0]), int(bounds[-1])


def padded(items: Array, starts: Array, counts: Array, width: int, pad: object) -> Array:
    """Return lists of items as a new array ``(rows, width, *rest)``: each list, followed by `pad`.

    The items of list number i are ``items[starts[i] : starts[i] + counts[i]]``.
    """
    shape, rest = (len(starts), width, *items.shape[1:]), prod(items.shape[1:])
    out = new_memory(shape, items.dtype)
    if core is not None and out.size:
        unit = np.full(rest, pad, items.dtype).tobytes()
        rows, kind = (np.ascontiguousarray(x, np.int64) for x in (starts, counts)), f"V{len(unit)}"
        flat = np.ascontiguousarray(items).reshape(-1).view(kind)
        core.pad_rows(out.reshape(len(starts), -1).view(kind), flat, *rows, unit)
    elif out.size:
        out[...] = pad
        step = max(1, _BLOCK // width)
        for low in range(0, len(starts), step):
            part = slice(low, low + step)
            inside = np.arange(width) < counts[part, None]
            index = starts[part, None] + np.arange(width)
            out[part][inside] = items[index[inside]]
    return out


def slice_rows(memory: Memory, start: int, length: int) -> Memory:
    """Return `length` rows of an array from row `start` on."""
    whole = start == 0 and length == memory.length
    nulls = memory.nulls if whole or memory.nulls == 0 else -1
    return replace(memory, offset=memory.offset + start, length=length, nulls=nulls)


def extents(chunk: Memory, nulls: bool = True) -> Iterator[tuple[int, int]]:
    """Yield the range of addresses that each buffer uses; `nulls` includes the bitmaps of nulls."""
    for address, low, high in _reach(chunk, nulls):
        if address and high > low:
            yield address + low, address + high
    kind = chunk.field.kind
    for child in chunk.children:
        if kind == "struct":
            child = slice_rows(child, chunk.offset, chunk.length)
        elif kind == "fixed_list":
            size = chunk.field.list_size
            child = slice_rows(child, chunk.offset * size, chunk.length * size)
        elif kind in ("list", "map"):
            low, high = used(chunk)
            child = slice_rows(child, low, high - low)
        elif not chunk.length:  # views of lists: no row refers to the child
            child = slice_rows(child, 0, 0)
        yield from extents(child, nulls)
    if chunk.dictionary is not None:
        yield from extents(chunk.dictionary, nulls)


def _reach(chunk: Memory, nulls: bool) -> Iterator[tuple[int, int, int]]:
    """Yield each buffer's address, and the bytes from it at which the rows begin and end."""
    kind, start, stop = chunk.field.kind, chunk.offset, chunk.offset + chunk.length
    if not chunk.length or kind in ("null", "run_end_encoded"):
        return
    if kind == "union":  # type ids, and the offsets of a dense one
        for address, size in zip(chunk.buffers, (1, 4), strict=False):
            yield address, start * size, stop * size
        return
    if nulls and _has_nulls(chunk):
        yield chunk.buffers[0], start // 8, (stop + 7) // 8
    if kind == "bool":
        yield chunk.buffers[1], start // 8, (stop + 7) // 8
    elif kind in ("list", "map", "string", "binary"):
        size = offset_type(chunk).itemsize
        yield chunk.buffers[1], start * size, (stop + 1) * size
        if kind in ("string", "binary"):
            yield chunk.buffers[2], *used(chunk)
    elif kind == "list_view":
        size = offset_type(chunk).itemsize
        for address in chunk.buffers[1:]:
            yield address, start * size, stop * size
    elif kind in ("string_view", "binary_view"):
        yield chunk.buffers[1], start * 16, stop * 16
        blocks = chunk.buffers[2:-1]
        sizes = read(chunk, chunk.buffers[-1], len(blocks), by_name("int64")) if blocks else ()
        for address, size in zip(blocks, sizes, strict=True):
            yield address, 0, int(size)
    elif len(chunk.buffers) > 1:
        width = chunk.field.width
        yield chunk.buffers[1], start * width, stop * width


def same(a: Memory, b: Memory) -> bool:
    """Return whether two arrays have the same rows; False for types that are not compared."""
    if a.field != b.field or a.length != b.length:
        return False
    ours, theirs = valid(a), valid(b)
    if not np.array_equal(ours, theirs):
        return False
    kind = a.field.kind
    if kind == "null":
        return True
    if kind == "bool":
        return np.array_equal(bits(a, a.buffers[1])[ours], bits(b, b.buffers[1])[ours])
    if kind in ("string", "binary"):
        return _texts(a) == _texts(b)
    width = a.field.width
    if not width or kind == "dictionary":
        return False
    return np.array_equal(_elements(a, width)[ours], _elements(b, width)[ours])


def _elements(chunk: Memory, width: int) -> Array:
    count = chunk.length * width
    return read(chunk, chunk.buffers[1] + chunk.offset * width, count).reshape(chunk.length, width)


def _texts(chunk: Memory) -> tuple[bytes, bytes]:
    """Return the offsets from the first one on, and the bytes between the first and the last."""
    own = offsets(chunk)
    text = read(chunk, chunk.buffers[2] + int(own[0]), int(own[-1]) - int(own[0]))
    return (own - own[0]).tobytes(), text.tobytes()
