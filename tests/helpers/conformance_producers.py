"""Producers of the frameworks for docs/conformance.py: each returns a new object of a framework."""

from __future__ import annotations

import array
from typing import Any

import numpy as np

VALUES = np.arange(1.0, 7.0, dtype=np.float32)


def python_array() -> Any:
    return array.array("f", VALUES.tolist())


def python_bytearray() -> Any:
    return bytearray(VALUES.tobytes())


def numpy_array(dtype: str = "float32", shape: tuple[int, ...] = (2, 3)) -> Any:
    return np.arange(1, 1 + np.prod(shape, dtype=int)).astype(dtype).reshape(shape)


def numpy_read_only() -> Any:
    x = numpy_array()
    x.flags.writeable = False
    return x


def numpy_reversed() -> Any:
    return numpy_array()[::-1]


def torch_tensor(dtype: str = "float32", shape: tuple[int, ...] = (2, 3)) -> Any:
    import torch

    return torch.from_numpy(numpy_array(dtype, shape).copy())


def torch_bfloat16() -> Any:
    import torch

    return torch.arange(1, 7, dtype=torch.bfloat16)


def torch_negative_bit() -> Any:
    import torch

    return torch.tensor([1 + 2j, 3 + 4j]).conj().imag


def jax_array(dtype: str = "float32", shape: tuple[int, ...] = (2, 3)) -> Any:
    import jax.numpy

    return jax.numpy.asarray(numpy_array(dtype, shape))


def jax_deleted() -> Any:
    x = jax_array()
    x.delete()
    return x


def tensorflow_tensor() -> Any:
    import tensorflow as tf

    return tf.constant(VALUES)


def tensorflow_variable() -> Any:
    import tensorflow as tf

    return tf.Variable(VALUES)


def pyarrow_array() -> Any:
    import pyarrow as pa

    return pa.array(VALUES)


def pyarrow_nulls() -> Any:
    import pyarrow as pa

    return pa.array(["a", None, "long text, longer than twelve"])[1:]


def pyarrow_table() -> Any:
    import pyarrow as pa

    return pa.table({"a": [1, 2, None], "b": [["x"], [], ["y", "z"]]})


def pyarrow_batch() -> Any:
    return pyarrow_table().to_batches()[0]


def pyarrow_tensor() -> Any:
    import pyarrow as pa

    return pa.Tensor.from_numpy(numpy_array())


def polars_series() -> Any:
    import polars as pl

    return pl.Series("a", [1, 2, None])


def polars_frame() -> Any:
    import polars as pl

    return pl.DataFrame({"a": [1, 2, None], "b": ["x", None, "y"]})


def pandas_frame() -> Any:
    import pandas as pd

    return pd.DataFrame({"a": [1, 2, 3], "b": ["x", None, "y"]})


def pandas_series() -> Any:
    import pandas as pd

    return pd.Series(VALUES)


def duckdb_relation() -> Any:
    import duckdb

    return duckdb.sql("select 1 as a union all select 2")


def nanoarrow_array() -> Any:
    import nanoarrow as na

    return na.Array([1, 2, None], na.int64())


def nanoarrow_c_array() -> Any:
    import nanoarrow as na

    return na.c_array([1, 2, None], na.int64())


def awkward_array() -> Any:
    import awkward as ak

    return ak.Array(VALUES)


def xarray_array() -> Any:
    import xarray as xr

    return xr.DataArray(VALUES)


def tvm_ffi_tensor() -> Any:
    import tvm_ffi

    return tvm_ffi.from_dlpack(VALUES.copy())


def astropy_quantity() -> Any:
    from astropy import units

    return VALUES * units.m


def narwhals_frame() -> Any:
    import narwhals as nw

    return nw.from_native(polars_frame())


def pillow_image() -> Any:
    from PIL import Image

    return Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))


def pillow_bits() -> Any:
    from PIL import Image

    return Image.fromarray(np.eye(4, dtype=bool))


def paddle_tensor() -> Any:
    import paddle

    return paddle.to_tensor(VALUES)


def warp_array() -> Any:
    import warp

    return warp.array(VALUES, device="cpu")


def mlx_array() -> Any:
    import mlx.core

    return mlx.core.array(VALUES)


def onnxruntime_value() -> Any:
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(VALUES.copy())


def datasets_table() -> Any:
    import datasets

    return datasets.Dataset.from_dict({"a": [1, 2, 3]}).data


def zerocopy_view() -> Any:
    import zerocopy as zc

    return zc.view(VALUES.copy())
