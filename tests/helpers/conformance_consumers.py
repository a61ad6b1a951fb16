"""Consumers of the frameworks for docs/conformance.py: each imports an object of another library."""

from __future__ import annotations

from typing import Any


def numpy_from_dlpack(x: Any) -> Any:
    import numpy

    return numpy.from_dlpack(x)


def numpy_asarray(x: Any) -> Any:
    import numpy

    return numpy.asarray(x)


def torch_from_dlpack(x: Any) -> Any:
    import torch

    return torch.from_dlpack(x)


def torch_asarray(x: Any) -> Any:
    import torch

    return torch.asarray(x)


def jax_from_dlpack(x: Any) -> Any:
    import jax.dlpack

    return jax.dlpack.from_dlpack(x)


def tensorflow_from_dlpack(x: Any) -> Any:
    import tensorflow as tf

    return tf.experimental.dlpack.from_dlpack(x.__dlpack__())


def tensorflow_constant(x: Any) -> Any:
    import tensorflow as tf

    return tf.constant(x)


def pyarrow_array(x: Any) -> Any:
    import pyarrow as pa

    return pa.array(x)


def pyarrow_table(x: Any) -> Any:
    import pyarrow as pa

    return pa.table(x)


def pyarrow_from_dlpack(x: Any) -> Any:
    import pyarrow as pa

    return pa.Array.from_dlpack(x)


def polars_frame(x: Any) -> Any:
    import polars as pl

    return pl.DataFrame(x)


def polars_series(x: Any) -> Any:
    import polars as pl

    return pl.Series(x)


def pandas_from_arrow(x: Any) -> Any:
    import pandas as pd

    return pd.DataFrame.from_arrow(x)


def nanoarrow_array(x: Any) -> Any:
    import nanoarrow as na

    return na.Array(x)


def tvm_ffi_from_dlpack(x: Any) -> Any:
    import tvm_ffi

    return tvm_ffi.from_dlpack(x)


def paddle_from_dlpack(x: Any) -> Any:
    import paddle

    return paddle.from_dlpack(x)


def warp_from_dlpack(x: Any) -> Any:
    import warp

    return warp.from_dlpack(x)


def mlx_array(x: Any) -> Any:
    import mlx.core

    return mlx.core.array(x)


def zerocopy_to_numpy(x: Any) -> Any:
    import zerocopy as zc

    result = zc.convert(x, to="numpy")
    return next(iter(result.values())) if isinstance(result, dict) else result  # of one column
