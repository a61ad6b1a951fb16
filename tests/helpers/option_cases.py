"""Options of ``convert``, objects to convert with them, and what a caller can observe of the result."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import zerocopy as zc
from helpers.arrays import aligned, bits, sample

OPTIONS: list[dict[str, Any]] = [
    {"copy": False},
    {"copy": True},
    {"copy": None},
    {"writable": True},
    {"writable": False},
    {"writable": None, "copy": None},
    {"copy": False, "writable": True},
    {"copy": False, "writable": False},
    {"copy": True, "writable": True},
    {"copy": True, "writable": False},
    {"device": "cpu"},
    {"device": (1, 0)},
    {"device": zc.Device(1, 0), "copy": False},
    {"dtype": "float32"},
    {"dtype": np.float32, "copy": False},
    {"dtype": np.dtype("f4"), "writable": True},
    {"dtype": "float64", "copy": True},
    {"leaves": "keep"},
    {"leaves": "keep", "copy": True, "device": "cpu"},
]

LAYOUTS = {
    "aligned": aligned(np.arange(64, dtype="f4")),
    "misaligned to 64 bytes": aligned(np.arange(65, dtype="f4"))[1:],
    "two dimensions": sample("f4", (4, 8)),
    "Fortran order": np.asfortranarray(sample("f4", (4, 8))),
    "strided": aligned(np.arange(64, dtype="f4"))[::2],
    "reversed": aligned(np.arange(64, dtype="f4"))[::-1],
    "broadcast": np.broadcast_to(aligned([1, 2, 3], "f4"), (2, 3)),
    "size 1 with a negative stride": aligned(np.arange(64, dtype="f4"))[:1][::-1],
    "no dimensions": aligned(3, "f4"),
    "no elements": aligned([], "f4"),
    "no rows": np.empty((0, 3), "f4"),
    "misaligned to its items": np.frombuffer(bytearray(41), "f4", 10, 1),
    "swapped bytes": np.arange(4, dtype=">f4"),
    "text": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "objects": np.array([1, None], object),
    "records": np.zeros(3, [("a", "f4"), ("b", "i4")]),
}


def variants() -> dict[str, np.ndarray]:
    """Return the arrays of `LAYOUTS`, and read-only views of them."""
    arrays = dict(LAYOUTS)
    for name, array in LAYOUTS.items():
        frozen = array.view()
        frozen.flags.writeable = False
        arrays[f"{name}, read-only"] = frozen
    return arrays


def outcome(x: Any, to: str, options: dict[str, Any], convert: Callable[..., Any] = zc.convert) -> Any:
    """Return what a caller can observe of a conversion."""
    try:
        result = convert(x, to, **options)
    except (zc.ZeroCopyError, ValueError, TypeError) as error:
        code = getattr(error, "code", None)
        if code == "fast-path-raised":  # the frameworks of these tests compose
            raise
        return type(error), code, str(error)
    return type(result), result is x, describe(x, result)


def describe(x: Any, result: Any) -> Any:
    """Return an array's dtype, shape, values, aliasing and writability; for a dict, of each item."""
    if isinstance(result, dict):
        return {key: (type(key), describe(x, value)) for key, value in result.items()}
    try:
        view = zc.view(result)
    except zc.ZeroCopyError:
        if _is_query(x) and hasattr(result, "combine_chunks"):
            result = result.combine_chunks()  # each run of a query has its own chunks
        return _shares(x, result), _named(result)
    if view.size == 0:
        return view.dtype, view.shape
    shares = _shares(x, result)
    # Strides of dimensions of size 1 mean nothing.
    strides = tuple(s for s, n in zip(view.strides, view.shape, strict=True) if n > 1)
    plain = result.detach() if getattr(result, "requires_grad", False) else result
    back = bits(np.asarray(zc.convert(plain, "numpy")))
    # Writability is a property of NumPy's arrays; other frameworks' views depend on the exporter.
    writable = result.flags.writeable if isinstance(result, np.ndarray) else view.readonly
    return type(result), view.dtype, view.shape, strides, back, shares, writable


def _is_query(x: Any) -> bool:
    return type(x).__name__ == "DuckDBPyRelation"


def _shares(x: Any, result: Any) -> bool | None:
    """Return whether two objects share memory, None for a query or a stream."""
    with suppress(zc.ZeroCopyError):
        return None if _is_query(x) else zc.shares_memory(x, result)
    return None


def _named(result: Any) -> str:
    """Return the text of a result without its address, and the number that torch gives each ragged size."""
    return re.sub(r"0x[0-9a-f]+|\bj\d+", "", shown(result))


def shown(result: Any) -> str:
    """Return the text of a result."""
    try:
        return repr(result)
    except NotImplementedError:  # xarray 2025.4 cannot print text in Arrow's memory, which 2025.6 can
        return f"{result.to_dict(data=False)}\n{result.to_dataframe()}"
    except RuntimeError:  # an array of JAX is deleted
        return type(result).__name__


TABLE_OPTIONS: list[dict[str, Any]] = [
    *OPTIONS,
    {"columns": ["b", "a"]},
    {"columns": ("a",), "copy": False},
    {"columns": ["a"], "writable": True},
    {"columns": ["a", "a"]},
    {"columns": ["missing"]},
    {"columns": []},
    {"columns": ["text"]},
    {"columns": ["a"], "encode": True},
    {"index": False},
    {"nulls": {"a": 0}},
    {"layout": "matrix", "columns": ["a", "b"]},
    {"layout": "matrix", "index": False},
    *({"layout": "matrix", "order": order, "copy": copy} for order in "CF" for copy in (None, True, False)),
    {"layout": "matrix", "order": "F", "columns": ["b", "a"], "dtype": "float64"},
    {"layout": "matrix", "order": "F", "columns": ["b", "a"]},
    {"index": False, "columns": ["b"], "copy": False},
    {"index": True},
]


def tables() -> list[tuple[Any, list[Any]]]:
    """Return, for each type of table, a table of numbers and others of the type."""
    pa = pytest.importorskip("pyarrow")
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    numbers = {"a": np.arange(8.0), "b": np.arange(8, dtype="f4"), "c": np.arange(8)}
    plain = pa.table(numbers)
    odd = [
        pa.table({**numbers, "text": ["x"] * 8}),
        pa.table({**numbers, "d": pa.array([1, None] * 4)}),
        pa.table({"a": pa.array([1.0, None]), "b": [1, 2]}),
        pa.concat_tables([plain, plain]),
        pa.table([np.arange(8.0), np.arange(8.0), np.arange(8)], ["a", "a", "b"]),
        plain.slice(0, 0),
        plain.slice(1, 3),
    ]
    frame = pd.DataFrame(numbers)
    frames = [frame.set_index("c"), frame.iloc[::2], frame.assign(text="x"), frame[["a", "a", "b"]]]
    block = pd.DataFrame(np.arange(16.0).reshape(8, 2), columns=["a", "b"])
    blocks = [block.iloc[::2], block.iloc[::-1], pd.DataFrame({"a": np.arange(8.0), "b": np.arange(8.0)})]
    series = pl.DataFrame(numbers)
    return [
        (plain, odd),
        (plain.to_batches()[0], [t.to_batches()[0] for t in odd if t.num_rows and len(t.to_batches()) == 1]),
        (frame, frames),
        (block, [block.rename_axis("i"), block.set_index([["x"] * 8]), *blocks]),
        (series, [pl.DataFrame(t) for t in odd if len({*t.column_names}) == t.num_columns]),
    ]
