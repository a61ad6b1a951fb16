"""Types of ``converter``, ``loader`` and ``open_weights`` for type checkers; nothing imports it at run time.

As for ``convert``, a target's name, type or object gives its type, and options that change the kind of the
result give ``Any``. tests/engine/test_typing.py compares the options with those of the functions.
"""

# mypy: disable-error-code="overload-overlap"

from collections.abc import Hashable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Never, TypeAlias, TypedDict, Unpack, overload

import duckdb
import jax
import numpy as np
import pandas
import polars
import tensorflow
import torch

from zerocopy._engine.converter import Converter
from zerocopy._engine.signatures import (
    ColumnOptions,
    Jax,
    Like,
    MatrixOptions,
    Mismatch,
    NotAnOption,
    NumPy,
    ResultT,
    TableObject,
    TableOptions,
    Target,
    TensorFlow,
    TensorObject,
    Torch,
)
from zerocopy.loading.loader import Loader
from zerocopy.request import ConvertOptions, NullPolicy
from zerocopy.weights.mapping import Weights

_NumPyArray: TypeAlias = np.ndarray[Any, Any]
_Pandas: TypeAlias = Literal["pandas", "pandas.DataFrame"]
_Polars: TypeAlias = Literal["polars", "polars.DataFrame"]
_Path: TypeAlias = str | PathLike[str]
_Paths: TypeAlias = _Path | Sequence[_Path]

@overload
def converter(
    schema: Any, to: NumPy, **options: Unpack[TableOptions]
) -> Converter[_NumPyArray, dict[Any, _NumPyArray]]:
    """Return a function that converts objects to one target: see ``help(zerocopy.converter)``."""

@overload
def converter(
    schema: Any, to: Torch, **options: Unpack[TableOptions]
) -> Converter[torch.Tensor, dict[Any, torch.Tensor]]: ...
@overload
def converter(
    schema: Any, to: Jax, **options: Unpack[TableOptions]
) -> Converter[jax.Array, dict[Any, jax.Array]]: ...
@overload
def converter(
    schema: Any, to: TensorFlow, **options: Unpack[TableOptions]
) -> Converter[tensorflow.Tensor, dict[Any, tensorflow.Tensor]]: ...
@overload
def converter(
    schema: Any, to: NumPy, *, layout: Literal["matrix"], **options: Unpack[MatrixOptions]
) -> Converter[_NumPyArray, _NumPyArray]: ...
@overload
def converter(
    schema: Any, to: Torch, *, layout: Literal["matrix"], **options: Unpack[MatrixOptions]
) -> Converter[torch.Tensor, torch.Tensor]: ...
@overload
def converter(
    schema: Any, to: Jax, *, layout: Literal["matrix"], **options: Unpack[MatrixOptions]
) -> Converter[jax.Array, jax.Array]: ...
@overload
def converter(
    schema: Any, to: TensorFlow, *, layout: Literal["matrix"], **options: Unpack[MatrixOptions]
) -> Converter[tensorflow.Tensor, tensorflow.Tensor]: ...
@overload
def converter(
    schema: Any, to: _Pandas, **options: Unpack[ConvertOptions]
) -> Converter[Any, pandas.DataFrame]: ...
@overload
def converter(
    schema: Any, to: _Polars, **options: Unpack[ConvertOptions]
) -> Converter[Any, polars.DataFrame]: ...
@overload
def converter(
    schema: Any, to: Literal["duckdb"], **options: Unpack[ConvertOptions]
) -> Converter[Any, duckdb.DuckDBPyRelation]: ...
@overload
def converter(
    schema: Any, to: type[TableObject] | TableObject, **options: Unpack[ConvertOptions]
) -> Converter[TableObject, TableObject]: ...
@overload
def converter(
    schema: Any, to: type[TensorObject] | TensorObject, **options: Unpack[TableOptions]
) -> Converter[TensorObject, dict[Any, TensorObject]]: ...

# The last overload of each function takes wrong calls too, as that of ``convert``.
@overload
def converter(
    schema: Any,
    to: Target | Like | Mismatch[Never],
    *,
    device: Any = ...,
    copy: bool | Mismatch[Never] | None = ...,
    stream: Any = ...,
    writable: bool | Mismatch[Never] | None = ...,
    dtype: Any = ...,
    leaves: Literal["keep", "error"] | Mismatch[Never] | None = ...,
    validate: Literal["full"] | Mismatch[Never] | None = ...,
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
) -> Converter[Any, Any]: ...

class TorchLoader(Loader[ResultT], torch.utils.data.IterableDataset[ResultT]):  # type: ignore[misc, type-arg]
    """A loader for torch, which a ``DataLoader`` takes."""

class _BatchOptions(ColumnOptions, total=False):
    """Options of ``loader`` with which each column remains one array."""

    batch_size: int
    dtype: Any
    shuffle: bool | int | Literal["full"]
    seed: int
    prefetch: int
    device: Any
    drop_last: bool
    rank: int | None
    world_size: int | None
    epochs: int
    on_error: Literal["raise", "skip"]
    schema: Any
    progress: bool | None
    engine: Literal["cudf"] | None

_Columns: TypeAlias = Literal["columns"] | None

@overload
def loader(
    source: Any, to: NumPy, *, layout: _Columns = ..., **options: Unpack[_BatchOptions]
) -> Loader[dict[Any, _NumPyArray]]:
    """Return an iterable of batches: see ``help(zerocopy.loader)``."""

@overload
def loader(
    source: Any, to: Torch, *, layout: _Columns = ..., **options: Unpack[_BatchOptions]
) -> TorchLoader[dict[Any, torch.Tensor]]: ...
@overload
def loader(
    source: Any, to: Jax, *, layout: _Columns = ..., **options: Unpack[_BatchOptions]
) -> Loader[dict[Any, jax.Array]]: ...
@overload
def loader(
    source: Any, to: TensorFlow, *, layout: _Columns = ..., **options: Unpack[_BatchOptions]
) -> Loader[dict[Any, tensorflow.Tensor]]: ...
@overload
def loader(
    source: Any, to: NumPy, *, layout: Literal["matrix"], **options: Unpack[_BatchOptions]
) -> Loader[_NumPyArray]: ...
@overload
def loader(
    source: Any, to: Torch, *, layout: Literal["matrix"], **options: Unpack[_BatchOptions]
) -> TorchLoader[torch.Tensor]: ...
@overload
def loader(
    source: Any, to: Jax, *, layout: Literal["matrix"], **options: Unpack[_BatchOptions]
) -> Loader[jax.Array]: ...
@overload
def loader(
    source: Any, to: TensorFlow, *, layout: Literal["matrix"], **options: Unpack[_BatchOptions]
) -> Loader[tensorflow.Tensor]: ...
@overload
def loader(source: Any, to: _Pandas, **options: Unpack[_BatchOptions]) -> Loader[pandas.DataFrame]: ...
@overload
def loader(source: Any, to: _Polars, **options: Unpack[_BatchOptions]) -> Loader[polars.DataFrame]: ...
@overload
def loader(
    source: Any, to: Literal["duckdb"], **options: Unpack[_BatchOptions]
) -> Loader[duckdb.DuckDBPyRelation]: ...
@overload
def loader(
    source: Any, to: type[TableObject] | TableObject, **options: Unpack[_BatchOptions]
) -> Loader[TableObject]: ...
@overload
def loader(
    source: Any,
    to: type[TensorObject] | TensorObject,
    *,
    layout: _Columns = ...,
    **options: Unpack[_BatchOptions],
) -> Loader[dict[Any, TensorObject]]: ...
@overload
def loader(
    source: Any,
    to: Target | Like | Mismatch[Never],
    *,
    batch_size: int | Mismatch[Never] = ...,
    columns: Sequence[Hashable] | Mismatch[Never] | None = ...,
    nulls: NullPolicy | Mapping[Hashable, NullPolicy | None] | Mismatch[Never] | None = ...,
    encode: bool | Literal["codes", "bytes"] | Mapping[Hashable, Any] | Mismatch[Never] | None = ...,
    layout: Literal["columns", "matrix"] | Mismatch[Never] | None = ...,
    lists: Literal["dense", "ragged", "pad"] | Mismatch[Never] | None = ...,
    pad_value: Any = ...,
    max_length: int | Mismatch[Never] | None = ...,
    dtype: Any = ...,
    shuffle: bool | int | Literal["full"] | Mismatch[Never] = ...,
    seed: int | Mismatch[Never] = ...,
    prefetch: int | Mismatch[Never] = ...,
    device: Any = ...,
    drop_last: bool | Mismatch[Never] = ...,
    rank: int | Mismatch[Never] | None = ...,
    world_size: int | Mismatch[Never] | None = ...,
    epochs: int | Mismatch[Never] = ...,
    on_error: Literal["raise", "skip"] | Mismatch[Never] = ...,
    schema: Any = ...,
    progress: bool | Mismatch[Never] | None = ...,
    engine: Literal["cudf"] | Mismatch[Never] | None = ...,
    **unknown: NotAnOption[Never],
) -> Loader[Any]: ...

class _FileOptions(TypedDict, total=False):
    device: Any
    copy: bool | None
    stream: Any
    writable: bool | None
    dtype: Any
    max_header: int | None

@overload
def open_weights(path: _Paths, to: NumPy = ..., **options: Unpack[_FileOptions]) -> Weights[_NumPyArray]:
    """Return the tensors of files by their names: see ``help(zerocopy.open_weights)``."""

@overload
def open_weights(path: _Paths, to: Torch, **options: Unpack[_FileOptions]) -> Weights[torch.Tensor]: ...
@overload
def open_weights(path: _Paths, to: Jax, **options: Unpack[_FileOptions]) -> Weights[jax.Array]: ...
@overload
def open_weights(
    path: _Paths, to: TensorFlow, **options: Unpack[_FileOptions]
) -> Weights[tensorflow.Tensor]: ...
@overload
def open_weights(
    path: _Paths, to: type[TensorObject], **options: Unpack[_FileOptions]
) -> Weights[TensorObject]: ...
@overload
def open_weights(
    path: _Paths | Mismatch[Never],
    to: Target | Mismatch[Never] = ...,
    *,
    device: Any = ...,
    copy: bool | Mismatch[Never] | None = ...,
    stream: Any = ...,
    writable: bool | Mismatch[Never] | None = ...,
    dtype: Any = ...,
    max_header: int | Mismatch[Never] | None = ...,
    **unknown: NotAnOption[Never],
) -> Weights[Any]: ...
