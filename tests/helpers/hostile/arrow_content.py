"""pyarrow arrays over buffers of the right size with wrong content: offsets, indices, views, run ends.

pyarrow's full validation refuses most of them, so calls on them have ``validate="full"``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np


def wrong_content(rng: Random) -> tuple[Any, str]:
    """Return an array, which may be nested or a slice, and its description."""
    import pyarrow as pa

    while True:
        make = rng.choice(_MAKERS)
        try:
            array = make(pa, rng)
        except (pa.ArrowException, ValueError, NotImplementedError):
            continue  # the quick validation of from_buffers() refuses it
        if rng.random() < 0.2:
            array = pa.StructArray.from_arrays([array], ["a"])
        elif rng.random() < 0.15:
            array = pa.FixedSizeListArray.from_arrays(array, 1)
        if rng.random() < 0.2:
            array = array.slice(rng.randrange(len(array)), rng.randrange(1, len(array) + 1))
        return array, f"{make.__name__.strip('_')} of {array.type} x {len(array)}"


def _changed(rng: Random, values: list[int], wrong: list[int], dtype: str) -> np.ndarray:
    """Return the values with one or two wrong ones, at any place."""
    out = np.array(values, dtype)
    info = np.iinfo(dtype)
    for _ in range(rng.choice([1, 1, 2])):
        out[rng.randrange(len(out))] = min(max(rng.choice(wrong), info.min), info.max)
    return out


def _validity(pa: Any, rng: Random) -> Any:
    return rng.choice([None, None, pa.py_buffer(rng.randbytes(8))])


_BIG = [-1, -(2**31), -(2**63), 2**31 - 1, 2**62, 13, 100]


def _offsets(pa: Any, rng: Random) -> Any:
    kind, wide = rng.choice(
        [
            (pa.string(), False),
            (pa.binary(), False),
            (pa.large_string(), True),
            (pa.large_binary(), True),
            (pa.list_(pa.int16()), False),
            (pa.large_list(pa.string()), True),
            (pa.map_(pa.string(), pa.int8()), False),
        ]
    )
    offsets = _changed(rng, [0, 3, 5, 5, 9, 12], [*_BIG, 7, 0], "i8" if wide else "i4")
    buffers = [_validity(pa, rng), pa.py_buffer(offsets)]
    children = None
    if kind.num_fields:
        children = [pa.array(["a"] * 12 if pa.types.is_large_list(kind) else [1] * 12, kind.field(0).type)]
        if pa.types.is_map(kind):
            pairs = [{"key": "k", "value": 1}] * 12
            inner = pa.struct([kind.key_field, kind.item_field])
            children = [pa.array(pairs, inner)]
    else:
        buffers.append(pa.py_buffer(b"a text of 12"))
    return pa.Array.from_buffers(kind, 5, buffers, children=children)


def _text(pa: Any, rng: Random) -> Any:
    kind = rng.choice([pa.string(), pa.string_view()])
    rows = [
        rng.choice([b"\xff\xfe", b"\xc3", b"ok", b"\xed\xa0\x80 a surrogate, and more"]) for _ in range(5)
    ]
    return (
        pa.array(rows, pa.binary()).cast(pa.binary_view()).view(kind)
        if "view" in str(kind)
        else (pa.array(rows, pa.binary()).view(kind))
    )


def _indices(pa: Any, rng: Random) -> Any:
    dtype = rng.choice(["i1", "u1", "i2", "i4", "u4", "i8", "u8"])
    indices = pa.array(_changed(rng, [0, 1, 2, 1, 0], [*_BIG, 3, 127], dtype))
    if rng.random() < 0.4:
        nulls = pa.py_buffer(rng.randbytes(8))
        indices = pa.Array.from_buffers(indices.type, 5, [nulls, indices.buffers()[1]])
    names = rng.choice([["a", "b", "c"], [1.5, 2.5, 3.5], [["a"], ["b"], ["c"]]])
    return pa.DictionaryArray.from_arrays(indices, pa.array(names), safe=False)


_VIEW = np.dtype([("size", "<i4"), ("prefix", "<u4"), ("block", "<i4"), ("offset", "<i4")])


def _views(pa: Any, rng: Random) -> Any:
    kind = rng.choice([pa.string_view(), pa.binary_view()])
    rows = ["a text of more than twelve bytes", "short", "another text of many bytes", "", None]
    source = pa.array(rows, pa.string_view())
    old, views, *blocks = source.buffers()
    changed = np.frombuffer(views, _VIEW).copy()
    for _ in range(rng.choice([1, 1, 2])):
        row = rng.randrange(5)
        field = rng.choice(["size", "prefix", "block", "offset"])
        value = rng.choice([-1, -(2**31), 2**31 - 1, 1, 2, 13, 1000])
        changed[row][field] = value & (2**32 - 1) if field == "prefix" else value
    validity = rng.choice([old, old, None])
    return pa.Array.from_buffers(kind, 5, [validity, pa.py_buffer(changed), *blocks])


def _run_ends(pa: Any, rng: Random) -> Any:
    ends = _changed(rng, [2, 5, 9], [*_BIG, 0, 1, 2, 5, 8], rng.choice(["i2", "i4", "i8"]))
    kind = pa.run_end_encoded(pa.from_numpy_dtype(ends.dtype), pa.string())
    children = [pa.array(ends), pa.array(["a", None, "c"])]
    return pa.RunEndEncodedArray.from_buffers(kind, 9, [None], 0, 0, children)


def _list_views(pa: Any, rng: Random) -> Any:
    wide = rng.random() < 0.5
    dtype = "i8" if wide else "i4"
    offsets, sizes = np.array([0, 3, 1, 9, 0], dtype), np.array([3, 4, 2, 3, 0], dtype)
    if rng.random() < 0.5:
        offsets = _changed(rng, offsets.tolist(), _BIG, dtype)
    else:
        sizes = _changed(rng, sizes.tolist(), _BIG, dtype)
    kind = (pa.large_list_view if wide else pa.list_view)(pa.int32())
    buffers = [_validity(pa, rng), pa.py_buffer(offsets), pa.py_buffer(sizes)]
    return pa.Array.from_buffers(kind, 5, buffers, children=[pa.array(range(12), pa.int32())])


def _unions(pa: Any, rng: Random) -> Any:
    children = [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    fields = [pa.field("0", pa.int64()), pa.field("1", pa.string())]
    types = pa.py_buffer(_changed(rng, [0, 1, 0], [-1, 2, 127, -128, 1], "i1"))
    if rng.random() < 0.5:
        return pa.Array.from_buffers(pa.sparse_union(fields), 3, [None, types], children=children)
    offsets = pa.py_buffer(_changed(rng, [0, 0, 1], _BIG, "i4"))
    return pa.Array.from_buffers(pa.dense_union(fields), 3, [None, types, offsets], children=children)


def _values(pa: Any, rng: Random) -> Any:
    kind = rng.choice(
        [
            pa.decimal128(5, 2),
            pa.decimal256(40, 3),
            pa.date64(),
            pa.time32("s"),
            pa.time64("ns"),
            pa.timestamp("s"),
            pa.duration("s"),
            pa.date32(),
        ]
    )
    width = kind.bit_width // 8
    data = pa.py_buffer(rng.choice([rng.randbytes(width * 5), b"\x7f" * width * 5, b"\xff" * width * 5]))
    return pa.Array.from_buffers(kind, 5, [_validity(pa, rng), data])


_MAKERS: list[Callable[[Any, Random], Any]] = [
    *(_offsets, _offsets, _indices, _indices, _views, _views, _run_ends),
    *(_list_views, _unions, _text, _values),
]
