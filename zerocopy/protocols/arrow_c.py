"""The Arrow C data interface: structs, and primitive arrays as views.

Structs and formats are those of Arrow's columnar specification, "The Arrow C
data interface". Tables and nested types are the business of ``zerocopy.tables``.
"""

from __future__ import annotations

import ctypes
from typing import Any

from zerocopy.device import HOST
from zerocopy.dtype import by_name
from zerocopy.errors import LossyConversionError, UnsupportedConversionError
from zerocopy.strided import StridedView

SCHEMA, ARRAY = b"arrow_schema", b"arrow_array"

#: Format strings of the primitive types ("Data type description -- format strings").
PRIMITIVES = {
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
    "e": "float16",
    "f": "float32",
    "g": "float64",
}


class ArrowSchema(ctypes.Structure):
    """``struct ArrowSchema``, as far as a primitive type needs it."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
        ("flags", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


class ArrowArray(ctypes.Structure):
    """``struct ArrowArray``."""

    _fields_ = (
        ("length", ctypes.c_int64),
        ("null_count", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("n_buffers", ctypes.c_int64),
        ("n_children", ctypes.c_int64),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
        ("children", ctypes.c_void_p),
        ("dictionary", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


# A prototype of our own, for the reason given in zerocopy.protocols.dlpack.
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def read(producer: Any) -> StridedView:
    """Describe the memory of an object with ``__arrow_c_array__``: one primitive array.

    Parameters
    ----------
    producer : object
        Has ``__arrow_c_array__``, returning a schema and an array capsule.

    Returns
    -------
    StridedView
        One-dimensional, read-only; it holds the capsules, and with them the memory.

    Raises
    ------
    LossyConversionError
        The array has nulls.
    UnsupportedConversionError
        Its type is not primitive, or the exporter raised.
    """
    asked = f"{type(producer).__qualname__}.__arrow_c_array__()"
    try:
        schema_capsule, array_capsule = producer.__arrow_c_array__()
        schema = ArrowSchema.from_address(_get_pointer(schema_capsule, SCHEMA))
        array = ArrowArray.from_address(_get_pointer(array_capsule, ARRAY))
    except Exception as error:
        raise UnsupportedConversionError(
            asked,
            f"the exporter raised {type(error).__name__}: {error}",
            "see the exporter's own message, above",
        ) from error
    if not schema.release or not array.release:
        raise UnsupportedConversionError(
            asked, "the structs are released already", "ask the producer for fresh capsules"
        )
    name = PRIMITIVES.get((schema.format or b"").decode())
    if name is None or schema.dictionary:
        raise UnsupportedConversionError(
            asked,
            f"Arrow format {schema.format!r} is not a primitive number",
            "convert it with pyarrow first: pyarrow.array(x), then cast",
        )
    dtype = by_name(name)
    validity, data = array.buffers[0], array.buffers[1]
    if array.null_count != 0 and (array.null_count > 0 or validity):
        nulls = array.null_count if array.null_count > 0 else "possible"
        raise LossyConversionError(
            asked, f"it has nulls ({nulls}), and tensors have none", "fill or drop them first"
        )
    ptr = (data or 0) + array.offset * dtype.itemsize
    return StridedView(
        ptr,
        (array.length,),
        (dtype.itemsize,),
        dtype,
        HOST,
        True,
        (schema_capsule, array_capsule),
    )
