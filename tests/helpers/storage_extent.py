"""Storage extent: the memory that an object's own storage covers, which can be more than its elements.

A consumer may read and write all of a storage: ``torch.save``, ``untyped_storage().fill_``, ``x.base``. So
each storage of a result is new memory, or lies in one allocation of the source.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

import zerocopy as zc
from zerocopy.dtype import from_numpy

Extent = tuple[int, int]

#: With AddressSanitizer: the first address of a range that is not in an allocation, or None.
_ASAN = getattr(ctypes.CDLL(None), "__asan_region_is_poisoned", None)
if _ASAN is not None:
    _ASAN.argtypes, _ASAN.restype = (ctypes.c_void_p, ctypes.c_size_t), ctypes.c_void_p
_bounds = getattr(np.lib, "array_utils", np).byte_bounds  # NumPy 2 moved it


def check_extents(source: Any, result: Any) -> None:
    """Raise AssertionError if a storage of a result touches allocations of the source, and is in none."""
    allocations = set(extents(source))
    for low, high in extents(result):
        poisoned = _ASAN(low, high - low) if _ASAN is not None else None
        assert not poisoned, (
            f"a storage of {type(result).__name__} covers {poisoned:#x}, which is not allocated"
        )
        touched = [(start, end) for start, end in allocations if low < end and start < high]
        if touched and not any(start <= low and high <= end for start, end in touched):
            shown = ", ".join(f"{start:#x} to {end:#x}" for start, end in sorted(touched))
            raise AssertionError(
                f"a storage of {type(result).__name__} covers {low:#x} to {high:#x}, and leaves the "
                f"allocations {shown} of {type(source).__name__}"
            )


def extents(obj: Any) -> Iterator[Extent]:
    """Yield the bounds of each storage of an object in host memory, and of those that it is a part of."""
    read = _reader(obj)
    if read is not None:
        yield from (extent for extent in read(obj) if extent[1] > extent[0])
    elif isinstance(obj, dict):
        for value in dict.values(obj):  # a subclass can have methods that raise
            yield from extents(value)
    elif isinstance(obj, (list, tuple)):
        for value in (list if isinstance(obj, list) else tuple).__iter__(obj):
            yield from extents(value)
    elif type(obj).__module__.startswith("zerocopy.") and is_dataclass(obj):
        for part in fields(obj):
            yield from extents(getattr(obj, part.name, None))


def _reader(obj: Any) -> Callable[[Any], Iterator[Extent]] | None:
    for cls in type(obj).__mro__:
        reader = _READERS.get(f"{cls.__module__.partition('.')[0]}.{cls.__qualname__}")
        if reader is not None:
            return reader
    return None


def _ndarray(array: Any) -> Iterator[Extent]:
    base = np.ndarray.base.__get__(array)
    while isinstance(base, np.ndarray):
        array, base = base, np.ndarray.base.__get__(base)
    yield _bounds(np.ndarray.view(array, np.ndarray))
    if base is not None:
        yield from extents(base)


def _bytes(obj: Any) -> Iterator[Extent]:
    if isinstance(obj, memoryview) and obj.obj is not None and obj.obj is not obj:
        yield from extents(obj.obj)
    with memoryview(obj) as view:
        if view.contiguous and view.nbytes:
            first = np.frombuffer(view, np.uint8)
            yield first.ctypes.data, first.ctypes.data + view.nbytes


def _torch(tensor: Any) -> Iterator[Extent]:
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.layout is not torch.strided or not tensor.is_cpu:
            return
        storage = tensor.untyped_storage()
    yield storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _jax(array: Any) -> Iterator[Extent]:
    if array.is_deleted():
        return
    dtype = from_numpy(array.dtype)
    bits = dtype.bits if dtype is not None and dtype.bits < 6 else 8
    for shard in array.addressable_shards:
        start = shard.data.unsafe_buffer_pointer()
        # The CPU backend packs types of 2 and 4 bits, and reports a byte for each element.
        yield start, start + -(-shard.data.on_device_size_in_bytes() * bits // 8)


def _tensorflow(tensor: Any) -> Iterator[Extent]:
    if tensor.dtype.is_numpy_compatible and tensor.dtype.name != "string":
        yield zc.view(tensor).bounds


def _buffer(buffer: Any) -> Iterator[Extent]:
    while buffer is not None:
        yield buffer.address, buffer.address + buffer.size
        buffer = buffer.parent


def _arrow(array: Any) -> Iterator[Extent]:
    pa = sys.modules["pyarrow"]
    if isinstance(array, pa.ChunkedArray):
        for chunk in array.chunks:
            yield from _arrow(chunk)
        return
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    for buffer in array.buffers():
        yield from _buffer(buffer)
    if isinstance(array, pa.DictionaryArray):
        yield from _arrow(array.dictionary)


def _arrow_table(table: Any) -> Iterator[Extent]:
    for column in table.columns:
        yield from _arrow(column)


def _arrow_tensor(tensor: Any) -> Iterator[Extent]:
    yield _bounds(tensor.to_numpy())  # whose base is the tensor


def _polars_frame(frame: Any) -> Iterator[Extent]:
    for series in frame.get_columns():
        yield from _polars(series)


def _polars(series: Any) -> Iterator[Extent]:
    if series.dtype.is_numeric() or series.dtype.is_temporal():
        try:
            array = series.to_physical().to_arrow()  # polars panics at times of more than a day
        except sys.modules["pyarrow"].ArrowInvalid:  # pyarrow lacks integers of 128 bits
            return
        yield from _arrow(array)


def _pandas_frame(frame: Any) -> Iterator[Extent]:
    for _, series in frame.items():
        yield from _pandas(series.array)
    yield from _pandas(frame.index)


def _pandas_series(series: Any) -> Iterator[Extent]:
    yield from _pandas(series.array)


def _pandas(array: Any) -> Iterator[Extent]:
    if type(array).__name__ in ("RangeIndex", "MultiIndex"):
        return
    array = getattr(array, "array", array)
    for name in ("_ndarray", "_data", "_mask", "_pa_array", "_codes"):
        yield from extents(getattr(array, name, None))


_READERS: dict[str, Callable[[Any], Iterator[Extent]]] = {
    "numpy.ndarray": _ndarray,
    **dict.fromkeys(("builtins.bytes", "builtins.bytearray", "builtins.memoryview", "mmap.mmap"), _bytes),
    "array.array": _bytes,
    "torch.Tensor": _torch,
    "jaxlib.ArrayImpl": _jax,
    "jaxlib._jax.ArrayImpl": _jax,
    "tensorflow.EagerTensor": _tensorflow,
    "pyarrow.Buffer": _buffer,
    "pyarrow.Array": _arrow,
    "pyarrow.ChunkedArray": _arrow,
    "pyarrow.Table": _arrow_table,
    "pyarrow.RecordBatch": _arrow_table,
    "pyarrow.Tensor": _arrow_tensor,
    "polars.DataFrame": _polars_frame,
    "polars.Series": _polars,
    "pandas.DataFrame": _pandas_frame,
    "pandas.Series": _pandas_series,
    "pandas.Index": _pandas,
    "zerocopy.StridedView": lambda view: iter([view.bounds]),
}
