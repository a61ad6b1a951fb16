"""Record types for the tests of layouts, on the host and on devices, and their expected values.

The benchmarks' record types, and others: more groups of fields, sub-arrays, nested records, text,
padding. Expected values are computed with NumPy alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import record_types
from zerocopy.layout.schema import FieldLeaf, leaves


def f4(names: str, order: str = "<") -> list[tuple[str, str]]:
    return [(name, f"{order}f4") for name in names]


_POINT = [("u", "f4"), ("tag", "u1"), ("v", ">i2", (2,))]

_MORE: dict[str, Any] = {
    "big-endian": [("i", ">i8"), *f4("xyz", ">"), ("n", ">i4"), ("h", ">i2"), ("t", ">M8[s]")],
    "big-endian, sub-array": [("a", ">i2"), ("b", ">f4"), ("c", ">f8"), ("d", ">i2", (3,)), ("e", ">c16")],
    "nested": [("p", [("x", "f4"), ("q", [("z", ">i4"), ("y", "u1")])]), ("id", "i8"), ("v", "f4", (3,))],
    "nested, text": [
        ("at", _POINT, (3,)), ("c", ">c8"), ("name", ">U3"), ("raw", "V100"), ("ok", "?"), ("when", "M8[s]"),
    ],
    "sub-arrays of records": [("r", [("x", "f4"), ("y", ">i2"), ("k", "u1", (2,))], (3,)), ("i", "i4")],
    "complex, text, bytes": [
        ("c", ">c8"), ("s", ">U3"), ("w", "V100"), ("z", ">c16"), ("n", "c16"), ("u", "U2"), ("t", "S3"),
        ("f", "S5"), ("g", "S7"), ("h", "S17"), ("k", "S33"),
    ],
    "5 x f4": f4("abcde"),
    "7 x f4": f4("abcdefg"),
    "7 x f4 big-endian": f4("abcdefg", ">"),
    "2 x u2": [("a", "u2"), ("b", "u2"), ("x", "f8")],
    "4 x u1": [("a", "u1"), ("b", "u1"), ("c", "u1"), ("d", "u1"), ("x", "f8")],
    "3 x u1": [("r", "u1"), ("g", "u1"), ("b", "u1")],
    "one u1": [("a", "u1")],
    "one f8": [("a", "f8")],
    "halves": [("a", "f2"), ("b", ">u2"), ("c", "S6")],
    # Three fields are copied as four: the bytes of the fourth must be written later.
    "three f4 and padding": np.dtype({"names": list("xyz"), "formats": ["f4"] * 3, "itemsize": 17}),
    "three f4, padding, three f4": np.dtype(
        {"names": list("xyzabc"), "formats": ["f4"] * 6, "offsets": [0, 4, 8, 14, 18, 22], "itemsize": 26}
    ),
    "three >f4, three f4": [*f4("abc", ">"), *f4("xyz"), ("w", "f8")],
    "three >f4, u1, three f4, f8": [*f4("abc", ">"), ("u", "u1"), *f4("xyz"), ("w", "f8")],
    "u1, three f4, i8, three f4": [("u", "u1"), *f4("xyz"), ("i", "i8"), *f4("abc")],
    "three f4, i8, three >f4": [*f4("xyz"), ("i", "i8"), *f4("abc", ">")],
    "three >f4, i8, three f4": [*f4("xyz", ">"), ("i", "i8"), *f4("abc")],
    "seven f4, u1, seven >f4": [*f4("abcdefg"), ("u", "u1"), *f4("hijklmn", ">")],
    "pairs": [
        ("a", "f8"), ("b", "f8"), ("h", ">u2"), ("i", ">u2"), ("c", "u1"), ("d", "u1"), ("e", "f2"),
        ("f", "f2"), ("g", "f2"), ("j", "f2"), ("k", ">f4"), ("l", ">f4"), ("m", ">i8"), ("n", ">i8"),
        ("o", "f4"), ("p", "f4"), ("q", "u1"), ("r", ">f4"), ("s", "u1"), *f4("tuvw", ">"), ("x", "u1"),
        ("y", "?"), ("z", "m8[s]"),
    ],
}  # fmt: skip

#: Types of up to 256 bytes, by name.
LAYOUTS: dict[str, np.dtype[Any]] = {
    **{layout.name: layout.dtype for layout in record_types.LAYOUTS},
    **{name: np.dtype(fields) for name, fields in _MORE.items()},
}

#: For devices, whose kernels copy words and bytes, not groups: some of them, and long records.
ON_DEVICE: dict[str, np.dtype[Any]] = {
    **{layout.name: layout.dtype for layout in record_types.LAYOUTS},
    **{n: LAYOUTS[n] for n in ("big-endian, sub-array", "nested, text", "3 x u1", "one u1", "halves")},
    "2 KiB": np.dtype([(f"f{i}", "f8") for i in range(256)]),
    "long": np.dtype(
        [("k", "u1"), ("x", ">f8"), ("image", "f4", (1100,)), ("at", _POINT, (2,)), ("s", "S7"), ("n", "i4")],
        align=True,
    ),
}


def records(dtype: np.dtype[Any], rows: int) -> np.ndarray:
    """Return records of random bytes: with various NaNs, and padding that is not zero."""
    rng = np.random.default_rng(rows)
    return rng.integers(0, 256, rows * dtype.itemsize, np.uint8).view(dtype)


def field(records: Any, leaf: FieldLeaf) -> Any:
    """Return a leaf of records, or its column in nested dicts."""
    for name in leaf.path:
        records = records[name]
    return records


def column(rows: np.ndarray, leaf: FieldLeaf) -> np.ndarray:
    """Return a leaf as a contiguous native column, without a conversion that could change a NaN."""
    values = np.ascontiguousarray(field(rows, leaf))
    return values if values.dtype.isnative else values.byteswap().view(values.dtype.newbyteorder())


def native_bits(array: np.ndarray) -> bytes:
    """Return the bytes of an array's values in native order."""
    if not array.nbytes:
        return b""  # NumPy would make values of one byte from values without bytes
    values = np.ascontiguousarray(array)
    return (values if values.dtype.isnative else values.byteswap()).tobytes()


def padding(dtype: np.dtype[Any]) -> np.ndarray:
    """Return which bytes of a record belong to no leaf, as booleans."""
    free = np.ones(dtype.itemsize, bool)
    for leaf in leaves(dtype):
        for offset, length in leaf.pieces:
            free[offset : offset + length] = False
    return free


def without_padding(rows: np.ndarray) -> np.ndarray:
    """Return the bytes of records, one record per row, with zero padding."""
    octets = rows.view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
    return octets * ~padding(rows.dtype)
