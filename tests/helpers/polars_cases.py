"""Series and memory shared by the tests of polars."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

import zerocopy as zc
from zerocopy.protocols import arrow_c

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")


DAY = dt.datetime(2024, 2, 29, 12, 30)


LONG = "more than twelve bytes, so that it is stored outside its view"


def series(values: list, dtype: object = None, name: str = "x") -> pl.Series:
    return pl.Series(name, values, dtype=dtype)


#: Columns of polars that are exported without a copy.
ALIASED = {
    **{str(t): series([1, 2, 3], t) for t in (pl.Int8, pl.Int16, pl.Int32, pl.Int64)},
    **{str(t): series([1, 2, 3], t) for t in (pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)},
    **{str(t): series([1.5, -0.0, 3.0], t) for t in (pl.Float16, pl.Float32, pl.Float64)},
    "nulls": series([1, None, 3]),
    "bool": series([True, None, False]),
    "string": series(["a", None, LONG]),
    "binary": series([b"a", None, LONG.encode()]),
    "date": series([DAY.date(), None, DAY.date()]),
    "datetime": series([DAY, None, DAY], pl.Datetime("us")),
    "zone": series([DAY, None, DAY], pl.Datetime("ns", "Europe/Paris")),
    "duration": series([dt.timedelta(1), None, dt.timedelta(2)], pl.Duration("ms")),
    "time": series([dt.time(1), None, dt.time(2)]),
    "decimal": series([Decimal("1.25"), None, Decimal("-3.5")], pl.Decimal(10, 2)),
    "enum": series(["a", None, "b"], pl.Enum(["b", "a"])),
    "list": series([[1, 2], None, []], pl.List(pl.Int64)),
    "array": series([[1.0, 2.0], None, [3.0, 4.0]], pl.Array(pl.Float64, 2)),
    "struct": series([{"a": 1, "b": "x"}, {"a": None, "b": LONG}, {"a": 3, "b": "z"}]),
}


FLAT = [k for k in ALIASED if k not in ("list", "array", "struct", "enum")]


def memory_of(obj: object) -> list[arrow_c.Memory]:
    return [arrow_c.read_array(obj)] if isinstance(obj, pa.Array) else list(arrow_c.read_stream(obj)[1])


def blocks(obj: object) -> set[int]:
    """Return the addresses of a column's values, without bitmaps and the sizes of a view's blocks."""
    addresses = set()

    def walk(chunk: arrow_c.Memory) -> None:
        views = chunk.field.kind in ("string_view", "binary_view")
        addresses.update(chunk.buffers[1:-1] if views else chunk.buffers[1:])
        for child in (*chunk.children, *([chunk.dictionary] if chunk.dictionary else [])):
            walk(child)

    for chunk in memory_of(obj):
        walk(chunk)
    return addresses - {0}


def leaf(plan: zc.Plan, name: str = "x") -> zc.Plan:
    return plan.leaves[f"[{name!r}]"]


class Streamed:
    """An object with ``__arrow_c_stream__`` only."""

    def __init__(self, obj: object) -> None:
        self._obj = obj

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._obj.__arrow_c_stream__(requested_schema)
