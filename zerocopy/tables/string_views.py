"""String and binary views as offsets and text, as in the other layouts.

A view is 16 bytes: a length, and either the text itself or four of its bytes, the index
of a block and an offset in it (Columnar Format, "Variable-size Binary View Layout").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zerocopy.dtype import by_name
from zerocopy.protocols.arrow_c import Memory
from zerocopy.protocols.exporter_errors import malformed
from zerocopy.source import Array
from zerocopy.tables import memory

_INLINE = 12
_VIEW = np.dtype([("size", "<i4"), ("prefix", "<u4"), ("block", "<i4"), ("offset", "<i4")])
#: Bytes gathered at a time, limited because each byte needs an index of 8 bytes.
_AT_ONCE = 1 << 20


def offsets(chunks: Sequence[Memory]) -> Array:
    """Return int64 offsets of the texts, as if they were stored one after the other.

    Raises
    ------
    UnsupportedConversionError
        A view refers to bytes outside its block of text.
    """
    for chunk in chunks:
        _check(chunk)
    sizes = [np.empty(0, np.int64), *(_sizes(chunk) for chunk in chunks)]
    out = np.zeros(sum(map(len, sizes)) + 1, np.int64)
    np.cumsum(np.concatenate(sizes), out=out[1:])
    return out


def text(chunks: Sequence[Memory]) -> Array:
    """Return the texts one after the other."""
    out = np.empty(int(offsets(chunks)[-1]), np.uint8)
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
