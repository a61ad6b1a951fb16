"""Arrow files with one error each: in the content, in the metadata of a batch, or in the file around it."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

ROWS = 7  # appears in the metadata as the length of the batch and of its arrays
LONG = "a text that is longer than a view holds"


def file_of(array: Any, **options: Any) -> bytes:
    """Return an IPC file with one column."""
    return _written(pa.ipc.new_file, array, **options)


def stream_of(array: Any, **options: Any) -> bytes:
    """Return an IPC stream with one column."""
    return _written(pa.ipc.new_stream, array, **options)


def _written(new: Callable[..., Any], array: Any, **options: Any) -> bytes:
    sink = io.BytesIO()
    batch = pa.record_batch([array], names=["x"])
    with new(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def replaced(data: bytes, old: bytes, new: bytes, count: int = 1) -> bytes:
    """Return the data with `count` occurrences of `old` replaced by `new` of the same length."""
    assert len(old) == len(new)
    assert data.count(old) >= 1, (old, data)
    return data.replace(old, new, count)


def _ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _longs(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _text() -> bytes:
    return file_of(pa.array(["ab", "cd", "ef", "gh", "ij", "kl", "mn"]))


def _numbers() -> bytes:
    return file_of(pa.array(np.arange(ROWS)))


def _node(length: int, nulls: int = 0) -> bytes:
    return _longs(length, nulls)


def content() -> Iterator[tuple[str, bytes]]:
    """Yield files whose buffers have wrong values."""
    text = _text()
    yield "text offset past the text", replaced(text, _ints(4, 6, 8), _ints(4, 1 << 30, 8))
    yield "last text offset past the text", replaced(text, _ints(12, 14), _ints(12, 1 << 30))
    yield "first text offset negative", replaced(text, _ints(0, 2, 4), _ints(-9, 2, 4))
    yield "text offsets not monotonic", replaced(text, _ints(4, 6, 8), _ints(4, 12, 8))
    yield "text not UTF-8", replaced(text, b"cdefgh", b"\xff\xfe\xfd\xfcgh")
    lists = file_of(pa.array([[i, i] for i in range(ROWS)], pa.list_(pa.int64())))
    yield "list offset past the elements", replaced(lists, _ints(4, 6, 8), _ints(4, 1 << 30, 8))
    yield "list offset negative", replaced(lists, _ints(0, 2, 4), _ints(-5, 2, 4))
    views = file_of(pa.array([LONG] * ROWS, pa.string_view()))
    view = _ints(len(LONG)) + LONG[:4].encode()
    yield "view of a missing block", replaced(views, view + _ints(0, 0), view + _ints(9, 0))
    yield "view past its block", replaced(views, view + _ints(0, 0), view + _ints(0, 1 << 30))
    yield "view of negative size", replaced(views, view, _ints(-1) + view[4:])
    offsets, sizes = [i * 2 + 1 for i in range(ROWS)], [1] * ROWS
    list_views = file_of(pa.ListViewArray.from_arrays(offsets, sizes, pa.array(np.arange(20))))
    yield "list view past the elements", replaced(list_views, _ints(3, 5, 7), _ints(3, 1 << 30, 7))
    yield "list view of negative size", replaced(list_views, _ints(*sizes), _ints(1, 1, -7, 1, 1, 1, 1))
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, 1, 0, 1, 1], pa.int32()), ["a", "b"])
    yield "code past the dictionary", replaced(file_of(codes), _ints(0, 1, 0), _ints(0, 1 << 30, 0))
    yield "code negative", replaced(file_of(codes), _ints(0, 1, 0), _ints(0, -7, 0))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, ROWS], pa.int32()), [1, 2, 3])
    yield "run ends not increasing", replaced(file_of(runs), _ints(2, 5, ROWS), _ints(2, 1 << 30, ROWS))
    yield "run ends before the rows", replaced(file_of(runs), _ints(2, 5, ROWS), _ints(2, 3, 4))
    ids, places = pa.array([0, 1, 0, 1, 0, 1, 0], pa.int8()), pa.array([0, 0, 1, 1, 2, 2, 3], pa.int32())
    union = file_of(pa.UnionArray.from_dense(ids, places, [pa.array(np.arange(9)), pa.array(["a"] * 9)]))
    yield (
        "union of a missing type",
        replaced(union, bytes([0, 1, 0, 1, 0, 1, 0]), bytes([0, 1, 0, 99, 0, 1, 0])),
    )
    yield "union past its child", replaced(union, _ints(0, 0, 1, 1, 2), _ints(0, 0, 1, 1 << 30, 2))
    decimals = file_of(pa.array([1] * ROWS, pa.decimal128(3, 0)))
    yield "decimal of too many digits", replaced(decimals, _longs(1, 0, 1, 0), _longs(1, 0, 1 << 60, 0))


def metadata() -> Iterator[tuple[str, bytes]]:
    """Yield files whose batches declare wrong lengths, counts or places."""
    numbers = _numbers()
    node, size = _node(ROWS), _longs(0, 8 * ROWS)
    batch = numbers.index(_longs(ROWS), numbers.index(node) - 200)
    yield "more rows than the buffer", replaced(numbers, node, _node(1 << 40))
    longer = numbers[:batch] + _longs(1 << 40) + numbers[batch + 8 :]
    yield "batch and column of more rows than the buffer", replaced(longer, node, _node(1 << 40))
    yield "negative number of rows", replaced(numbers, node, _node(-3))
    yield "more nulls than rows", replaced(numbers, node, _node(ROWS, 1 << 30))
    yield "negative number of nulls", replaced(numbers, node, _node(ROWS, -5))
    yield "buffer longer than the body", replaced(numbers, size, _longs(0, 1 << 40))
    yield "buffer shorter than its rows", replaced(numbers, size, _longs(0, 8))
    yield "buffer of negative length", replaced(numbers, size, _longs(0, -8))
    yield "buffer past the body", replaced(numbers, size, _longs(1 << 40, 8 * ROWS))
    yield "buffer before the body", replaced(numbers, size, _longs(-4096, 8 * ROWS))


def files() -> Iterator[tuple[str, bytes]]:
    """Yield files that are cut, that are not Arrow's, or that point to wrong places."""
    numbers = _numbers()
    (length,) = struct.unpack("<i", numbers[-10:-6])
    yield "empty", b""
    yield "magic alone", b"ARROW1"
    yield "magic twice", b"ARROW1\0\0ARROW1"
    yield "cut in half", numbers[: len(numbers) // 2]
    yield "cut at the footer", numbers[:-12]
    yield "zeros", bytes(4096)
    yield "ones", b"\xff" * 4096
    yield "footer longer than the file", numbers[:-10] + _ints(1 << 30) + numbers[-6:]
    yield "footer of negative length", numbers[:-10] + _ints(-1) + numbers[-6:]
    yield "footer of garbage", numbers[: -10 - length] + b"\xa5" * length + numbers[-10:]
    stream = stream_of(pa.array(np.arange(ROWS)))
    yield "stream cut in half", stream[: len(stream) // 2]
    yield "message longer than the stream", stream[:4] + _ints(1 << 30) + stream[8:]
    yield "message of negative length", stream[:4] + _ints(-2) + stream[8:]


def bombs(max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield small files with more than `max_bytes` after decompression."""
    zeros = pa.array(np.zeros(max_bytes // 8 + 1))
    yield "compressed zeros", file_of(zeros, compression="zstd")
    yield "compressed zeros in a stream", stream_of(zeros, compression="lz4")
    compressed = file_of(pa.array(np.zeros(500)), compression="zstd")
    yield "declared size of 2^50", replaced(compressed, _longs(4000), _longs(1 << 50))
    yield "many compressed batches", _repeated(max_bytes)


def _repeated(max_bytes: int) -> bytes:
    sink = io.BytesIO()
    batch = pa.record_batch([pa.array(np.zeros(max_bytes // 64))], names=["x"])
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(10):
            writer.write_batch(batch)
    return sink.getvalue()


def valid() -> Iterator[tuple[str, bytes]]:
    """Yield the files without an error."""
    for name, write in (("file", file_of), ("stream", stream_of)):
        for compression in (None, "lz4", "zstd"):
            array = pa.array([f"text {i}" for i in range(500)])
            yield f"{name} {compression}", write(array, compression=compression)
            yield f"{name} {compression} codes", write(array.dictionary_encode(), compression=compression)
