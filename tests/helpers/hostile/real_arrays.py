"""Valid arrays of every framework with odd properties, with the values that a conversion must return."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from helpers.hostile.case import Built, memory
from zerocopy.strided_view import MAX_NDIM

_NUMPY = ["f4", "f8", "f2", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?", "c8", "c16"]
_ML = [
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e8m0fnu",
    "int4",
    "uint4",
    "int2",
]
_ML += ["float4_e2m1fn", "float8_e3m4", "float6_e2m3fn"]
_OTHER = [
    ">f4",
    ">i8",
    ">u2",
    "M8[s]",
    "m8[ms]",
    "M8[D]",
    "M8",
    "M8[7s]",
    "S3",
    "U2",
    "V5",
    "O",
    "g",
    "G",
    ">M8[s]",
]


def _dtype(rng: Random) -> np.dtype:
    way = rng.random()
    if way < 0.65:
        return np.dtype(rng.choice(_NUMPY))
    if way < 0.8:
        import ml_dtypes

        name = rng.choice(_ML)
        return np.dtype(getattr(ml_dtypes, name, np.float32))
    return np.dtype(rng.choice(_OTHER))


def numpy_array(rng: Random) -> tuple[np.ndarray, np.ndarray]:
    """Return an array with odd strides, alignment or flags over real memory, and that memory."""
    dtype = _dtype(rng)
    if dtype.hasobject:
        return np.array([None, 1, "x"] * 4, object)[: rng.choice([0, 1, 12])], np.zeros(0, np.uint8)
    shape = rng.choice([(), (1,), (12,), (3, 4), (2, 3, 2), (1, 12, 1), (0,), (3, 0, 2), (1, 1), (12, 1)])
    count = int(np.prod(shape, dtype=int)) * 2 * max(dtype.itemsize, 1)
    block = memory(rng, count + 128)
    if dtype.kind == "b" or dtype.name in ("int2", "int4", "uint4", "float4_e2m1fn"):
        block &= 1  # other bits of these types have no meaning
    start = rng.choice([0, 0, 0, 64, 16, dtype.itemsize, 1, 3])
    x = block[start : start + int(np.prod(shape, dtype=int)) * dtype.itemsize].view(dtype).reshape(shape)
    for axis in range(x.ndim):
        index: list[Any] = [slice(None)] * x.ndim
        way = rng.random()
        if way < 0.15:
            index[axis] = slice(None, None, -1)
        elif way < 0.3:
            index[axis] = slice(None, None, 2)
        elif way < 0.36:
            index[axis] = slice(1, None)
        x = x[tuple(index)]
    return _odd_view(rng, x), block


def _odd_view(rng: Random, x: np.ndarray) -> np.ndarray:
    way = rng.random()
    if way < 0.15:
        x = x.T
    elif way < 0.22:
        x = np.broadcast_to(x, (2, *x.shape))
    elif way < 0.27 and x.ndim == 1 and x.size > 4 and x.strides[0] > 0:
        x = np.lib.stride_tricks.as_strided(x, (3, 2), (x.strides[0], x.strides[0]))
    elif way < 0.32 and x.dtype.str != "<f1":  # as_strided() refuses some dtypes of ml_dtypes
        shape = (1, *x.shape)
        x = np.lib.stride_tricks.as_strided(x, shape, (rng.choice([0, -8, 2**40, 7, -(2**62)]), *x.strides))
    elif way < 0.35:
        x = x.reshape((1,) * (rng.choice([8, 32, MAX_NDIM]) - x.ndim) + x.shape)
    if rng.random() < 0.2:
        x = x.view()
        x.flags.writeable = False
    return x


def build(rng: Random) -> Built:
    """Return an array of a framework; the values are those of the NumPy array that it was made from."""
    x, block = numpy_array(rng)
    text = f"{x.dtype} {x.shape} strides {x.strides} {'' if x.flags.writeable else 'read-only'}"
    way = rng.choice(
        ["numpy", "numpy", "numpy", "torch", "torch", "jax", "tensorflow", "pyarrow", "table", "structured"]
    )
    if way == "structured":
        from helpers.hostile.tables import structured

        y = structured(rng)
        block = (y if y.base is None else y.base).view(np.uint8)  # with the padding, which a copy changes
        return Built(y, f"structured {y.dtype} {y.shape}", [block])
    if way != "numpy":
        try:
            made = _IN[way](rng, x)
        except BaseException as error:  # noqa: BLE001 - the framework refuses it; polars panics
            text += f" (not {way}: {type(error).__name__})"
        else:
            return Built(made, f"{way} {text}", [block], x.copy(), plain=True)
    values = x.copy() if x.dtype.kind != "O" else None
    return Built(x, f"numpy {text}", [block], values, plain=True)


def _torch(rng: Random, x: np.ndarray) -> Any:
    import torch

    if x.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e8m0fnu"):
        plain = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)
        return torch.from_numpy(plain).view(getattr(torch, x.dtype.name))
    if any(s < 0 for s in x.strides) or not x.flags.writeable:
        x = x.copy()
    made = torch.from_numpy(x)
    if made.is_complex() and rng.random() < 0.3:
        return made.conj().resolve_conj().conj()  # lazy
    return made.requires_grad_() if made.is_floating_point() and rng.random() < 0.2 else made


def _jax(rng: Random, x: np.ndarray) -> Any:
    import jax.numpy as jnp

    return jnp.array(x)


def _tensorflow(rng: Random, x: np.ndarray) -> Any:
    import tensorflow as tf

    if x.dtype.kind in "SUMmV":
        raise TypeError("not a number")
    return tf.constant(x)


def _pyarrow(rng: Random, x: np.ndarray) -> Any:
    import pyarrow as pa

    if x.dtype.kind in "SUMmVgG" or x.dtype.name in _ML or not x.dtype.isnative:  # a Tensor drops the order
        raise TypeError("not a number")
    return pa.Tensor.from_numpy(x) if rng.random() < 0.5 else pa.array(x)


def _table(rng: Random, x: np.ndarray) -> Any:
    import pandas as pd
    import polars as pl

    if x.dtype.kind not in "iuf" or x.dtype.itemsize == 1 or x.ndim != 1:
        raise TypeError("not a column")
    return rng.choice([pl.Series, pd.Series])(x)


_IN = {"torch": _torch, "jax": _jax, "tensorflow": _tensorflow, "pyarrow": _pyarrow, "table": _table}
