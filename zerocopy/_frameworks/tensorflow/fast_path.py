"""Fast exporters and importers of tensors, by form (see :data:`zerocopy.source.FORMS`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zerocopy._native import core
from zerocopy.dtype import NATIVE_NAMES, by_name
from zerocopy.framework import version_numbers
from zerocopy.protocols.array_interface import ALIGNMENT, misalignment, writable_alias

# The public functions wrap one C++ call each: from_dlpack looks the context up twice and
# initialises it (200 ns of 700), Tensor.dtype converts an enum to an object (100 ns of 400). In
# these versions the C++ calls are used directly (law 6; compared in test_routes).
_KNOWN = ((2, 16), (2, 24))
#: The dtypes that NumPy's arrays of quantized tensors have. They do not show that the values are codes.
_AMBIGUOUS = ("int8", "uint8", "int16", "uint16", "int32")


def fast_exporters(tf: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the fast exporters of eager tensors on the host."""
    ndarray, to_capsule, is_unsafe = ndarray_exporter(tf), capsule_exporter(tf), unsafe_test(tf)

    def capsule(tensor: Any) -> Any:
        if is_unsafe(tensor):
            raise BufferError("to_dlpack aborts the process")
        return to_capsule(tensor)

    forms = {"ndarray": ndarray, "readonly": ndarray, "capsule": capsule, "aligned": capsule}
    if core is None:
        return forms
    # An ndarray is faster than a capsule; and strings, for which to_dlpack ends the process, are refused.
    bare = getattr(type(tf.constant(0)), "_numpy_internal", None) if _private(tf) is not None else None
    refuse = ([(by_name(name).code, by_name(name).bits) for name in _AMBIGUOUS], quantized_test(tf))
    return forms | {"native": core.ArrayExporter(bare or ndarray, readonly=True, refuse=refuse)}


def _private(tf: Any) -> Any:
    if not _KNOWN[0] <= version_numbers(tf.__version__) < _KNOWN[1]:
        return None
    try:
        from tensorflow.python import pywrap_tfe
    except ImportError:
        return None
    return pywrap_tfe


def fast_importers(tf: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the fast importers; each repeats the C++ call, because a helper would take 50 ns."""
    bare = getattr(_private(tf), "TFE_FromDlpackCapsule", None)
    public = tf.experimental.dlpack.from_dlpack
    if bare is None:
        return {"aligned": public}
    from tensorflow.python.eager import context

    context.context().ensure_initialized()

    # Read the handle for each call, because it dangles after the context is reset.
    def aligned(capsule: Any) -> Any:
        return bare(capsule, context._context._handle)

    def ndarray(array: Any) -> Any:
        if misalignment(array):
            raise BufferError("misaligned: it would abort later")
        return bare(array.__dlpack__(), context._context._handle)  # refuses gaps and read-only memory

    def readonly(array: Any) -> Any:
        if misalignment(array):
            raise BufferError("misaligned: it would abort later")
        return bare(writable_alias(array).__dlpack__(), context._context._handle)

    forms = {"aligned": aligned, "readonly": readonly, "ndarray": ndarray}
    if core is None:
        return forms
    types = [by_name(name) for name in (*NATIVE_NAMES, "bfloat16")]
    native = core.CapsuleImporter(
        bare,
        dtypes=[(dtype.code, dtype.bits) for dtype in types],
        alignment=ALIGNMENT,
        layout="row-major",
        arguments=(),
        late=(context, "_context", "_handle"),
    )
    return forms | {"native": native}


def capsule_exporter(tf: Any) -> Callable[[Any], Any]:
    """Return ``tf.Tensor -> legacy capsule``, without a check of the dtype."""
    bare = getattr(_private(tf), "TFE_ToDlpackCapsule", None)
    return bare or tf.experimental.dlpack.to_dlpack  # type: ignore[no-any-return]


def ndarray_exporter(tf: Any) -> Callable[[Any], Any]:
    """Return ``tf.Tensor -> ndarray``, a read-only alias of a numeric tensor's memory."""
    import numpy as np

    numbers, is_quantized = frozenset(np.dtype(name).num for name in _AMBIGUOUS), quantized_test(tf)
    if _private(tf) is not None and hasattr(tf.constant(0), "_numpy_internal"):

        def private(tensor: Any) -> Any:
            # __array__ and the buffer protocol wrap this, and take 180 ns more.
            array = tensor._numpy_internal()
            if array.base is None:
                raise BufferError("a scalar, or strings as objects: not an alias")
            if array.dtype.num in numbers and is_quantized(tensor):
                raise BufferError("quantized: its codes are not its values")
            array.setflags(False)  # tensors are immutable
            return array

        return private

    def public(tensor: Any) -> Any:
        array = np.asarray(tensor)
        number = array.dtype.num
        # NumPy's numeric types have the numbers 0 to 16, and 23 (float16). Strings become objects
        # (17); arrays of bfloat16 and others of ml_dtypes (256 and above) are not marked read-only.
        if (number > 16 and number != 23) or (number in numbers and is_quantized(tensor)):
            raise BufferError("not a dtype of NumPy itself, or quantized")
        return array

    return public


def quantized_test(tf: Any) -> Callable[[Any], bool]:
    """Return a test for quantized tensors, which NumPy exports as their integer codes."""
    return _dtype_test(tf, (tf.qint8, tf.quint8, tf.qint16, tf.quint16, tf.qint32))


def unsafe_test(tf: Any) -> Callable[[Any], bool]:
    """Return a test for tensors with which to_dlpack aborts the process."""
    return _dtype_test(tf, (tf.string, tf.resource, tf.variant))


def _dtype_test(tf: Any, dtypes: tuple[Any, ...]) -> Callable[[Any], bool]:
    """Return a test for tensors of these dtypes."""
    if _private(tf) is not None and hasattr(tf.constant(0), "_datatype_enum"):
        numbers = frozenset(dtype.as_datatype_enum for dtype in dtypes)

        def by_number(tensor: Any) -> bool:
            return tensor._datatype_enum() in numbers

        return by_number
    return lambda tensor: tensor.dtype in dtypes
