"""Columns at adversarial distances: no distance says which memory belongs to which allocation.

The columns are cut from one block at gaps that allocators leave. Each has an owner of its own, or all have
one; `storage_extent` compares the storages of the results with the owners.
"""

from __future__ import annotations

import ctypes
from random import Random
from typing import Any

import numpy as np

from helpers.hostile.case import Built, keep, memory

#: Bytes between allocations: none, headers of allocators, alignment, pages; negative ones overlap.
_GAPS = [0, 0, 1, 4, 8, 8, 16, 16, 24, 32, 48, 56, 64, 64, 128, 4096 - 16, 4096, 4112, -1, -8]
_TYPES = ["f8", "f8", "f4", "i8", "i4", "i2", "u1", "i1", "u8", "?", "c8", "f2"]
_OPTIONS: list[dict[str, Any]] = [
    *[{"layout": "matrix"}] * 4,
    *({"layout": "matrix", "order": order} for order in "CF"),
    {"layout": "matrix", "copy": False},
    {"layout": "records"},
    {"layout": "columns"},
    {},
]


def _place(rng: Random, block: np.ndarray, count: int, nbytes: int) -> list[int]:
    """Return the offset in a block of each column: equally spaced, or not, in any order."""
    gap, start = rng.choice(_GAPS), rng.choice([0, 8, 16, 64, 1024])
    gaps = [gap] * count if rng.random() < 0.85 else [rng.choice(_GAPS) for _ in range(count)]
    places = [start]
    for each in gaps[1:]:
        places.append(max(0, places[-1] + nbytes + each))
    way = rng.random()
    if way < 0.12:
        places.reverse()
    elif way < 0.2:
        rng.shuffle(places)
    elif way < 0.24:
        places[-1] = places[0]
    assert max(places) + nbytes <= len(block)
    return places


def _columns(rng: Random, dtype: np.dtype, rows: int, count: int) -> tuple[list[np.ndarray], str]:
    """Return columns of one length and type, and how their memory is owned."""
    nbytes = rows * dtype.itemsize
    way = rng.choice(["own", "own", "own", "slices", "malloc", "fields", "rows"])
    if way == "malloc":
        return [_filled(rng, np.empty(rows, dtype)) for _ in range(count)], way
    if way == "fields":
        names = [f"f{k}" for k in range(count)]
        record = np.dtype({"names": names, "formats": [dtype] * count}, align=rng.random() < 0.5)
        records = _filled(rng, np.zeros(rows, record))
        return [records[name] for name in rng.sample(names, count)], way
    if way == "rows":
        matrix = _filled(rng, np.empty((rows, count + rng.randrange(3)), dtype, order=rng.choice("CF")))
        return [matrix[:, k] for k in rng.sample(range(matrix.shape[1]), count)], way
    block = memory(rng, 1024 + count * (nbytes + 4200))
    if dtype.kind == "b":
        block &= 1
    places = _place(rng, block, count, nbytes)
    if way == "slices":
        return [block[at : at + nbytes].view(dtype) for at in places], f"slices at {places}"
    owners = [(ctypes.c_char * nbytes).from_address(block.ctypes.data + at) for at in places]
    return [np.frombuffer(owner, dtype) for owner in owners], f"owners at {places}"


def _filled(rng: Random, array: np.ndarray) -> np.ndarray:
    raw = np.frombuffer(rng.randbytes(array.nbytes), np.uint8) & 1
    array[...] = raw.view(array.dtype).reshape(array.shape)
    return array


def build_columns(rng: Random) -> Built:
    """Return a table of such columns, and the matrix of their values if that is the layout."""
    dtype, rows = np.dtype(rng.choice(_TYPES)), rng.choice([1, 1, 2, 3, 8, 64])
    arrays, text = _columns(rng, dtype, rows, rng.choice([1, 2, 2, 3, 4]))
    options = dict(rng.choice(_OPTIONS))
    expected = np.stack(arrays, axis=1) if str(options.get("layout")).startswith("matrix") else None
    way = rng.choice(list(_TABLES))
    try:
        obj = _TABLES[way](arrays)
    except Exception as error:  # noqa: BLE001 - the framework lacks the type, or refuses the strides
        obj, way = _as_dict(arrays), f"dict (not {way}: {type(error).__name__})"
    target = _target(rng, str(options.get("layout", "")))
    owned = obj if way == "slices" else [obj, arrays]  # frameworks lose the owners of NumPy's arrays
    shown = f"{way} of {dtype} x {rows}, {text}"
    return Built(obj, shown, expected=expected, options=options, allocations=owned, target=target)


def _target(rng: Random, layout: str) -> str:
    if layout == "records":
        return "numpy"
    tensors = ["numpy", "torch", "torch", "jax", "tensorflow"]
    return rng.choice(tensors if layout else [*tensors, "pandas", "polars", "pyarrow", "duckdb", "nanoarrow"])


def _named(values: Any) -> dict[str, Any]:
    return {f"c{k}": value for k, value in enumerate(values)}


def _as_dict(arrays: list[np.ndarray]) -> Any:
    return _named(arrays)


def _as_tensors(arrays: list[np.ndarray]) -> Any:
    import torch

    return _named(map(torch.from_numpy, arrays))


def _as_arrow(arrays: list[np.ndarray]) -> Any:
    import pyarrow as pa

    return pa.table(_named(arrays))


def _as_buffers(arrays: list[np.ndarray]) -> Any:
    import pyarrow as pa

    def column(array: np.ndarray) -> Any:
        kind = pa.from_numpy_dtype(array.dtype)
        if not array.flags.c_contiguous or array.dtype.kind == "b":
            raise TypeError("not one buffer of elements")
        return pa.Array.from_buffers(kind, len(array), [None, pa.py_buffer(array)])

    return pa.table(_named(map(column, arrays)))


def _as_slices(arrays: list[np.ndarray]) -> Any:
    """Return Arrow columns whose buffers are slices of one buffer, as in an IPC message."""
    import pyarrow as pa

    low = min(array.ctypes.data for array in arrays)
    nbytes = arrays[0].nbytes
    high = max(array.ctypes.data for array in arrays) + nbytes
    if high - low > len(arrays) * (nbytes + 4200) or not all(a.flags.c_contiguous for a in arrays):
        raise TypeError("separate memory")
    if arrays[0].dtype.kind == "b" or arrays[0].base is None:
        raise TypeError("bits, or malloc's memory")
    keep(arrays)  # the buffer refers to their memory by its address
    whole = pa.py_buffer((ctypes.c_char * (high - low)).from_address(low))
    kind = pa.from_numpy_dtype(arrays[0].dtype)
    parts = [whole.slice(array.ctypes.data - low, nbytes) for array in arrays]
    return pa.table(_named([pa.Array.from_buffers(kind, len(arrays[0]), [None, part]) for part in parts]))


def _as_frame(arrays: list[np.ndarray]) -> Any:
    import pandas as pd

    columns = [pd.Series(array, copy=False, name=f"c{k}") for k, array in enumerate(arrays)]
    return pd.concat(columns, axis=1)


def _as_polars(arrays: list[np.ndarray]) -> Any:
    import polars as pl

    return pl.DataFrame([pl.Series(f"c{k}", array) for k, array in enumerate(arrays)])


_TABLES = {
    "dict": _as_dict,
    "tensors": _as_tensors,
    "arrow": _as_arrow,
    "buffers": _as_buffers,
    "slices": _as_slices,
    "pandas": _as_frame,
    "polars": _as_polars,
}
