"""The types of ``convert`` for type checkers; nothing imports this file at run time.

``Literal`` targets give the target's type. Options for tables change the kind of the result, so calls
with them give ``Any``, as do tables in tensor frameworks, targets with several kinds of results, plugins
and other text. tests/test_typing.py compares the targets with the registry.
"""

# mypy reports overlaps of a container, or a table, with any object; the first overload that fits counts.
# mypy: disable-error-code="overload-overlap"

from types import ModuleType
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, Unpack, overload

import duckdb
import jax
import numpy as np
import pandas
import polars
import tensorflow
import torch

from zerocopy._engine.options import ArrayOptions, ConvertOptions

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")

class _Table(Protocol):
    """A table of any framework: a series has no ``columns``."""

    @property
    def columns(self) -> Any: ...

_NumPy: TypeAlias = Literal["numpy", "numpy.ndarray"]
_Torch: TypeAlias = Literal["torch", "torch.Tensor"]
_Jax: TypeAlias = Literal["jax", "jax.Array", "jax.numpy"]
_TensorFlow: TypeAlias = Literal["tensorflow", "tensorflow.Tensor"]
# Frameworks without types, or that few machines have: pyright reports Unknown where an import is missing.
_OnDevices: TypeAlias = Literal["cupy", "cupy.ndarray", "mxnet", "numba", "numba.cuda", "warp", "warp.array"]
_Others: TypeAlias = Literal[
    "awkward", "awkward.Array", "mlx", "mlx.core", "onnxruntime", "onnxruntime.OrtValue",
    "paddle", "paddle.Tensor", "tvm_ffi", "tvm_ffi.Tensor",
]  # fmt: skip
_Untyped: TypeAlias = _OnDevices | _Others
_Tensors: TypeAlias = _NumPy | _Torch | _Jax | _TensorFlow | _Untyped

@overload
def convert(obj: dict[_K, _V], to: _Tensors, **options: Unpack[ArrayOptions]) -> dict[_K, Any]:
    """Hand an array or a table to another framework: see ``help(zerocopy.convert)``."""

@overload
def convert(obj: list[Any], to: object, **options: Unpack[ConvertOptions]) -> list[Any]: ...
@overload
def convert(obj: tuple[Any, ...], to: object, **options: Unpack[ConvertOptions]) -> tuple[Any, ...]: ...
@overload
def convert(obj: _Table, to: _Tensors, **options: Unpack[ConvertOptions]) -> Any: ...
@overload
def convert(obj: object, to: _NumPy, **options: Unpack[ArrayOptions]) -> np.ndarray[Any, Any]: ...
@overload
def convert(obj: object, to: _Torch, **options: Unpack[ArrayOptions]) -> torch.Tensor: ...
@overload
def convert(obj: object, to: _Jax, **options: Unpack[ArrayOptions]) -> jax.Array: ...
@overload
def convert(obj: object, to: _TensorFlow, **options: Unpack[ArrayOptions]) -> tensorflow.Tensor: ...
@overload
def convert(
    obj: _Table, to: Literal["pandas", "pandas.DataFrame"], **options: Unpack[ConvertOptions]
) -> pandas.DataFrame: ...
@overload
def convert(
    obj: object, to: Literal["pandas.Series"], **options: Unpack[ConvertOptions]
) -> pandas.Series[Any]: ...
@overload
def convert(
    obj: _Table, to: Literal["polars", "polars.DataFrame"], **options: Unpack[ConvertOptions]
) -> polars.DataFrame: ...
@overload
def convert(
    obj: object, to: Literal["polars.Series"], **options: Unpack[ConvertOptions]
) -> polars.Series: ...
@overload
def convert(
    obj: _Table, to: Literal["duckdb"], **options: Unpack[ConvertOptions]
) -> duckdb.DuckDBPyRelation: ...
@overload
def convert(obj: object, to: ModuleType, **options: Unpack[ConvertOptions]) -> Any: ...
@overload
def convert(obj: dict[Any, Any] | _Table, to: type[Any], **options: Unpack[ConvertOptions]) -> Any: ...
@overload
def convert(obj: object, to: type[_T], **options: Unpack[ArrayOptions]) -> _T: ...
@overload
def convert(obj: object, to: str | type[Any], **options: Unpack[ConvertOptions]) -> Any: ...
