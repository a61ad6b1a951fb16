"""``empty`` and ``aligned``: arrays whose addresses are multiples of 64 bytes."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, TypeVar

import numpy as np

from zerocopy import registry
from zerocopy._engine.convert import convert
from zerocopy.casting.option import parse_dtype
from zerocopy.describe import describe_array, translated_errors
from zerocopy.dtype import to_numpy
from zerocopy.errors import FrameworkNotInstalledError, OptionError, UnsupportedConversionError
from zerocopy.errors.tracebacks import public
from zerocopy.protocols.array_interface import (
    ALIGNMENT,
    address,
    aligned_copy,
    aligned_empty,
    checked_align,
)
from zerocopy.source import Array, Source, type_name

_ArrayT = TypeVar("_ArrayT")
_FIX = 'zc.aligned(zc.convert(x, "numpy")) is an aligned array of NumPy'


@public
def empty(shape: int | Iterable[int], dtype: Any = "float64", align: int = ALIGNMENT) -> Array:
    """Return a new NumPy array whose address is a multiple of a number of bytes.

    Parameters
    ----------
    shape : int or iterable of int
        The number of elements in each dimension.
    dtype : dtype or str
        A type without Python objects: of NumPy, of ml_dtypes (``"bfloat16"``), or a framework's name of one.
    align : int
        A power of 2. JAX, TensorFlow and ONNX Runtime alias host memory at multiples of 64 only.

    Returns
    -------
    numpy.ndarray
        Row-major and writable; its content is undefined.

    Raises
    ------
    OptionError
        `align`, the shape or the dtype is invalid; it is also a ValueError.
    UnsupportedConversionError
        The dtype has Python objects; it is also a TypeError.
    FrameworkNotInstalledError
        The dtype is one of ml_dtypes, which is not installed.

    Examples
    --------
    >>> import zerocopy as zc
    >>> x = zc.empty((100, 3), "float32")
    >>> x.shape, x.ctypes.data % 64
    ((100, 3), 0)
    """
    asked = f"empty({shape!r:.100}, {dtype!r:.100})"
    checked_align(asked, align)
    counts = _counts(asked, shape)
    try:
        element = np.dtype(dtype)
    except (TypeError, ValueError):  # NumPy lacks it, or knows it by another name
        known = parse_dtype(dtype)
        own = to_numpy(known)
        if own is None:
            why = f"NumPy has {known} with ml_dtypes only"
            raise FrameworkNotInstalledError(asked, why, "pip install ml_dtypes") from None
        element = own
    _without_objects(asked, element)
    try:
        return aligned_empty(counts, element, align)
    except (ValueError, OverflowError) as error:
        raise OptionError(asked, f"NumPy refuses the shape: {error}", "pass a smaller shape") from error


def _counts(asked: str, shape: Any) -> tuple[int, ...]:
    try:
        is_text = isinstance(shape, (str, bytes, bytearray))
        counts = tuple(map(index, shape)) if np.iterable(shape) and not is_text else (index(shape),)
    except TypeError as error:
        why = f"the shape is not an int or several: {error}"
        raise OptionError(asked, why, "pass a shape such as (100, 3)") from error
    if any(count < 0 for count in counts):
        raise OptionError(asked, "a dimension is negative", "pass 0 or more")
    return counts


@public
def aligned(x: _ArrayT, align: int = ALIGNMENT) -> _ArrayT:
    """Return an array itself if its address is a multiple of a number of bytes, or else an aligned copy.

    Parameters
    ----------
    x : array
        An array of any framework. A column of a table, or a labelled array, must be aligned already: a copy
        would lose its name and its labels.
    align : int
        A power of 2.

    Returns
    -------
    array
        `x`, or a row-major copy of the same framework and device. It is an array of the framework's own
        class for subclasses, and of NumPy for objects that no target makes, such as datasets in files.

    Raises
    ------
    OptionError
        `align` is invalid; it is also a ValueError.
    UnsupportedConversionError
        `x` is not an array; or it is not aligned and requires grad, is a column or a labelled array, or its
        framework copies host memory to addresses that it chooses; it is also a TypeError.
    ZeroCopyError
        The values cannot be read, as for :func:`zerocopy.convert`.

    Examples
    --------
    >>> import numpy as np, zerocopy as zc
    >>> x = zc.empty(9, "float32")
    >>> zc.aligned(x) is x, zc.aligned(x[1:]).ctypes.data % 64
    (True, 0)
    """
    asked = f"aligned({type_name(x)})"
    checked_align(asked, align)
    with translated_errors(lambda: asked):
        copy = _aligned(asked, x, align)
    return x if copy is None else copy  # type: ignore[no-any-return]


def _aligned(asked: str, x: Any, align: int) -> Any:
    """Return an aligned copy, or None if it is not needed."""
    if type(x) is np.ndarray:  # of any dtype
        return None if not x.size or address(x) % align == 0 else _copied(asked, x, align)
    source = describe_array(x)
    if _is_aligned(source, align):
        return None
    framework = registry.target_of(type(x))
    if not source.view.device.is_host:
        copy = convert(x, x, copy=True)
    elif framework is None or framework.name == "numpy":
        return _copied(asked, convert(x, "numpy"), align)
    elif framework.kind != "tensor":
        raise UnsupportedConversionError(asked, "a copy would lose its name or its labels", _FIX)
    else:
        refusal = source.refusal
        if refusal is not None and refusal.code == "requires-grad":  # the array of its fix is not aligned
            fix = f"zc.aligned({refusal.fixes[0].source.format(x='x')}) aligns the values alone"
            raise UnsupportedConversionError(asked, refusal.why, fix, code=refusal.code)
        copy = convert(_copied(asked, convert(x, "numpy"), align), x)
    if not _is_aligned(describe_array(copy), align):
        why = f"{source.name} is copied to an address that its framework chooses"
        raise UnsupportedConversionError(asked, why, _FIX, code="imports-by-copy")
    return copy


def _is_aligned(source: Source, align: int) -> bool:
    return not source.reasons and (not source.view.size or source.view.ptr % align == 0)


def _copied(asked: str, array: Array, align: int) -> Array:
    _without_objects(asked, array.dtype)
    return aligned_copy(array, align)


def _without_objects(asked: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype; NumPy does not make arrays of Python objects over given memory."""
    if dtype.hasobject:
        why = "NumPy allocates the memory of Python objects itself"
        fix = 'with zc.aligned_numpy(): x = numpy.empty(shape, "O")'
        raise UnsupportedConversionError(asked, why, fix, code="object-dtype")
    return dtype
