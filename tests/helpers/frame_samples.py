"""Objects of every kind that ``to_frames`` splits, for tests that change their headers."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from zerocopy.frames import Frames, from_frames, to_frames

_TEXT = ["a", "a text longer than a view holds", None] * 3


def arrays() -> list[Frames]:
    """Return split arrays: row-major, permuted, of records, of text."""
    records = np.zeros(4, [("a", "<i4"), ("b", [("c", "<f8", (2,))])])
    permuted = np.zeros((2, 3, 4), "i2").transpose(2, 0, 1)
    return [to_frames(x) for x in (np.arange(6.0).reshape(2, 3), permuted, records, np.array(["ab"]))]


def tables() -> list[Frames]:
    """Return split tables of one column of each type, and of all; a union; a pandas frame and series."""
    table = pa.table(
        {
            "number": pa.array(range(9)),
            "text": _TEXT,
            "view": pa.array(_TEXT, pa.string_view()),
            "list": [[1, 2], None, [3]] * 3,
            "struct": [{"a": 1, "b": "x"}, None, {"a": 2, "b": "y"}] * 3,
            "dictionary": pa.array(_TEXT).dictionary_encode(),
            "bool": [True, False, None] * 3,
            "fixed": pa.array([[1, 2]] * 9, pa.list_(pa.int8(), 2)),
            "map": pa.array([[("k", 1)]] * 9, pa.map_("string", "int64")),
            "views": pa.array([[1]] * 9, pa.list_view(pa.int32())),
            "null": pa.nulls(9),
            "runs": pa.RunEndEncodedArray.from_arrays(pa.array([4, 9], pa.int32()), pa.array([1, 2])),
            "decimal": pa.array([1] * 9, pa.decimal128(5, 2)),
            "tensor": pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2]] * 9, pa.list_(pa.int8(), 2))
            ),
        }
    )
    union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["x"])]
    )
    frame = pd.DataFrame({"x": [1.0, 2.0], "b": [True, False]}, index=["p", "q"])
    columns = [table.select([name]) for name in table.column_names]
    return [to_frames(x) for x in [*columns, table, union, frame, frame["x"]]]


def mutated(rng: Random, header: bytes) -> bytes:
    """Return a header with changed bits, other bytes, bytes less and bytes more."""
    data = bytearray(header)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        kind = rng.randrange(5)
        at = rng.randrange(len(data)) if data else 0
        if kind < 2 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2 and data:
            data[at] = rng.choice((0, 1, 127, 128, 255))
        elif kind == 3:
            del data[at : at + rng.choice((1, 4, 8, 1000))]
        else:
            data[at:at] = rng.randbytes(rng.choice((1, 4, 8)))
    return bytes(data)


def read(header: bytes, frames: list[bytes]) -> str:
    """Build the object of a header and read all of it; return the outcome. Other errors are bugs."""
    import zerocopy as zc

    try:
        obj = from_frames(header, frames)
    except zc.ZeroCopyError:
        return "error"
    try:
        _read_all(obj)
    except Exception:  # noqa: BLE001 - the full validation, or Python's decimals and dates
        return "invalid content"
    return "object"


def _read_all(obj: Any) -> None:
    if isinstance(obj, np.ndarray):
        obj.tobytes()
    elif isinstance(obj, (pa.Table, pa.RecordBatch, pa.ChunkedArray, pa.Array)):
        obj.validate(full=True)
        obj.to_pylist()
    else:
        len(obj)
        getattr(obj, "shape", None)
