"""Objects that only ``__array__`` exports: datasets in files, lazy arrays. The result is a copy.

NumPy's documentation of ``__array__`` lets it return new memory or the object's own, so the copy is
declared, and made by ``__array__(copy=True)`` (NumPy 2) or here. The object's ``shape`` and ``dtype``
describe the result, so that ``explain`` reads no file.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zerocopy.device import HOST
from zerocopy.dtype import DType, from_numpy
from zerocopy.errors import Fix, LossyConversionError, Reason, UnsupportedConversionError
from zerocopy.protocols import array_interface
from zerocopy.protocols.exporter_errors import calling, is_error, malformed
from zerocopy.source import Array, Source, type_name
from zerocopy.strided_view import StridedView, contiguous_strides

#: An array like one in a file, which is not read; Python objects have no type without values.
SAMPLE, OF_OBJECTS = "numpy.zeros((1,) * {x}.ndim, {x}.dtype)", "numpy.asarray({x}[:2])"
_ARRAY = ("__array__", "shape", "dtype", "ndim")
#: Attributes of tables and series, which may have ``__array__`` and ``shape`` too.
_TABLE = ("columns", "__dataframe__", "keys", "to_frame")


def is_array(cls: type) -> bool:
    """Whether a type is an array of any number of dimensions, although it may export columns too."""
    return all(hasattr(cls, name) for name in _ARRAY) and not any(hasattr(cls, name) for name in _TABLE)


def is_exporter(cls: type) -> bool:
    """Whether `describe` applies to a type: it has ``__array__`` and is not a table or a group of arrays."""
    return hasattr(cls, "__array__") and not any(hasattr(cls, name) for name in _TABLE[:3])


def describe(obj: Any) -> Source:
    """Describe the array that ``__array__`` will return.

    Raises
    ------
    UnsupportedConversionError
        Tensors lack its dtype; or, if its shape or dtype is unknown, ``__array__`` raised.
    """
    asked = f"{type(obj).__qualname__}.__array__()"
    known = _attributes(obj)
    if known is None:
        array = _read(obj, asked)
        shape, stored = array.shape, array.dtype
    else:
        array, (shape, stored) = None, known
    dtype = _dtype(obj, stored)
    native = stored if stored.isnative else stored.newbyteorder("=")
    view = StridedView(0, shape, contiguous_strides(shape, dtype.itemsize), dtype, HOST, False, obj)

    def host() -> Array:
        values = _read(obj, asked) if array is None else array
        if values.shape != shape or values.dtype != stored:
            got, promised = f"{values.dtype} {values.shape}", f"{stored} {shape}"
            raise malformed(asked, f"it returned {got}, and the object's dtype and shape are {promised}")
        if array_interface.has_other_booleans(values):
            values = array_interface.plain_booleans(values)
        return np.ascontiguousarray(values, native).reshape(shape)

    why = Reason(
        "__array__ returns a copy, or memory that it does not declare to be its own",
        "pass the array that holds the values, such as x.data or x[...], to alias it",
        code="array-method",
    )
    return Source(type_name(obj), view, host, "__array__", (why,), obj=obj)


def _attributes(obj: Any) -> tuple[tuple[int, ...], np.dtype[Any]] | None:
    """Return an object's own shape and dtype; None if it has none, or they are not known yet."""
    try:
        shape, dtype = tuple(obj.shape), np.dtype(obj.dtype)
        if not all(isinstance(n, (int, np.integer)) for n in shape):  # dask: NaN is an unknown size
            return None
        if dtype.kind == "O" and dtype is not obj.dtype:  # a class that NumPy does not know
            return None
        return tuple(int(n) for n in shape), dtype
    except Exception as error:
        if not is_error(error):
            raise
        return None  # reading the array reports the same error, or succeeds


def _dtype(obj: Any, stored: np.dtype[Any]) -> DType:
    dtype = from_numpy(stored if stored.isnative else stored.newbyteorder("="))
    if dtype is None:
        objects = stored.kind == "O"
        effect = "reads it: NumPy's own array has more options"
        raise UnsupportedConversionError(
            f"convert({type_name(obj)})",
            f"its __array__ returns {stored}, which tensors do not have",
            code="python-objects" if objects else "missing-dtype",
            fixes=[Fix("numpy.asarray({x})", effect, sample=OF_OBJECTS if objects else SAMPLE)],
        )
    return dtype


def _read(obj: Any, asked: str) -> Array:
    """Return a new array of an object's values."""
    with calling(asked):
        try:
            array, fresh = obj.__array__(copy=True), True
        except TypeError as error:
            if isinstance(error, UnsupportedConversionError):
                raise  # of a conversion inside the producer, which a second call would repeat
            array, fresh = obj.__array__(), False  # written before NumPy 2
    if not isinstance(array, np.ndarray):
        raise malformed(asked, f"it returned {type_name(array)}, not a numpy.ndarray")
    if array_interface.masked_elements(array):
        why, remedy = "some of its elements are masked, which would be lost", "fill or drop them first"
        raise LossyConversionError(asked, why, remedy, code="masked")
    plain = np.asarray(array)
    return plain if fresh else plain.copy()
