"""Arrays with known values."""

from __future__ import annotations

import numpy as np

from zerocopy.protocols.array_interface import aligned_empty


def aligned(values: object, dtype: object = None) -> np.ndarray:
    """Return a writable, row-major, 64-byte aligned array with the given values."""
    source = np.asarray(values, dtype)
    array = aligned_empty(source.shape, source.dtype)
    array[...] = source
    return array


def sample(dtype: object, shape: tuple[int, ...] = (4, 3)) -> np.ndarray:
    """Return small values of a dtype, with negative and complex ones if the dtype has them."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    numbers = np.arange(count) % 7 - (0 if dtype.kind in "ub" else 3)
    if dtype.kind == "b":
        numbers = numbers % 2
    values = numbers.astype(dtype)
    if dtype.kind == "c":
        values = (values + 1j * (numbers + 1)).astype(dtype)
    return aligned(values.reshape(shape))


def bits(array: np.ndarray) -> bytes:
    """Return the bytes of an array's values, to compare NaN and -0.0 exactly."""
    return np.ascontiguousarray(array).tobytes()
