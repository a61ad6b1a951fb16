"""The core's functions for small inputs give what the Python code gives, or leave the input to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from zerocopy._native import core
from zerocopy.layout.schema import LAYOUTS

pytestmark = pytest.mark.skipif(core is None, reason="needs the compiled core")

TYPES: dict[str, Any] = {
    "packed": [("id", "i8"), ("x", "f4"), ("y", "f4"), ("z", "f4"), ("q", "i2")],
    "swapped": [("a", ">i4"), ("b", "<c16"), ("c", ">U2"), ("d", "S3")],
    "padded": {"names": ["a", "b"], "formats": ["i2", "f8"], "offsets": [3, 16], "itemsize": 40},
    "overlapping": {"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 2], "itemsize": 4},
    "sub-arrays": [("a", "f4", (2, 3)), ("b", "u1"), ("c", "i2", (4,))],
    "titles": [(("a title", "a"), "i4"), ("b", "M8[s]")],
    "wide": [(f"c{i}", "f4") for i in range(64)],
}
ROWS = (1, 2, 63, 64, 1000)


def filled(dtype: np.dtype, rows: int) -> np.ndarray:
    numbers = np.random.default_rng(rows).integers(1, 90, rows * dtype.itemsize, np.uint8)
    records = np.zeros(rows, dtype)
    for name in dtype.names or ():
        part = records[name]
        if part.dtype.kind in "US":
            part[...] = "ab"
        else:
            part[...] = numbers[: part.size].reshape(part.shape).astype("i2").astype(part.dtype)
    return records


def described(columns: dict[str, np.ndarray]) -> list[Any]:
    addresses = [column.__array_interface__["data"][0] for column in columns.values()]
    return [
        (
            name,
            c.dtype,
            c.shape,
            c.strides,
            c.flags.writeable,
            c.tobytes(),
            address - addresses[0],
        )
        for (name, c), address in zip(columns.items(), addresses, strict=True)
    ]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", TYPES)
def test_second_calls_give_the_result_of_the_first(name: str, rows: int) -> None:
    dtype = np.dtype(TYPES[name])
    records = filled(dtype, rows)
    LAYOUTS.clear()
    first = zc.aos_to_soa(records)
    assert core.split_records(records, LAYOUTS) is not None
    second = zc.aos_to_soa(records)
    assert described(second) == described(first)
    assert len({id(column.base) for column in second.values()}) == 1
    assert all(column.__array_interface__["data"][0] % 64 == 0 for column in second.values())

    LAYOUTS.clear()
    for options in ((dtype,), ()):
        if name == "overlapping" or (not options and name == "sub-arrays"):
            continue  # left to the Python code
        apart = {key: column.copy() for key, column in first.items()}
        back = zc.soa_to_aos(apart, *options)
        again = core.join_columns(apart, *(options or (None,)), LAYOUTS)
        assert again.dtype == back.dtype
        assert again.tobytes() == back.tobytes()
        assert again.__array_interface__["data"][0] % 64 == 0
        assert again.flags.owndata == back.flags.owndata


def test_strided_and_reversed_inputs_are_read() -> None:
    dtype = np.dtype(TYPES["packed"])
    records = filled(dtype, 200)
    zc.aos_to_soa(records)
    for part in (records[::3], records[::-1], records[:0], np.broadcast_to(records[:1], 50)):
        columns = zc.aos_to_soa(part)
        assert all((columns[name] == part[name]).all() for name in dtype.names or ())
        strided = {name: np.repeat(column, 2)[::2] for name, column in columns.items()}
        assert (zc.soa_to_aos(strided, dtype) == part).all()


def test_other_inputs_are_left_to_the_python_code() -> None:
    records = filled(np.dtype(TYPES["packed"]), 10)
    columns = {name: column.copy() for name, column in zc.aos_to_soa(records).items()}
    zc.soa_to_aos(columns, records.dtype)
    zc.soa_to_aos(columns)
    others: list[dict[Any, Any]] = [
        {**columns, "id": columns["id"][:5]},
        {**columns, "id": columns["id"].reshape(2, 5)},
        {**columns, "id": columns["id"].astype("f8")},
        {**columns, "more": columns["id"]},
        {name: column for name, column in columns.items() if name != "q"},
        {**columns, 3: columns["id"]},
        {**columns, "id": np.array(7)},
    ]
    for other in others:
        assert core.join_columns(other, records.dtype, LAYOUTS) is None
        with pytest.raises(zc.ZeroCopyError):
            zc.soa_to_aos(other, records.dtype)
    for value in (None, 3, records.reshape(2, 5), records.view(np.recarray), np.zeros(3)):
        assert core.split_records(value, LAYOUTS) is None
        assert core.join_columns(value, None, LAYOUTS) is None
    LAYOUTS.clear()
    raw = records.view(np.uint8)
    zc.aos_to_soa(raw, dtype=records.dtype)
    assert core.split_records(raw, LAYOUTS) is None
    views = zc.aos_to_soa(records, copy=False)
    assert core.join_columns(views, records.dtype, LAYOUTS) is None
    assert np.shares_memory(zc.soa_to_aos(views, records.dtype), records)


def test_metadata_of_dtypes_is_kept() -> None:
    """Equal dtypes may have other metadata."""
    marked = np.dtype("f8", metadata={"unit": "m"})
    plain, other = np.zeros(3), np.zeros(3, marked)
    assert zc.soa_to_aos({"a": plain, "b": plain}).dtype["a"].metadata is None
    assert zc.soa_to_aos({"a": other, "b": plain}).dtype["a"].metadata == {"unit": "m"}
    assert zc.soa_to_aos({"a": plain, "b": plain}).dtype["a"].metadata is None


def test_no_more_than_256_layouts_are_kept() -> None:
    for i in range(600):
        records = np.zeros(2, [("a", "i4"), (f"b{i}", "f4")])
        zc.soa_to_aos(zc.aos_to_soa(records))
        assert len(LAYOUTS) <= 256
