"""Fast exporters and importers of tensors, by form (see :data:`zerocopy.source.FORMS`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy._native import core
from zerocopy.dtype import NATIVE_NAMES, by_name
from zerocopy.protocols.array_interface import ALIGNMENT, misalignment, writable_alias

#: The dtypes that NumPy's arrays of quantized tensors have. They do not show that the values are codes.
_AMBIGUOUS = ("int8", "uint8", "int16", "uint16", "int32")


def fast_exporters(tf: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the fast exporters of eager tensors on the host."""
    import numpy as np

    ndarray, is_unsafe, to_capsule = ndarray_exporter(tf), unsafe_test(tf), tf.experimental.dlpack.to_dlpack

    def capsule(tensor: Any) -> Any:
        if is_unsafe(tensor):
            raise BufferError("to_dlpack aborts the process")
        return to_capsule(tensor)

    forms = {"ndarray": ndarray, "readonly": ndarray, "capsule": capsule, "aligned": capsule}
    if core is None:
        return forms
    # An ndarray is faster than a capsule; and strings, for which to_dlpack ends the process, are refused.
    refuse = ([(by_name(name).code, by_name(name).bits) for name in _AMBIGUOUS], quantized_test(tf))
    return forms | {"native": core.ArrayExporter(np.asarray, readonly=True, refuse=refuse)}


def fast_importers(tf: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the fast importers."""
    aligned = tf.experimental.dlpack.from_dlpack

    def ndarray(array: Any) -> Any:
        if misalignment(array):
            raise BufferError("misaligned: it would abort later")
        return aligned(array.__dlpack__())  # refuses gaps and read-only memory

    def readonly(array: Any) -> Any:
        return ndarray(writable_alias(array))

    forms = {"aligned": aligned, "readonly": readonly, "ndarray": ndarray}
    if core is None:
        return forms
    types = [by_name(name) for name in (*NATIVE_NAMES, "bfloat16")]
    native = core.CapsuleImporter(
        aligned,
        dtypes=[(dtype.code, dtype.bits) for dtype in types],
        alignment=ALIGNMENT,
        layout="row-major",
        arguments=(),
    )
    return forms | {"native": native}


def ndarray_exporter(tf: Any) -> Callable[[Any], Any]:
    """Return ``tf.Tensor -> ndarray``, a read-only alias of a numeric tensor's memory."""
    import numpy as np

    numbers, is_quantized = frozenset(np.dtype(name).num for name in _AMBIGUOUS), quantized_test(tf)

    def ndarray(tensor: Any) -> Any:
        array = np.asarray(tensor)
        number = array.dtype.num
        # NumPy's numeric types have the numbers 0 to 16, and 23 (float16). Strings become objects
        # (17); arrays of bfloat16 and others of ml_dtypes (256 and above) are not marked read-only.
        if (number > 16 and number != 23) or (number in numbers and is_quantized(tensor)):
            raise BufferError("not a dtype of NumPy itself, or quantized")
        return array

    return ndarray


def quantized_test(tf: Any) -> Callable[[Any], bool]:
    """Return a test for quantized tensors, which NumPy exports as their integer codes."""
    return _dtype_test((tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32))


def unsafe_test(tf: Any) -> Callable[[Any], bool]:
    """Return a test for tensors with which to_dlpack aborts the process."""
    return _dtype_test((tf.string, tf.resource, tf.variant))


def _dtype_test(dtypes: tuple[Any, ...]) -> Callable[[Any], bool]:
    """Return a test for tensors of these dtypes; a comparison of dtypes takes 0.8 us more than of numbers."""
    numbers = frozenset(dtype.as_datatype_enum for dtype in dtypes)
    return lambda tensor: tensor.dtype.as_datatype_enum in numbers
