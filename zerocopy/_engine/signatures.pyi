"""The types of ``convert`` for type checkers; nothing imports this file at run time.

``Literal`` targets give the target's type; tables in tensor frameworks give a dict of it, and one with
``layout="matrix"``. Other options for tables change the kind of the result, so calls with them give
``Any``, as do targets with several kinds of results, and names in variables.
tests/engine/test_typing.py compares the targets and the options with the package.
"""

# mypy reports overlaps of a container, or a table, with any object; the first overload that fits counts.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Hashable, Mapping, Sequence
from types import ModuleType
from typing import (
    Any,
    Literal,
    Never,
    Protocol,
    TypeAlias,
    TypedDict,
    Unpack,
    overload,
)

import duckdb
import jax
import numpy as np
import pandas
import polars
import tensorflow
import torch
from typing_extensions import TypeVar

from zerocopy.framework import FrameworkName
from zerocopy.request import ArrayOptions, ConvertOptions, Fill, NullPolicy

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")
_R = TypeVar("_R", covariant=True)
#: The result for an array, and for a table; classes without parameters have results of type Any.
ResultT = TypeVar("ResultT", covariant=True, default=Any)
TableT = TypeVar("TableT", covariant=True, default=Any)

class TableLike(Protocol):
    """A table of any framework: a series has no ``columns``."""

    @property
    def columns(self) -> Any: ...

class Mismatch(Protocol[_R]):
    """``Mismatch[Never]``: no object has this type, but mypy considers it similar to every type.

    mypy then reports the one argument that does not match, instead of all overloads (``check_overload_call``:
    ``erased_targets``). pyright reports the overload that takes all keywords. Values of type Any match.
    """

    def __str__(self) -> _R: ...  # type: ignore[override]  # pyright: ignore

class NotAnOption(Mismatch[_R], Protocol[_R]):
    """The type of options that do not exist."""

NumPy: TypeAlias = Literal["numpy", "numpy.ndarray"]
Torch: TypeAlias = Literal["torch", "torch.Tensor"]
Jax: TypeAlias = Literal["jax", "jax.Array", "jax.numpy"]
TensorFlow: TypeAlias = Literal["tensorflow", "tensorflow.Tensor"]
# Frameworks without annotations or that few machines have: pyright reports a missing import as Unknown.
_OnDevices: TypeAlias = Literal[
    "cuda.core", "cuda.core.utils.StridedMemoryView", "cupy", "cupy.ndarray", "numba", "numba.cuda", "warp",
    "warp.array",
]  # fmt: skip
_Others: TypeAlias = Literal[
    "awkward", "awkward.Array", "mlx", "mlx.array", "mlx.core", "mlx.core.array", "mxnet", "mxnet.NDArray",
    "mxnet.nd", "mxnet.nd.NDArray", "onnxruntime", "onnxruntime.OrtValue", "paddle", "paddle.Tensor",
    "tvm_ffi", "tvm_ffi.Tensor",
]  # fmt: skip
_Untyped: TypeAlias = _OnDevices | _Others
Tensors: TypeAlias = NumPy | Torch | Jax | TensorFlow | _Untyped
_Tables: TypeAlias = Literal[
    "cudf", "datasets", "datasets.Dataset", "duckdb", "duckdb.DuckDBPyRelation", "nanoarrow",
    "nanoarrow.Array", "nanoarrow.ArrayStream", "pandas", "pandas.DataFrame", "pandas.Series", "polars",
    "polars.DataFrame", "polars.Series", "pyarrow", "pyarrow.Array", "pyarrow.ChunkedArray",
    "pyarrow.FixedShapeTensorArray", "pyarrow.RecordBatch", "pyarrow.RecordBatchReader", "pyarrow.Table",
    "pyarrow.Tensor", "pylibcudf", "pylibcudf.Column", "pylibcudf.Table", "xarray", "xarray.DataArray",
    "xarray.Dataset",
]  # fmt: skip
#: Arrays that are the columns of one table.
_Columns: TypeAlias = dict[Any, np.ndarray[Any, Any]] | dict[Any, torch.Tensor] | dict[Any, jax.Array]
_Compounds: TypeAlias = Literal[
    "scipy", "scipy.sparse.bsr_array", "scipy.sparse.coo_array", "scipy.sparse.csc_array",
    "scipy.sparse.csr_array", "sparse", "sparse.COO", "sparse.GCXS",
]  # fmt: skip

class _Array(Protocol):
    def __dlpack__(self, *, stream: Any = ...) -> Any: ...

class _Series(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = ...) -> object: ...

#: An object of the target in the argument ``to``, described by protocols: a class of a framework that is not
#: installed or not annotated is Any for type checkers, and every name would match it.
Like: TypeAlias = _Array | TableLike | _Series

class _Opened(Protocol):
    """Shared objects and weights, whose types do not name the type of their contents."""

    def __zerocopy_open__(self, target: str = ...) -> Any: ...

class ColumnOptions(TypedDict, total=False):
    """Options for tables with which each column remains one array."""

    columns: Sequence[Hashable] | None
    nulls: Fill | Mapping[Hashable, Fill | None] | None
    lists: Literal["dense", "pad"] | None
    pad_value: Any
    max_length: int | None

class TableOptions(ArrayOptions, ColumnOptions, total=False): ...

class MatrixOptions(TableOptions, total=False):
    order: Literal["C", "F"] | None

TensorObject = TypeVar("TensorObject", bound=_Array)
TableObject = TypeVar("TableObject", bound=TableLike | _Series)

#: The argument ``to`` of all functions.
Target: TypeAlias = Tensors | _Tables | _Compounds | FrameworkName | ModuleType | type[Any]

@overload
def convert(obj: dict[_K, _V], to: Tensors, **options: Unpack[ArrayOptions]) -> dict[_K, Any]:
    """Hand an array or a table to another framework: see ``help(zerocopy.convert)``."""

@overload
def convert(obj: list[Any], to: Target | Like, **options: Unpack[ConvertOptions]) -> list[Any]: ...
@overload
def convert(
    obj: tuple[Any, ...], to: Target | Like, **options: Unpack[ConvertOptions]
) -> tuple[Any, ...]: ...
@overload
def convert(obj: Mapping[Any, Any] | _Opened, to: Tensors, **options: Unpack[ConvertOptions]) -> Any: ...
@overload
def convert(
    obj: TableLike, to: NumPy, **options: Unpack[TableOptions]
) -> dict[Any, np.ndarray[Any, Any]]: ...
@overload
def convert(obj: TableLike, to: Torch, **options: Unpack[TableOptions]) -> dict[Any, torch.Tensor]: ...
@overload
def convert(obj: TableLike, to: Jax, **options: Unpack[TableOptions]) -> dict[Any, jax.Array]: ...
@overload
def convert(
    obj: TableLike, to: TensorFlow, **options: Unpack[TableOptions]
) -> dict[Any, tensorflow.Tensor]: ...
@overload
def convert(
    obj: TableLike, to: NumPy, *, layout: Literal["matrix"], **options: Unpack[MatrixOptions]
) -> np.ndarray[Any, Any]: ...
@overload
def convert(
    obj: TableLike, to: Torch, *, layout: Literal["matrix"], **options: Unpack[MatrixOptions]
) -> torch.Tensor: ...
@overload
def convert(
    obj: TableLike, to: Jax, *, layout: Literal["matrix"], **options: Unpack[MatrixOptions]
) -> jax.Array: ...
@overload
def convert(
    obj: TableLike, to: TensorFlow, *, layout: Literal["matrix"], **options: Unpack[MatrixOptions]
) -> tensorflow.Tensor: ...
@overload
def convert(obj: TableLike, to: Tensors, **options: Unpack[ConvertOptions]) -> Any: ...
@overload
def convert(obj: object, to: NumPy, **options: Unpack[ArrayOptions]) -> np.ndarray[Any, Any]: ...
@overload
def convert(obj: object, to: Torch, **options: Unpack[ArrayOptions]) -> torch.Tensor: ...
@overload
def convert(obj: object, to: Jax, **options: Unpack[ArrayOptions]) -> jax.Array: ...
@overload
def convert(obj: object, to: TensorFlow, **options: Unpack[ArrayOptions]) -> tensorflow.Tensor: ...
@overload
def convert(
    obj: TableLike | _Columns, to: Literal["pandas", "pandas.DataFrame"], **options: Unpack[ConvertOptions]
) -> pandas.DataFrame: ...
@overload
def convert(
    obj: object, to: Literal["pandas.Series"], **options: Unpack[ConvertOptions]
) -> pandas.Series[Any]: ...
@overload
def convert(
    obj: TableLike | _Columns, to: Literal["polars", "polars.DataFrame"], **options: Unpack[ConvertOptions]
) -> polars.DataFrame: ...
@overload
def convert(
    obj: object, to: Literal["polars.Series"], **options: Unpack[ConvertOptions]
) -> polars.Series: ...
@overload
def convert(
    obj: TableLike | _Columns, to: Literal["duckdb"], **options: Unpack[ConvertOptions]
) -> duckdb.DuckDBPyRelation: ...
@overload
def convert(obj: object, to: ModuleType, **options: Unpack[ConvertOptions]) -> Any: ...
@overload
def convert(obj: dict[Any, Any] | TableLike, to: type[Any], **options: Unpack[ConvertOptions]) -> Any: ...
@overload
def convert(obj: object, to: type[_T], **options: Unpack[ArrayOptions]) -> _T: ...
@overload
def convert(obj: dict[Any, Any] | TableLike, to: _Array, **options: Unpack[ConvertOptions]) -> Any: ...
@overload
def convert(
    obj: object, to: np.ndarray[Any, Any], **options: Unpack[ArrayOptions]
) -> np.ndarray[Any, Any]: ...
@overload
def convert(obj: object, to: TensorObject, **options: Unpack[ArrayOptions]) -> TensorObject: ...
@overload
def convert(obj: object, to: TableObject, **options: Unpack[ConvertOptions]) -> TableObject: ...

# This overload also takes wrong calls. It lists the options: a TypedDict takes no further keys (PEP 728).
@overload
def convert(
    obj: object,
    to: Target | Like | Mismatch[Never],
    *,
    device: Any = ...,
    copy: bool | Mismatch[Never] | None = ...,
    stream: Any = ...,
    writable: bool | Mismatch[Never] | None = ...,
    dtype: Any = ...,
    leaves: Literal["keep", "error"] | Mismatch[Never] | None = ...,
    validate: Literal["full"] | Mismatch[Never] | None = ...,
    out: Any = ...,
    layout: Literal["columns", "matrix", "records"] | Mismatch[Never] | None = ...,
    order: Literal["C", "F"] | Mismatch[Never] | None = ...,
    columns: Sequence[Hashable] | Mismatch[Never] | None = ...,
    nulls: NullPolicy | Mapping[Hashable, NullPolicy | None] | Mismatch[Never] | None = ...,
    encode: bool | Literal["codes", "bytes"] | Mapping[Hashable, Any] | Mismatch[Never] | None = ...,
    lists: Literal["dense", "ragged", "pad", "variable"] | Mismatch[Never] | None = ...,
    pad_value: Any = ...,
    max_length: int | Mismatch[Never] | None = ...,
    names: Sequence[str] | Mismatch[Never] | None = ...,
    index: Any = ...,
    connection: Any = ...,
    **unknown: NotAnOption[Never],
) -> Any: ...
