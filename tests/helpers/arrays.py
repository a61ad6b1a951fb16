"""Arrays with known values."""

from __future__ import annotations

import numpy as np

from zerocopy.protocols.array_interface import aligned_empty


def aligned(values: object, dtype: object = None) -> np.ndarray:
    """Return a writable, row-major array at a multiple of 64 bytes with those values."""
    given = np.asarray(values, dtype)
    array = aligned_empty(given.shape, given.dtype)
    array[...] = given
    return array


def sample(dtype: object, shape: tuple[int, ...] = (4, 3)) -> np.ndarray:
    """Return distinct small values of a dtype, negative and complex ones where it has them."""
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
    """Return the bytes of an array's values: equal for NaN and -0.0 too."""
    return np.ascontiguousarray(array).tobytes()
