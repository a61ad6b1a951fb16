"""Series and memory shared by the tests of pandas."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from zerocopy.protocols.array_interface import address

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")


NUMBERS = [
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "bool", "complex64", "complex128"),
]


def buffers(array) -> Iterator[tuple[int, int]]:
    """The address and size of each buffer of an Arrow array except the bitmaps."""
    for chunk in getattr(array, "chunks", [array]):
        if isinstance(chunk, pa.ExtensionArray):
            chunk = chunk.storage
        if pa.types.is_struct(chunk.type):
            for i in range(chunk.type.num_fields):
                yield from buffers(chunk.field(i))
        elif pa.types.is_list(chunk.type):
            yield chunk.buffers()[1].address, chunk.buffers()[1].size
            yield from buffers(chunk.values)
        else:
            yield from ((b.address, b.size) for b in chunk.buffers()[1:] if b)


def storage(series) -> list[tuple[int, int]]:
    """The buffers of a pandas series, NumPy-backed or Arrow-backed."""
    if isinstance(series.dtype, np.dtype):
        array = series.to_numpy(copy=False)
        return [(address(array), array.nbytes)]
    return list(buffers(pa.chunked_array(series)))


def numbers(dtype: str) -> np.ndarray:
    return np.array([0, 1, 1, 0, 1]).astype(dtype)
