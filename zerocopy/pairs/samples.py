"""Data to convert: Fisher's iris measurements, and columns of every type, which need pyarrow."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib.resources import files
from typing import Any

import numpy as np

from zerocopy import registry
from zerocopy.dtype import by_name, to_numpy
from zerocopy.protocols.array_interface import aligned_copy
from zerocopy.source import Array

_HUB = "pyarrow"
_ROWS = 96  # divisible by 3 chunks, and by 8 bits
_TEXTS = ("", "a", "Zürich", "longer than the twelve bytes that a view holds", "b")


@dataclass(frozen=True, slots=True)
class Data:
    """Arrays by name, and their origin; all are row-major, in native byte order and 64-byte aligned."""

    name: str
    arrays: dict[str, Array]
    left_out: dict[str, str] = field(default_factory=dict)  # the reason, by column
    note: str = ""
    columns: dict[str, Any] = field(default_factory=dict)  # of a table, as ``pyarrow.ChunkedArray``
    by_type: bool = False  # whether the columns are called after their types
    subbyte: dict[str, Array] = field(default_factory=dict)  # arrays of types with fewer than 8 bits


def iris() -> Data:
    """Return Fisher's iris measurements, 150 x 4 lengths in cm, and with pyarrow a column of each type.

    Examples
    --------
    >>> iris().arrays["iris"].shape
    (150, 4)
    """
    text = (files("zerocopy.pairs") / "data" / "iris.csv").read_text(encoding="utf-8")
    rows = [[float(x) for x in line.split(",")] for line in text.splitlines()[1:]]
    arrays, columns = {"iris": aligned_copy(np.array(rows, np.float32))}, {} if missing() else samples()
    note = "Fisher's flowers, 1936"
    return Data("iris", arrays, note=note, columns=columns, by_type=True, subbyte=subbyte())


def subbyte() -> dict[str, Array]:
    """Return an array with every value of each type with 2 or 4 bits; none without ml_dtypes.

    Frameworks that pack these types copy them, and some keep the unpacked copy.
    """
    arrays = {}
    for name in ("int2", "uint2", "int4", "uint4", "float4_e2m1fn"):
        dtype = to_numpy(by_name(name))
        if dtype is not None:
            bits = np.arange(2 ** by_name(name).bits, dtype=np.uint8)
            arrays[name] = aligned_copy(bits.view(dtype))
    return arrays


def missing() -> str | None:
    """Return why columns cannot be tried; None if pyarrow is installed."""
    hub = registry.by_name(_HUB)
    return None if hub.installed() else f"Columns by type need pyarrow: pip install {hub.distribution}"


def samples() -> dict[str, Any]:
    """Return a column of each type, as ``pyarrow.ChunkedArray``, by name.

    The first word of a name is the type; the rest describes the column.
    """
    pa = registry.by_name(_HUB).module()
    rows = range(_ROWS)

    def with_nulls(values: list[Any]) -> list[Any]:
        return [None if i % 7 == 3 else value for i, value in enumerate(values)]

    integers = [i * 1_000_003 - 40_000_000 for i in rows]
    texts = [_TEXTS[i % 5] for i in rows]
    days = [date(1969, 12, 1) + timedelta(i) for i in rows]
    moments = [datetime(1969, 12, 1, 23, 59, 59, i) for i in rows]
    third = _ROWS // 3
    chunks = [pa.array(integers[i : i + third]) for i in range(0, _ROWS, third)]
    pairs = pa.struct([("a", pa.int32()), ("b", pa.float64())])
    columns = {
        "int64": pa.array(integers),
        "int64 nulls": pa.array(with_nulls(integers)),
        "int64 chunks": pa.chunked_array(chunks),
        "float32": pa.array([i / 4 - 3 for i in rows], pa.float32()),
        "bool": pa.array([i % 3 == 0 for i in rows]),
        "bool nulls": pa.array(with_nulls([i % 3 == 0 for i in rows])),
        "date": pa.array(days, pa.date32()),
        "timestamp": pa.array(moments, pa.timestamp("us")),
        "timestamp zone": pa.array(moments, pa.timestamp("us", "Europe/Paris")),
        "time": pa.array([time(i % 24, 59, 59, i) for i in rows], pa.time64("us")),
        "duration": pa.array([timedelta(microseconds=i - 5) for i in rows], pa.duration("us")),
        "decimal": pa.array([Decimal(i - 50).scaleb(-2) for i in rows], pa.decimal128(12, 2)),
        "string": pa.array(texts),
        "string nulls": pa.array(with_nulls(texts)),
        "binary": pa.array([text.encode() for text in texts]),
        "categorical": pa.array(texts).dictionary_encode(),
        "list": pa.array([list(range(i % 4)) for i in rows], pa.list_(pa.int32())),
        "fixed-size list": pa.array([[i, i + 0.5] for i in rows], pa.list_(pa.float32(), 2)),
        "struct": pa.array([{"a": i, "b": i / 2} for i in rows], pairs),
    }
    return {name: _chunked(pa, column) for name, column in columns.items()}


def _chunked(pa: Any, column: Any) -> Any:
    return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def pick(columns: dict[str, Any], wanted: list[str]) -> dict[str, Any]:
    """Return the columns with these names, first words of names, or types; raise LookupError for others."""
    picked: set[str] = set()
    for word in wanted:
        matches = {
            name
            for name, column in columns.items()
            if word in (name, name.partition(" ")[0], str(column.type))
        }
        if not matches:
            near = difflib.get_close_matches(word, columns, n=2)
            hint = f"did you mean {' or '.join(map(repr, near))}" if near else f"known: {', '.join(columns)}"
            raise LookupError(f"no column or type is called {word!r}; {hint}")
        picked |= matches
    return {name: column for name, column in columns.items() if name in picked}
